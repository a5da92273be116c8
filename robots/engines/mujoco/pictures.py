"""Pictures of a MuJoCo world, drawn by OpenGL."""

from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robots.camera import Camera, Colour
from robots.engines.mujoco.records import BOTH, SEEN, BodyRecord, LinkRecord
from robots.simulation import RendererError, require_display

_LIGHT = (1.5, -3.0, 6.0)


class Pictures:
    """Takes pictures of a world; the renderer is made with the first one."""

    def __init__(self, spec: mujoco.MjSpec, draws: bool, gui: bool) -> None:
        """Add light and sky to a specification; raise a DisplayError without one for a window."""
        if gui:
            require_display()
        self._model: Any = None
        self._renderer: Any = None
        self._window: Any = None
        self._colours: dict[str, Colour] = {}
        if not draws:
            return
        spec.add_texture(
            name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX, width=4, height=24,
            builtin=mujoco.mjtBuiltin.mjBUILTIN_FLAT, rgb1=(1, 1, 1), rgb2=(1, 1, 1),
        )  # fmt: skip
        x, y, z = _LIGHT
        spec.worldbody.add_light(
            name="sun", type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=_LIGHT, dir=(-x, -y, -z),
            diffuse=(0.5, 0.5, 0.5), specular=(0.05, 0.05, 0.05), ambient=(0.0, 0.0, 0.0),
        )  # fmt: skip
        head = spec.visual.headlight
        head.ambient, head.diffuse, head.specular = (0.55,) * 3, (0.1,) * 3, (0.0,) * 3
        # Shadows as far as a robot goes, since beyond the map of them they are specks.
        spec.visual.quality.shadowsize, spec.visual.map.shadowclip = 2048, 4.0
        # Without a GPU, smooth edges and a finer map take two thirds of the time of a picture.
        spec.visual.quality.offsamples = 0
        spec.stat.extent = 2.0

    def paint(self, link: LinkRecord, colour: Colour) -> None:
        """Colour a link."""
        for name in link.seen or link.touched:
            self._colours[name] = colour
        if self._model is not None:
            self._colour()

    def show(self, model: mujoco.MjModel) -> None:
        """Start anew with a model that was compiled."""
        self.close()
        self._model = model
        self._colour()

    def take(self, data: mujoco.MjData, camera: Camera, *, shadows: bool) -> NDArray[np.uint8]:
        """Return a picture, RGB, shape (height, width, 3)."""
        renderer = self._look(data, camera)
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = shadows
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        picture: NDArray[np.uint8] = renderer.render()
        return picture

    def pixels_of(self, data: mujoco.MjData, camera: Camera, body: BodyRecord) -> NDArray[np.uint8]:
        """Return the pixels of one body, shape (n, 3)."""
        picture = self.take(data, camera, shadows=False)
        model, renderer = self._model, self._look(data, camera)
        names = [name for link in body.links for name in (*link.seen, *link.touched)]
        renderer.enable_segmentation_rendering()
        try:
            seen = renderer.render()
        finally:
            renderer.disable_segmentation_rendering()
        is_geom = seen[:, :, 1] == int(mujoco.mjtObj.mjOBJ_GEOM)
        own = is_geom & np.isin(seen[:, :, 0], [model.geom(name).id for name in names])
        pixels: NDArray[np.uint8] = picture[own]
        return pixels

    def aim_window(self, data: mujoco.MjData, camera: Camera) -> None:
        """Open the window, or show the present state in it."""
        from mujoco import viewer

        if self._window is None:
            self._window = viewer.launch_passive(
                self._model, data, show_left_ui=False, show_right_ui=False
            )
            self._aim(self._window.cam, camera)
        self._window.sync()

    def close(self) -> None:
        """Free the renderer and the window."""
        for made in (self._renderer, self._window):
            if made is not None:
                made.close()
        self._renderer = self._window = None

    def _look(self, data: mujoco.MjData, camera: Camera) -> Any:
        model = self._model
        size = (camera.height, camera.width)
        if self._renderer is not None and (self._renderer.height, self._renderer.width) != size:
            self.close()
        model.vis.global_.fovy = camera.fov_deg
        if self._renderer is None:
            # Each renderer has buffers of this size.
            model.vis.global_.offheight, model.vis.global_.offwidth = size
            try:
                self._renderer = mujoco.Renderer(model, *size)
            except Exception as error:
                raise RendererError(
                    f"MuJoCo cannot draw here ({error}). Install a driver with EGL, for example "
                    "the package libegl1, or set MUJOCO_GL=osmesa with the package libosmesa6."
                ) from error
        place, option = mujoco.MjvCamera(), mujoco.MjvOption()
        option.geomgroup[:] = 0
        option.geomgroup[[SEEN, BOTH]] = 1
        self._aim(place, camera)
        self._renderer.update_scene(data, camera=place, scene_option=option)
        return self._renderer

    def _aim(self, place: Any, camera: Camera) -> None:
        place.type = mujoco.mjtCamera.mjCAMERA_FREE
        place.lookat[:] = camera.target
        place.distance = camera.distance_m
        place.azimuth, place.elevation = camera.yaw_deg + 90.0, camera.pitch_deg

    def _colour(self) -> None:
        model = self._model
        for name, colour in self._colours.items():
            model.geom_rgba[model.geom(name).id] = colour
