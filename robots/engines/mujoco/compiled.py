"""The model of a MuJoCo world: compiled when it is needed, and its state.

It is compiled again when something was added. Between two calls the data always holds what follows
from the present positions and velocities: a physics step is MuJoCo's second half, then its first.
"""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robots.engines.compiling import SWITCH, PluginError, say
from robots.engines.mujoco.bodies import Bodies
from robots.engines.mujoco.motors import Motors, MotorSet
from robots.engines.mujoco.native import NativeWorld
from robots.engines.mujoco.pictures import Pictures
from robots.engines.mujoco.records import BodyRecord, Pair
from robots.simulation import Physics, Simulation

Floats = NDArray[np.float64]
_SPIN, _ROLL = 0.005, 0.0001
_STIFFEST_STEPS = 2.0
"""Time constant of contacts in physics steps; MuJoCo takes no less."""
_CONTACT_IMPEDANCE = (0.9, 0.95, 0.001, 0.5, 2.0)
_SLIP = 10.0
"""How much harder friction holds than contacts press; 1 lets feet creep."""


class CompiledWorld(Simulation):
    """A world that is built body by body, and compiled.

    Attributes:
        bodies: What it is made of.
        pictures: What takes pictures of it.
        native: What the library knows of it; None without the library.
    """

    def __init__(
        self,
        physics: Physics | None = None,
        *,
        hold_torques: bool = False,
        gui: bool = False,
        draws: bool = True,
        renderer: str = "tiny",
    ) -> None:
        """Set up an empty world; see ``robots.engines.make_simulation``.

        Raises:
            ValueError: If the time step or the substeps are not positive.
            DisplayError: If a window is requested without a display.
        """
        del hold_torques, renderer  # Torques act until they are set again; there is one renderer.
        physics = physics or Physics()
        if physics.time_step_s <= 0 or physics.substeps < 1:
            raise ValueError(
                f"time_step_s={physics.time_step_s} and substeps={physics.substeps} must be "
                "positive. Set for example time_step_s=0.005 and substeps=4."
            )
        time_step_s = physics.time_step_s
        if physics.single_precision_time:
            time_step_s = float(np.float32(time_step_s))
        self.substeps, self.step_s = physics.substeps, time_step_s * physics.substeps
        self.gravity_m_s2, self.gui, self.draws = physics.gravity_m_s2, gui, draws
        spec = mujoco.MjSpec()
        option = spec.option
        option.timestep = time_step_s
        option.gravity = (0.0, 0.0, -physics.gravity_m_s2)
        option.integrator = mujoco.mjtIntegrator.mjINT_EULER
        option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
        option.impratio = _SLIP
        # A state that is not a number must show, and not become the start of an episode.
        option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
        spec.compiler.balanceinertia = True
        spec.compiler.degree = False
        self._model: Any = None
        self.bodies = Bodies(spec, draws)
        self.pictures = Pictures(spec, draws, gui)
        self._sets: list[MotorSet] = []
        self._couplings = 0
        self._pairs: list[Pair] = []
        self._waiting: list[Callable[[], None]] = []
        self._is_current = self._is_compiled = self._masses_changed = False
        # What was set of links, since a model that is compiled anew has what the files state.
        self._friction: dict[tuple[int, int], float] = {}
        self._masses: dict[tuple[int, int], tuple[float, Sequence[float]]] = {}
        self._damping: dict[tuple[int, int], float] = {}
        self._armature: dict[tuple[int, int], float] = {}
        self._saved: Floats | None = None
        self.native: NativeWorld | None = None

    # The model and its data ---------------------------------------------------------------------

    @property
    def model(self) -> mujoco.MjModel:
        """The compiled model."""
        if not self._is_compiled:
            self._compile()
        return self._model

    @property
    def data(self) -> mujoco.MjData:
        """Its data, with what follows from the present positions and velocities."""
        if not self._is_compiled:
            self._compile()
        if not self._is_current:
            if self._masses_changed:
                self._masses_changed = False
                mujoco.mj_setConst(self._model, self._scratch)
            mujoco.mj_step1(self._model, self._data)
            self._is_current = True
        return self._data

    @property
    def motors(self) -> Motors:
        """Its motors."""
        return self._motors

    def bring_up_to_date(self) -> None:
        """Compute what follows from positions and velocities, if they were set."""
        if not self._is_current:
            assert self.data is not None

    def element_of(self, body: int, link: int) -> int:
        """Return the number that a link has as a body of the model."""
        assert self.model is not None
        return self._body_ids[body, link]

    def places_of_joints(self, body: int, joints: Sequence[int]) -> tuple[Any, Any, list[int]]:
        """Return where the data has positions and velocities of n joints, and their motors."""
        model, ids = self.model, self._joints(body, joints)
        dofs = model.jnt_dofadr[ids]
        return model.jnt_qposadr[ids], dofs, [self._motors.columns.get(int(x), -1) for x in dofs]

    def geom_owners(self, body: int, links: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return of every geom the body that it is of, and the column of its link among n, or -1.

        A geom that touches nothing is of body -1.
        """
        columns = {(body, link): column for column, link in enumerate(links)}
        places = [self._link_of_geom.get(geom, (-1, -1)) for geom in range(self.model.ngeom)]
        return [owner for owner, _ in places], [columns.get(place, -1) for place in places]

    def _compile(self) -> None:
        self._pairs = self.bodies.collide()
        stiff = (_STIFFEST_STEPS * self.bodies.spec.option.timestep, 1.0)
        for pair in self.bodies.spec.pairs:
            pair.condim, pair.solref, pair.solimp = 3, stiff, _CONTACT_IMPEDANCE
        before = self._named_state()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of textures that it does not show.
            self._model = self.bodies.spec.compile()
        self._data = mujoco.MjData(self._model)
        self._load_named_state(before)
        self._scratch = mujoco.MjData(self._model)
        self._motors = Motors(self._sets, self._model)
        try:
            self.native = NativeWorld(self._model, self._data, self._motors, self.substeps)
        except PluginError as error:
            self.native = None
            if os.environ.get(SWITCH, "1") != "0":
                say(str(error))
        self._joint_ids: dict[tuple[int, int], int] = {}
        self._body_ids: dict[tuple[int, int], int] = {}
        for record in self.bodies.records:
            for index, link in enumerate(record.links, start=-1):
                place = record.number, index
                self._friction.setdefault(place, link.friction)
                self._body_ids[place] = self._model.body(link.element).id
                if link.joint is not None:
                    self._joint_ids[place] = self._model.joint(link.joint_element).id
        self._link_of_geom = {
            self._model.geom(name).id: (record.number, index)
            for record in self.bodies.records
            for index, link in enumerate(record.links, start=-1)
            for name in link.touched
        }
        self._pair_ids = [self._model.pair(pair.element).id for pair in self._pairs]
        self._model.pair_friction[:, 2], self._model.pair_friction[:, 3:] = _SPIN, _ROLL
        self._is_compiled, self._is_current, self._masses_changed = True, False, False
        self._set_frictions(None)
        self._set_masses(self._masses)
        for known, numbers in (
            (self._damping, self._model.dof_damping),
            (self._armature, self._model.dof_armature),
        ):
            for place, value in known.items():
                numbers[self._model.jnt_dofadr[self._joint_ids[place]]] = value
                self._masses_changed |= known is self._armature
        self._saved = None
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            change()
        self.pictures.show(self._model)

    def _set_frictions(self, of: tuple[int, int] | None) -> None:
        """Let contacts, all or those of a link, have the product of both links' coefficients."""
        for pair, number in zip(self._pairs, self._pair_ids, strict=True):
            if of in (None, pair.first, pair.second):
                product = self._friction[pair.first] * self._friction[pair.second]
                # MuJoCo divides by it.
                self._model.pair_friction[number, :2] = max(product, 1e-5)
        self._is_current = False

    def _set_masses(self, of: Mapping[tuple[int, int], tuple[float, Sequence[float]]]) -> None:
        """Set masses and moments of links that have them."""
        for (body, link), (mass_kg, inertia) in of.items():
            if self._record(body).link(link).has_mass:
                number = self._body_ids[body, link]
                self._model.body_mass[number] = mass_kg
                self._model.body_inertia[number] = inertia
                self._masses_changed, self._is_current = True, False

    def _named_state(self) -> dict[str, tuple[Floats, Floats]]:
        """Return where joints are, and bodies that are placed by hand, by name."""
        if self._model is None:
            return {}
        model, data = self._model, self._data
        joints = [model.joint(number).name for number in range(model.njnt)]
        state = {n: (data.joint(n).qpos.copy(), data.joint(n).qvel.copy()) for n in joints}
        for body in np.flatnonzero(model.body_mocapid >= 0).tolist():
            name, mocap = model.body(body).name, model.body_mocapid[body]
            state[name] = data.mocap_pos[mocap].copy(), data.mocap_quat[mocap].copy()
        return state

    def _load_named_state(self, state: dict[str, tuple[Floats, Floats]]) -> None:
        model, data = self._model, self._data
        for number in range(model.njnt):
            name = model.joint(number).name
            if name in state:
                data.joint(name).qpos[:], data.joint(name).qvel[:] = state[name]
        for body in np.flatnonzero(model.body_mocapid >= 0).tolist():
            mocap = model.body_mocapid[body]
            if (place := state.get(model.body(body).name)) is not None:
                data.mocap_pos[mocap], data.mocap_quat[mocap] = place

    def _add(self, number: int) -> int:
        self._is_compiled = self._is_current = False
        return number

    def _when_compiled(self, change: Callable[[], None]) -> None:
        """Change the state now, or as soon as there is one."""
        if self._is_compiled:
            change()
            self._is_current = False
        else:
            self._waiting.append(change)

    def _joints(self, body: int, joints: Sequence[int]) -> NDArray[np.int64]:
        assert self.model is not None
        return np.array([self._joint_ids[body, joint] for joint in joints], np.int64)

    def _joint_names(self, body: int, joints: Sequence[int]) -> list[str]:
        return [self._record(body).link(joint).joint_element for joint in joints]

    def _record(self, body: int) -> BodyRecord:
        return self.bodies.records[body]

    def _parts(self) -> tuple[Floats, ...]:
        """Return the arrays that make up the state; markers, which touch nothing, are no part."""
        data, motors = self._data, self._motors
        placed = [
            array[self._model.body_mocapid[self._body_ids[record.number, -1]]]
            for record in self.bodies.records
            if record.moves == "placed" and record.base.touched
            for array in (data.mocap_pos, data.mocap_quat)
        ]
        moving = (data.qpos, data.qvel, data.qacc_warmstart, data.qfrc_applied)
        return (*moving, motors.goal, motors.speed, motors.efforts, *placed)

    def _whole_state(self) -> Floats:
        return np.concatenate([*self._parts(), np.array([self._data.time])])

    def _load_whole_state(self, state: Floats) -> None:
        start = 0
        for part in self._parts():
            part[:] = state[start : start + len(part)]
            start += len(part)
        self._data.time = float(state[-1])
        self._is_current = False
