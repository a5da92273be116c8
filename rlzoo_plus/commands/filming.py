"""Pictures of a policy at work, one after the other, as a film needs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.error import DependencyNotInstalled

from rlzoo_plus.config.errors import ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.agents.policy import Policy
    from rlzoo_plus.config.schema import EnvConfig

_LONGEST_FPS = 30.0
_DEFAULT_FPS = 30.0


class Camera:
    """Films a policy in one environment, at the speed at which the robot moves."""

    def __init__(self, spec: EnvConfig) -> None:
        """Make the environment.

        Raises:
            ConfigError: It cannot make pictures.
        """
        from rlzoo_plus.envs.factory import make_eval_env

        try:
            self.venv = make_eval_env(spec, 1, render_mode="rgb_array")
        except (ConfigError, AssertionError, NotImplementedError) as error:
            raise ConfigError(f"{spec.id} makes no pictures: {error}") from error
        steps_per_second = float(self._metadata().get("render_fps") or _DEFAULT_FPS)
        # Every k-th step is shown, so that a film stays small and runs in real time.
        self.stride = max(1, round(steps_per_second / _LONGEST_FPS + 0.3))
        self.fps = steps_per_second / self.stride

    def frames(
        self, policy: Policy, seeds: list[int], seconds: float, *, deterministic: bool = True
    ) -> Iterator[tuple[np.ndarray, float]]:
        """Play episodes until the film is long enough.

        Args:
            policy: Acts on raw observations.
            seeds: Of the episodes, in order.
            seconds: Length of the film [s].
            deterministic: Act without exploration.

        Yields:
            A picture, uint8 of shape (height, width, 3), and the return of its episode so far.
        """
        from rlzoo_plus.evaluation import play

        self.venv.env_method("set_episode_seeds", seeds)
        left, episode_return = max(1, round(seconds * self.fps)), 0.0
        steps = play(policy, self.venv, deterministic=deterministic)
        for step, (rewards, dones, _) in enumerate(steps):
            episode_return = 0.0 if dones[0] else episode_return + float(rewards[0])
            if step % self.stride == 0:
                yield self._picture(), episode_return
                left -= 1
            if not left:
                return

    def close(self) -> None:
        """Close the environment."""
        self.venv.close()

    def _metadata(self) -> dict[str, Any]:
        return dict(self.venv.get_attr("metadata")[0] or {})

    def _picture(self) -> np.ndarray:
        try:
            picture = self.venv.get_images()[0]
        except DependencyNotInstalled as error:
            raise ConfigError(
                "pictures of this environment need a package that is not installed. "
                f"For Gymnasium's classic control: pip install 'rlzoo-plus[classic]' ({error})."
            ) from error
        if picture is None:
            raise ConfigError("the environment returned no picture.")
        return np.asarray(picture)[..., :3].astype(np.uint8)
