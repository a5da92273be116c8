"""`RecordsActions`: lets an off-policy algorithm of Stable-Baselines3 act from a recording.

Only what the policy computes in `predict` is recorded; exploration, noise and the replay buffer are
the algorithm's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from torch import Tensor

from rlzoo_plus.agents.recorded.rollouts import RecordedFunction, clipped
from rlzoo_plus.agents.recorded.tape import NotRecordableError
from rlzoo_plus.agents.recorded.unchanged import Unchanged
from rlzoo_plus.agents.recorded.updates import learned_tensors, own_code_in

log = logging.getLogger(__name__)
_SAMPLING = "stable_baselines3.common.off_policy_algorithm.OffPolicyAlgorithm"
# Who predicts as the policy does, and who first draws whether to explore.
_PLAIN = "stable_baselines3.common.base_class.BaseAlgorithm"
_GREEDY = ("stable_baselines3.dqn.dqn.DQN", "sb3_contrib.qrdqn.qrdqn.QRDQN")


class RecordsActions:
    """Mixin for an algorithm that chooses the actions of its training from a recording.

    Attributes:
        actions: What chooses them, None to leave that to the algorithm.
    """

    actions: RecordedActions | None = None
    _is_sampling = False

    def _sample_action(self, *args: Any, **kwargs: Any) -> Any:
        self._is_sampling = True
        try:
            return super()._sample_action(*args, **kwargs)  # type: ignore[misc]
        finally:
            self._is_sampling = False

    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
        """Return actions for observations, and no state; outside of training, the policy's own."""
        plain = super().predict  # type: ignore[misc]
        if self.actions is None or not self._is_sampling:
            return plain(observation, *args, **kwargs)
        return self.actions.predict(self, plain, observation, *args, **kwargs)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "actions", "_is_sampling"]  # type: ignore[misc]


class RecordedActions:
    """Chooses the actions of an agent from a recording wherever that gives the same bits.

    Attributes:
        reason: Why they are not recorded any more, empty as long as they are.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._choosing: _Choosing | None = None

    def predict(
        self, agent: Any, plain: Callable[..., Any], observation: Any, *args: Any, **kwargs: Any
    ) -> tuple[np.ndarray, None]:
        """Do what the algorithm's `predict` does, `plain`, with observations of training."""
        choosing = self._choosing
        if choosing is None or not choosing.is_current(agent):
            choosing = None if self.reason else self._renew(agent, observation)
        if choosing is None:
            return plain(observation, *args, **kwargs)
        if _owner_of(type(agent), "predict") in _GREEDY and (
            np.random.rand() < agent.exploration_rate
        ):
            return np.array([agent.action_space.sample() for _ in observation]), None
        if agent.policy.training:
            agent.policy.set_training_mode(False)
        with torch.no_grad():
            actions = choosing.choose(_tensor(observation))
        return clipped(agent, actions.numpy().reshape((-1, *agent.action_space.shape))), None

    def _renew(self, agent: Any, observation: Any) -> _Choosing | None:
        self.reason = why_not(agent)
        if self.reason:
            log.info("actions are not recorded: %s", self.reason)
            return None
        agent.policy.set_training_mode(False)
        try:
            self._choosing = _Choosing(agent, _tensor(observation), self._give_up)
        except NotRecordableError as error:
            self._give_up(str(error))
        # Whatever a network of another version of torch can raise: the policy acts itself.
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            log.debug("why actions are not recorded:", exc_info=True)
            self._give_up(f"{type(error).__name__}: {error}")
        return self._choosing

    def _give_up(self, reason: str) -> None:
        log.warning("actions are not recorded: %s", reason)
        self.reason, self._choosing = reason, None


class _Choosing:
    """The actions of one policy from a recording; the first ones are compared."""

    def __init__(self, agent: Any, observations: Tensor, give_up: Callable[[str], None]) -> None:
        self._policy, self._unchanged = agent.policy, Unchanged(agent.policy)
        distribution = getattr(getattr(agent.policy, "actor", None), "action_dist", None)
        has_noise = isinstance(distribution, StateDependentNoiseDistribution)
        self._noisy: Any = distribution if has_noise else None
        example = (observations, *(matrix.detach() for matrix in self._matrices()))
        readable = list(learned_tensors(agent).values())
        self._function = RecordedFunction(self._predict, example, readable, give_up)

    def is_current(self, agent: Any) -> bool:
        """Return whether an agent's policy is the one that was recorded, and as it was."""
        return agent.policy is self._policy and self._unchanged.holds()

    def choose(self, observations: Tensor) -> Tensor:
        """Return actions, as the policy's network gives them."""
        return self._function(observations, *(m.detach() for m in self._matrices()))[0]

    def _predict(self, observations: Tensor, *noise: Tensor) -> Sequence[Tensor]:
        before = self._matrices()
        self._set(noise)
        actions = self._policy._predict(observations, deterministic=False)
        self._set(before)
        return [actions]

    def _matrices(self) -> Sequence[Tensor]:
        noisy = self._noisy
        return () if noisy is None else (noisy.exploration_mat, noisy.exploration_matrices)

    def _set(self, noise: Sequence[Tensor]) -> None:
        if noise:
            self._noisy.exploration_mat, self._noisy.exploration_matrices = noise


def _tensor(observation: np.ndarray) -> Tensor:
    # The policy's own `predict` takes a copy, so any order in memory will do.
    return torch.from_numpy(np.ascontiguousarray(observation))


def why_not(agent: Any) -> str:
    """Return why the actions of an agent's training cannot be recorded, empty if they may be."""
    for method, known in (("_sample_action", (_SAMPLING,)), ("predict", (_PLAIN, *_GREEDY))):
        owner = _owner_of(type(agent), method)
        if owner not in known:
            return f"{owner.rpartition('.')[2]}.{method} is not one of those that can be"
    if agent.device.type != "cpu":
        return f"they are on the CPU only, and the device is {agent.device}"
    space = agent.observation_space
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        return f"observations are of {type(space).__name__} {space.shape}, not a row of numbers"
    return own_code_in(agent.policy)


def _owner_of(kind: type, method: str) -> str:
    """Return the class whose method an agent has, below our mixins."""
    below = kind.__mro__[kind.__mro__.index(RecordsActions) + 1 :]
    owner = next((c for c in below if method in vars(c)), kind)
    return f"{owner.__module__}.{owner.__qualname__}"
