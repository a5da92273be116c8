"""A PyBullet client: connect, step, save and restore, close; its window and EGL rendering."""

import subprocess
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from itertools import repeat
from typing import Any, ClassVar

import numpy as np
import pybullet
import pybullet_data

from robots.camera import Camera
from robots.engines.bullet.memory import connect
from robots.simulation import Physics, RendererError, Simulation, require_display


def _repeat(function: Callable[[], None], times: int) -> None:
    for _ in repeat(None, times):
        function()


class Client(Simulation):
    """One PyBullet world, empty so far.

    Attributes:
        client: PyBullet's client id; -1 after ``close``.
        calls: Calls of the engine in one ``step``.
        hardware_pictures: Whether the graphics hardware draws images.
    """

    engine: ClassVar[str] = "bullet"

    def __init__(
        self,
        physics: Physics | None = None,
        *,
        hold_torques: bool = False,
        gui: bool = False,
        draws: bool = True,
        renderer: str = "tiny",
    ) -> None:
        """Connect and set up an empty world.

        Args:
            physics: Time and solver; the defaults of ``Physics`` if None.
            hold_torques: Run the substeps inside one engine call. Bullet clears joint torques
                after every call, so a torque needs this to act over all substeps. Joint motors
                need the opposite: Bullet scales their strength by the length of a call.
            gui: Open a window.
            draws: Whether images are drawn. If not, URDFs are loaded without what bodies look like,
                which is up to half of their memory and of the time.
            renderer: Renderer of images, "tiny" or "egl".

        Raises:
            ValueError: If the time step, the substeps or the iterations are not positive, or the
                renderer is unknown.
            DisplayError: If a window is requested without a display.
            RendererError: If EGL is requested where there is none.
        """
        if renderer not in ("tiny", "egl"):
            raise ValueError(f"renderer={renderer!r} is unknown. Use 'tiny' or 'egl'.")
        physics = physics or Physics()
        time_step_s, substeps = physics.time_step_s, physics.substeps
        self.client = -1
        if time_step_s <= 0 or substeps < 1 or physics.solver_iterations < 1:
            raise ValueError(
                f"time_step_s={time_step_s}, substeps={substeps} and "
                f"solver_iterations={physics.solver_iterations} must be positive. "
                "Set for example time_step_s=0.005, substeps=4 and solver_iterations=50."
            )
        if gui:
            require_display()
        if physics.single_precision_time:
            time_step_s = float(np.float32(time_step_s))
        elif substeps & (substeps - 1):
            raise ValueError(
                f"substeps={substeps} with single_precision_time=False must be a power of two. "
                "Leave single_precision_time as it is."
            )
        self.step_s = time_step_s * substeps
        self.substeps = substeps
        self.gui, self.draws = gui, draws
        self.hardware_pictures = gui
        self.client = connect(pybullet.GUI if gui else pybullet.DIRECT)
        if self.client < 0:
            raise RuntimeError("PyBullet could not connect. Close environments no longer in use.")
        self._saved_state = -1
        self.substep = self.bind(pybullet.stepSimulation)
        self.calls = 1 if hold_torques else substeps
        one = self.calls == 1
        self.step = self.substep if one else partial(_repeat, self.substep, self.calls)
        self.bind(pybullet.setAdditionalSearchPath)(pybullet_data.getDataPath())
        self.gravity_m_s2 = physics.gravity_m_s2
        self.set_gravity(self.gravity_m_s2)
        erp = physics.contact_erp
        engine: dict[str, Any] = {} if erp is None else {"contactERP": erp}
        if not physics.cone_friction:
            engine["enableConeFriction"] = 0
        self.bind(pybullet.setPhysicsEngineParameter)(
            fixedTimeStep=self.step_s if hold_torques else time_step_s,
            numSubSteps=substeps if hold_torques else 0,
            numSolverIterations=physics.solver_iterations,
            deterministicOverlappingPairs=1,
            **engine,
        )
        if renderer == "egl" and not gui:
            try:
                load_egl(self)
            except RendererError:
                self.close()
                raise

    def bind(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of ``pybullet`` that acts on this world."""
        return partial(function, physicsClientId=self.client)

    def set_gravity(self, gravity_m_s2: float) -> None:
        """Set the downward gravity."""
        self.bind(pybullet.setGravity)(0, 0, -gravity_m_s2)

    def save(self) -> None:
        """Keep the present state as the nominal one, in place of an earlier one."""
        if self._saved_state >= 0:
            self.bind(pybullet.removeState)(self._saved_state)
        self._saved_state = self.bind(pybullet.saveState)()

    def restore(self) -> None:
        """Go back to the nominal state, whatever happened since; masses are not part of it."""
        self.bind(pybullet.restoreState)(self._saved_state)

    def forget_contacts(self) -> None:
        """Forget which bodies touched each other; to be called where they are far apart."""
        self.bind(pybullet.performCollisionDetection)()

    def aim_window(self, camera: Camera) -> None:
        """Point the window at the camera's target and hide PyBullet's panels."""
        self.bind(pybullet.configureDebugVisualizer)(pybullet.COV_ENABLE_GUI, 0)
        self.bind(pybullet.resetDebugVisualizerCamera)(
            camera.distance_m, camera.yaw_deg, camera.pitch_deg, camera.target
        )

    def close(self) -> None:
        """Disconnect; calling it again does nothing."""
        client, self.client = self.client, -1
        if client >= 0 and pybullet.isConnected(client):
            pybullet.disconnect(client)

    def __del__(self) -> None:
        """Disconnect a world that was dropped without ``close``."""
        if getattr(self, "client", -1) >= 0:
            self.close()


_PLUGIN = "_eglRendererPlugin"
_TRIAL = """
import sys, pybullet
pybullet.connect(pybullet.DIRECT)
loaded = pybullet.loadPlugin(sys.argv[1], sys.argv[2])
pybullet.getCameraImage(8, 8, renderer=pybullet.ER_BULLET_HARDWARE_OPENGL)
print("LOADED", loaded)
"""


@cache
def egl_problem() -> str | None:
    """Return why EGL cannot be used on this machine, None if it can.

    Without a device the plugin ends the whole process, so a separate process tries it first.
    """
    if (library := _library()) is None:
        return "this build of PyBullet has no plugin eglRenderer"
    command = [sys.executable, "-c", _TRIAL, library, _PLUGIN]
    try:
        trial = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "rendering with EGL did not end within a minute"
    loaded = trial.stdout.partition("LOADED ")[2].split()
    if trial.returncode or not loaded or int(loaded[0]) < 0:
        return "EGL found no device to render with"
    return None


def load_egl(client: Client) -> None:
    """Let a world render its images with EGL; raise a RendererError if this machine cannot."""
    problem = egl_problem()
    if problem is not None:
        raise RendererError(
            f"renderer='egl' cannot be used: {problem}. Use renderer='tiny', or install a driver "
            "with EGL, for example the package libegl1."
        )
    client.bind(pybullet.loadPlugin)(_library(), _PLUGIN)
    client.hardware_pictures = True


def _library() -> str | None:
    found = find_spec("eglRenderer")
    return None if found is None else found.origin
