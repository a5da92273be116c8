"""Vectorised environments of one's own: many points, moved in one NumPy call.

This is the place of a simulator that steps all its worlds at once, on a GPU or in compiled code.

Use, from this folder:

    rlzoo-plus train vec_env=point_mass_vec_env.PointMasses env=gym env.id=PointMass \
        n_envs=64 n_timesteps=200000 algo.hyperparams.n_steps=64 algo.hyperparams.batch_size=512

`env.id` need not be registered: it only names the run's directory. With `state_dict` and
`load_state_dict` a run is resumed exactly; without them its episodes begin anew.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from rlzoo_plus.config.schema import EnvConfig

_FASTEST = 0.1


class PointMasses(VecEnv):
    """Points in the plane are pushed to the origin; an episode ends there, or after a while."""

    def __init__(
        self, env: EnvConfig, n_envs: int, seed: int, render_mode: str | None = None
    ) -> None:
        """Make the points.

        Args:
            env: The configuration: `env.kwargs.radius`, where episodes end, and `env.time_limit`.
            n_envs: How many points.
            seed: Of the first episodes; `seed()` is called as well.
            render_mode: Without effect: there are no pictures.
        """
        self.render_mode = render_mode
        self.radius = float(env.kwargs.get("radius", 0.1))
        self.limit = env.time_limit or 100
        self.random = np.random.default_rng(seed)
        self.state = np.zeros((n_envs, 4), np.float64)
        self.steps = np.zeros(n_envs, np.int64)
        everything = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        super().__init__(n_envs, everything, spaces.Box(-1.0, 1.0, (2,), np.float32))

    def seed(self, seed: int | None = None) -> list[int | None]:
        """Decide by a number how the next episodes begin."""
        self.random = np.random.default_rng(seed)
        return [seed] * self.num_envs

    def reset(self) -> np.ndarray:
        """Begin an episode everywhere; return positions and velocities, shape (n_envs, 4)."""
        self._begin(np.ones(self.num_envs, bool))
        return self.state.astype(np.float32)

    def step_async(self, actions: np.ndarray) -> None:
        """Take accelerations, shape (n_envs, 2)."""
        self.actions = np.clip(actions, -1.0, 1.0)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Move all points, and begin the next episode where one ended."""
        position, velocity = self.state[:, :2], self.state[:, 2:]
        velocity[:] = np.clip(velocity + 0.02 * self.actions, -_FASTEST, _FASTEST)
        position += velocity
        self.steps += 1
        distance = np.linalg.norm(position, axis=1)
        reached, late = distance < self.radius, self.steps >= self.limit
        dones = reached | late
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for rank in np.flatnonzero(dones).tolist():
            infos[rank] = {
                # What the library learns from: the last observation, and why it is the last.
                "terminal_observation": self.state[rank].astype(np.float32),
                "TimeLimit.truncated": bool(late[rank] and not reached[rank]),
                "is_success": bool(reached[rank]),
            }
        self._begin(dones)
        return self.state.astype(np.float32), -distance.astype(np.float32), dones, infos

    def state_dict(self) -> dict[str, Any]:
        """Return everything that decides how it goes on: numbers, texts and arrays."""
        return {
            "random": self.random.bit_generator.state,
            "state": self.state,
            "steps": self.steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put it back."""
        self.random.bit_generator.state = state["random"]
        self.state[:], self.steps[:] = state["state"], state["steps"]

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute, the same for every point."""
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute, for every point."""
        setattr(self, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Call a method, once."""
        result = getattr(self, method_name)(*args, **kwargs)
        return [result] * len(list(self._get_indices(indices)))

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Tell that no point has a wrapper of its own."""
        return [False] * len(list(self._get_indices(indices)))

    def _begin(self, which: np.ndarray) -> None:
        self.state[which, :2] = self.random.uniform(-1.0, 1.0, (int(which.sum()), 2))
        self.state[which, 2:] = 0.0
        self.steps[which] = 0
