"""Which MuJoCo environments of Gymnasium can be stepped in one pass, and what they compute."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.envs.mujoco import ant_v5, half_cheetah_v5, hopper_v5, humanoid_v5, walker2d_v5
from gymnasium.wrappers import TimeLimit

from rlzoo_plus.fast.worlds.mujoco_batch import MujocoBatch, Outcome
from rlzoo_plus.fast.worlds.world_batch import layer_of, steps_alike

log = logging.getLogger(__name__)
_WEIGHTS = ("_forward_reward_weight", "_ctrl_cost_weight")
_HEALTH = ("_healthy_reward", "_terminate_when_unhealthy", "_healthy_z_range")
_same: dict[type, bool] = {}


class HalfCheetahs(MujocoBatch):
    """Cheetahs, which run forward and never end."""

    settings: ClassVar[tuple[str, ...]] = (*_WEIGHTS, "_exclude_current_positions_from_observation")
    forward_reward_weight: np.ndarray
    exclude_current_positions_from_observation: np.ndarray

    def _look(self, actions: np.ndarray, velocity: np.ndarray) -> Outcome:
        forward = self.forward_reward_weight * velocity
        cost = self._control_cost(actions)
        infos: dict[str, Iterable[Any]] = {"x_position": self._place(), "x_velocity": velocity}
        infos |= {"reward_forward": forward, "reward_ctrl": -cost}
        never = np.zeros(len(actions), np.bool_)
        return Outcome(self._seen(), forward - cost, never, infos)

    def _seen(self) -> np.ndarray:
        skip = int(self.exclude_current_positions_from_observation[0])
        return np.concatenate((self._all("qpos", skip), self._velocities()), axis=1)

    def _velocities(self) -> np.ndarray:
        return self._all("qvel")


class Walker2ds(HalfCheetahs):
    """Two legs in a plane, which end when they fall."""

    settings = (*HalfCheetahs.settings, *_HEALTH, "_healthy_angle_range")
    healthy_reward: np.ndarray
    terminate_when_unhealthy: np.ndarray
    healthy_z_range: np.ndarray
    healthy_angle_range: np.ndarray

    def _look(self, actions: np.ndarray, velocity: np.ndarray) -> Outcome:
        places, healthy = self._all("qpos"), self._healthy()
        forward, survive = self.forward_reward_weight * velocity, healthy * self.healthy_reward
        cost = self._control_cost(actions)
        start = [env.init_qpos[1] for env in self._envs]
        infos: dict[str, Iterable[Any]] = {"x_position": places[:, 0]}
        infos |= {"z_distance_from_origin": places[:, 1] - start, "x_velocity": velocity}
        infos |= {"reward_forward": forward, "reward_ctrl": -cost, "reward_survive": survive}
        ended = ~healthy & self.terminate_when_unhealthy
        return Outcome(self._seen(), forward + survive - cost, ended, infos)

    def _velocities(self) -> np.ndarray:
        clipped: np.ndarray = np.clip(self._all("qvel"), -10, 10)
        return clipped

    def _healthy(self) -> np.ndarray:
        places = self._all("qpos")
        healthy = _within(places[:, 1], self.healthy_z_range)
        healthy &= _within(places[:, 2], self.healthy_angle_range)
        return healthy


class Hoppers(Walker2ds):
    """One leg in a plane."""

    settings = (*Walker2ds.settings, "_healthy_state_range")
    healthy_state_range: np.ndarray

    def _look(self, actions: np.ndarray, velocity: np.ndarray) -> Outcome:
        found = super()._look(actions, velocity)
        # The original's is a number of Python.
        survive = np.asarray(found.infos["reward_survive"]).tolist()
        return found._replace(infos={**found.infos, "reward_survive": survive})

    def _healthy(self) -> np.ndarray:
        state = np.concatenate((self._all("qpos"), self._all("qvel")), axis=1)[:, 2:]
        healthy = super()._healthy()
        healthy &= _within(state, self.healthy_state_range).all(axis=1)
        return healthy


class _InSpace(MujocoBatch):
    """Robots that move in space, and feel contacts."""

    has_forces = True
    forward_reward_weight: np.ndarray
    contact_cost_weight: np.ndarray
    healthy_reward: np.ndarray
    terminate_when_unhealthy: np.ndarray
    healthy_z_range: np.ndarray
    exclude_current_positions_from_observation: np.ndarray

    def _rated(self, velocity: np.ndarray, ctrl: np.ndarray, contact: np.ndarray) -> Outcome:
        """Return what the worlds came to, without the info of one kind alone."""
        places, healthy = self._all("qpos"), self._healthy()
        forward = self.forward_reward_weight * velocity[:, 0]
        survive = healthy * self.healthy_reward
        apart = np.sqrt([place.dot(place) for place in places[:, :2]])
        infos: dict[str, Iterable[Any]] = {"x_position": places[:, 0], "y_position": places[:, 1]}
        infos |= {"distance_from_origin": apart}
        infos |= {"x_velocity": velocity[:, 0], "y_velocity": velocity[:, 1]}
        infos |= {"reward_forward": forward, "reward_ctrl": -ctrl, "reward_contact": -contact}
        infos |= {"reward_survive": survive}
        reward = forward + survive - (ctrl + contact)
        ended = ~healthy & self.terminate_when_unhealthy
        return Outcome(self._seen(), reward, ended, infos)

    def _seen(self) -> np.ndarray:
        raise NotImplementedError

    def _healthy(self) -> np.ndarray:
        return _within(self._all("qpos")[:, 2], self.healthy_z_range)

    def _positions(self) -> np.ndarray:
        return self._all("qpos", 2 * int(self.exclude_current_positions_from_observation[0]))


class Ants(_InSpace):
    """Four legs."""

    settings = (
        *(*HalfCheetahs.settings, *_HEALTH, "_contact_cost_weight", "_contact_force_range"),
        *("_main_body", "_include_cfrc_ext_in_observation"),
    )
    contact_force_range: np.ndarray
    main_body: np.ndarray
    include_cfrc_ext_in_observation: np.ndarray

    def _place(self) -> np.ndarray:
        bodies = zip(self._data, self._envs, strict=True)
        return np.array([data.body(env._main_body).xpos[:2] for data, env in bodies])

    def _look(self, actions: np.ndarray, velocity: np.ndarray) -> Outcome:
        sums = np.add.reduce(np.square(self._forces()), axis=1)
        contact = self.contact_cost_weight * sums
        return self._rated(velocity, self._control_cost(actions), contact)

    def _forces(self) -> np.ndarray:
        low, high = self.contact_force_range.T[:, :, None]
        forces: np.ndarray = np.clip(self._all("cfrc_ext"), low, high)
        return forces

    def _seen(self) -> np.ndarray:
        parts = [self._positions(), self._all("qvel")]
        if self.include_cfrc_ext_in_observation[0]:
            parts.append(self._forces()[:, 6:])
        return np.concatenate(parts, axis=1)

    def _healthy(self) -> np.ndarray:
        state = np.concatenate((self._all("qpos"), self._all("qvel")), axis=1)
        low, high = self.healthy_z_range.T
        healthy: np.ndarray = (low <= state[:, 2]) & (state[:, 2] <= high)
        healthy &= np.isfinite(state).all(axis=1)
        return healthy


class Humanoids(_InSpace):
    """Two legs and two arms."""

    # What an observation has besides positions and velocities, without the rows of the world.
    _parts: ClassVar = {"cinert": 1, "cvel": 1, "qfrc_actuator": 6, "cfrc_ext": 1}
    settings = (
        *(*HalfCheetahs.settings, *_HEALTH, "_contact_cost_weight", "_contact_cost_range"),
        *(f"_include_{part}_in_observation" for part in _parts),
    )
    contact_cost_range: np.ndarray

    def _place(self) -> np.ndarray:
        # Weighted sums, which NumPy adds up in another order if they are many.
        worlds = zip(self._envs, self._data, strict=True)
        center: Any = humanoid_v5.mass_center
        return np.array([center(env.model, data) for env, data in worlds])

    def _look(self, actions: np.ndarray, velocity: np.ndarray) -> Outcome:
        low, high = self.contact_cost_range.T
        sums = np.add.reduce(np.square(self._all("cfrc_ext")), axis=1)
        contact = np.clip(self.contact_cost_weight * sums, low, high)
        # Of what MuJoCo was given, in its own precision.
        found = self._rated(velocity, self._control_cost(self._all("ctrl")), contact)
        tendons = {
            f"tendon_{what}": [getattr(data, name).copy() for data in self._data]
            for what, name in (("length", "ten_length"), ("velocity", "ten_velocity"))
        }
        return found._replace(infos={**found.infos, **tendons})

    def _seen(self) -> np.ndarray:
        parts = [self._positions(), self._all("qvel")]
        for part, skip in self._parts.items():
            if getattr(self, f"include_{part}_in_observation")[0]:
                parts.append(self._all(part, skip))
        return np.concatenate(parts, axis=1)


_KNOWN: dict[type, type[MujocoBatch]] = {
    half_cheetah_v5.HalfCheetahEnv: HalfCheetahs,
    walker2d_v5.Walker2dEnv: Walker2ds,
    hopper_v5.HopperEnv: Hoppers,
    ant_v5.AntEnv: Ants,
    humanoid_v5.HumanoidEnv: Humanoids,
}


def batch_of(envs: Sequence[gym.Env]) -> MujocoBatch:
    """Return what steps environments of one kind, in which `why_not_known` finds nothing."""
    return _KNOWN[type(envs[0].unwrapped)](envs)


def enough_of_kind(kind: type) -> int:
    """Return how many environments of a kind are stepped faster together, if they can be."""
    return _KNOWN[kind].enough if kind in _KNOWN else 1


def why_not_known(env: gym.Env) -> str | None:
    """Return why an environment from `make_env` cannot be stepped with others; None if it can."""
    inner: Any = env.unwrapped
    kind = type(inner)
    if kind not in _KNOWN:
        return f"{kind.__name__} is none of those that can be stepped together"
    if layer_of(env, TimeLimit) is None:
        return "it has no time limit"
    if not all(type(getattr(inner, name)) in (float, int) for name in _WEIGHTS):
        return "its weights are no numbers of Python, which round in another way"
    if kind not in _same:
        _same[kind] = steps_alike(lambda: TimeLimit(kind(), 10), batch_of)
        if not _same[kind]:
            log.warning("%s comes to other numbers in one pass.", kind.__name__)
    return None if _same[kind] else "NumPy comes to other numbers than the original"


def _within(values: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Return where values are strictly between the lowest and the highest of their world."""
    low, high = ranges.T.reshape(2, -1, *[1] * (values.ndim - 1))
    inside: np.ndarray = (low < values) & (values < high)
    return inside
