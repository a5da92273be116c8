"""`RecordedActions`: lets an off-policy algorithm of Stable-Baselines3 act from a recording.

Experience is collected with the effects of `OffPolicyAlgorithm.collect_rollouts`, in their order.
What the policy computes for an action is recorded; exploration, noise and the replay buffer are the
algorithm's own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from stable_baselines3.common.type_aliases import RolloutReturn, TrainFrequencyUnit
from stable_baselines3.common.utils import should_collect_more_steps
from torch import Tensor

from rlzoo_plus.fast.recorded.bit_comparison import learned_tensors
from rlzoo_plus.fast.recorded.change_detector import ChangeDetector
from rlzoo_plus.fast.recorded.known_code import (
    Recorder,
    owner_of,
)
from rlzoo_plus.fast.recorded.parts import Parts
from rlzoo_plus.fast.recorded.rollouts import RecordedFunction, clipped
from rlzoo_plus.fast.recorded.tape import NotRecordableError

log = logging.getLogger(__name__)
Observations = np.ndarray | dict[str, np.ndarray]
_COLLECTING = "stable_baselines3.common.off_policy_algorithm.OffPolicyAlgorithm"
# Who predicts as the policy does, and who first draws whether to explore.
_PLAIN = "stable_baselines3.common.base_class.BaseAlgorithm"
_GREEDY = ("stable_baselines3.dqn.dqn.DQN", "sb3_contrib.qrdqn.qrdqn.QRDQN")
_KNOWN = {
    "collect_rollouts": (_COLLECTING,),
    "_sample_action": (_COLLECTING,),
    "predict": (_PLAIN, *_GREEDY),
}


class RecordedActions(Recorder):
    """Chooses the actions of an agent from a recording wherever that gives the same bits."""

    work = "actions"

    def __init__(self) -> None:
        super().__init__()
        self._choosing: _Choosing | None = None
        self._is_greedy = False

    def collect(self, agent: Any, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Collect experience.

        Args:
            agent: The agent.
            plain: The algorithm's own `collect_rollouts`.
            *args: For it.
            **kwargs: For it.
        """
        if not self.reason and not self._is_current(agent):
            self._look_at(agent)
        if self.reason:
            return plain(*args, **kwargs)
        return self._collect(agent, *args, **kwargs)

    def _is_current(self, agent: Any) -> bool:
        return self.detector is not None and self.detector.fits_if_due(agent)

    def _look_at(self, agent: Any) -> None:
        """Find out whether an agent may act from a recording, which is made when it first acts."""
        self.forget()
        self._choosing = None
        if reason := self.why_not(agent):
            self.refuse(reason, logging.INFO)
            return
        self.detector = ChangeDetector(agent)
        self._is_greedy = owner_of(type(agent), "predict") in _GREEDY

    def _collect(
        self,
        agent: Any,
        env: Any,
        callback: Any,
        train_freq: Any,
        replay_buffer: Any,
        action_noise: Any = None,
        learning_starts: int = 0,
        log_interval: int | None = None,
    ) -> RolloutReturn:
        """Do what `OffPolicyAlgorithm.collect_rollouts` does, with the names that it has."""
        assert self.detector is not None
        self.detector.set_training(False)
        n_envs, n_steps, n_episodes = env.num_envs, 0, 0
        assert train_freq.frequency > 0, "Should at least collect one step or episode."
        assert n_envs == 1 or train_freq.unit == TrainFrequencyUnit.STEP, (
            "You must use only one env when doing episodic training."
        )
        if agent.use_sde:
            agent.actor.reset_noise(n_envs)
        callback.on_rollout_start()
        # What callbacks see, as far as it stays the same.
        seen = {"self": agent, "env": env, "callback": callback, "train_freq": train_freq}
        seen |= {"replay_buffer": replay_buffer, "action_noise": action_noise}
        seen |= {"learning_starts": learning_starts, "log_interval": log_interval}
        while should_collect_more_steps(train_freq, n_steps, n_episodes):
            if agent.use_sde and agent.sde_sample_freq > 0 and n_steps % agent.sde_sample_freq == 0:
                agent.actor.reset_noise(n_envs)
            actions, buffer_actions = self._sample_action(
                agent, learning_starts, action_noise, n_envs
            )
            new_obs, rewards, dones, infos = env.step(actions)
            agent.num_timesteps += n_envs
            n_steps += 1
            seen |= {"num_collected_steps": n_steps, "num_collected_episodes": n_episodes}
            seen |= {"actions": actions, "buffer_actions": buffer_actions, "new_obs": new_obs}
            seen |= {"rewards": rewards, "dones": dones, "infos": infos, "continue_training": True}
            callback.update_locals(seen)
            if not callback.on_step():
                return RolloutReturn(n_steps * n_envs, n_episodes, continue_training=False)
            agent._update_info_buffer(infos, dones)
            agent._store_transition(replay_buffer, buffer_actions, new_obs, rewards, dones, infos)
            agent._update_current_progress_remaining(agent.num_timesteps, agent._total_timesteps)
            agent._on_step()
            for index in np.flatnonzero(dones).tolist():
                n_episodes += 1
                agent._episode_num += 1
                if action_noise is not None:
                    action_noise.reset(**({"indices": [index]} if n_envs > 1 else {}))
                if log_interval is not None and agent._episode_num % log_interval == 0:
                    agent.dump_logs()
        callback.on_rollout_end()
        return RolloutReturn(n_steps * n_envs, n_episodes, continue_training=True)

    def _sample_action(
        self, agent: Any, learning_starts: int, action_noise: Any, n_envs: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the actions of the environments and those of the replay buffer."""
        if not self.reason and not self._is_current(agent):
            self._look_at(agent)
        if self.reason:
            found: tuple[np.ndarray, np.ndarray]
            found = agent._sample_action(learning_starts, action_noise, n_envs)
            return found
        space, policy = agent.action_space, agent.policy
        is_warmup = agent.num_timesteps < learning_starts
        if is_warmup and not (agent.use_sde and agent.use_sde_at_warmup):
            actions, is_scaled = np.array([space.sample() for _ in range(n_envs)]), False
        else:
            actions, is_scaled = self._predict(agent)
        if not isinstance(space, spaces.Box):
            return actions, actions
        scaled = actions if is_scaled else policy.scale_action(actions)
        if action_noise is not None:
            scaled = np.minimum(np.maximum(scaled + action_noise(), -1), 1)
        return policy.unscale_action(scaled), scaled

    def _predict(self, agent: Any) -> tuple[np.ndarray, bool]:
        """Do what the algorithm's `predict` does for the last observations.

        Returns:
            The actions, and whether `scale_action` has been applied to them as well.
        """
        observations = agent._last_obs
        choosing = self._current(agent, observations)
        if choosing is None:
            return agent.predict(observations, deterministic=False)[0], False
        if self._is_greedy and np.random.rand() < agent.exploration_rate:
            drawn = [agent.action_space.sample() for _ in range(agent.env.num_envs)]
            return np.array(drawn), False
        if agent.policy.training:
            agent.policy.set_training_mode(False)
        with torch.no_grad():
            actions = choosing.choose(observations).numpy()
        if choosing.scales:
            return actions, True
        return clipped(agent, actions.reshape((-1, *agent.action_space.shape))), False

    def _current(self, agent: Any, observations: Observations) -> _Choosing | None:
        """Return the recording, if there can be one."""
        if not self.reason and self._choosing is None:
            self._record(agent, observations)
        return self._choosing

    def _record(self, agent: Any, observations: Observations) -> None:
        agent.policy.set_training_mode(False)
        try:
            self._choosing = _Choosing(agent, observations, self.refuse)
        except NotRecordableError as error:
            self.refuse(str(error))
        # Whatever a network of another version of torch can raise: the policy acts itself.
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            log.debug("why actions are not recorded:", exc_info=True)
            self.refuse(f"{type(error).__name__}: {error}")

    def refuse(self, reason: str, level: int = logging.WARNING) -> None:
        """Record nothing any more."""
        super().refuse(reason, level)
        self._choosing = None

    def why_not(self, agent: Any) -> str:
        """Return why the actions of a training cannot be recorded, empty if they may be."""
        for method, known in _KNOWN.items():
            owner = owner_of(type(agent), method)
            if owner not in known:
                return f"{owner.rpartition('.')[2]}.{method} is not one of those that can be"
        space = agent.observation_space
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else [space]:
            if not isinstance(part, spaces.Box) or len(part.shape) != 1:
                kind = type(part).__name__
                return f"observations are of {kind} {part.shape}, not a row of numbers"
        return super().why_not(agent)


class _Choosing:
    """The actions of one policy from a recording; the first ones are compared.

    Attributes:
        scales: Whether the recording ends with what `unscale_action` and `scale_action` do.
    """

    def __init__(
        self, agent: Any, observations: Observations, give_up: Callable[[str], None]
    ) -> None:
        self._policy = agent.policy
        self._parts = Parts(agent.observation_space)
        distribution = getattr(getattr(agent.policy, "actor", None), "action_dist", None)
        has_noise = isinstance(distribution, StateDependentNoiseDistribution)
        self._noisy: Any = distribution if has_noise else None
        example = self._given(observations)
        readable = list(learned_tensors(agent).values())
        space = agent.action_space
        self.scales = isinstance(space, spaces.Box) and agent.policy.squash_output
        if not self.scales:
            self._function = RecordedFunction(self._predict, example, readable, give_up)
            return
        self._limits = torch.from_numpy(space.low), torch.from_numpy(space.high)
        readable += self._limits
        self._function = RecordedFunction(
            self._predict_scaled, example, readable, give_up, expected=self._scaled_by_policy
        )

    def choose(self, observations: Observations) -> Tensor:
        """Return actions, as the policy's network gives them, or scaled ones."""
        return self._function(*self._given(observations))[0]

    def _given(self, observations: Observations) -> tuple[Tensor, ...]:
        """Return what is new at each step: observations, all parts of them, and gSDE's noise."""
        noise = (matrix.detach() for matrix in self._matrices())
        return *map(_tensor, self._parts.split(observations)), *noise

    def _predict(self, *given: Tensor) -> Sequence[Tensor]:
        observations, noise = self._parts.join(given)
        before = self._matrices()
        self._set(noise)
        actions = self._policy._predict(observations, deterministic=False)
        self._set(before)
        return [actions]

    def _predict_scaled(self, *given: Tensor) -> Sequence[Tensor]:
        """Return actions from -1 to 1, rounded as those that were unscaled meanwhile."""
        low, high = self._limits
        (actions,) = self._predict(*given)
        actions = low + 0.5 * (actions.reshape((-1, *low.shape)) + 1.0) * (high - low)
        return [2.0 * ((actions - low) / (high - low)) - 1.0]

    def _scaled_by_policy(self, *given: Tensor) -> Sequence[Tensor]:
        """Return the same by NumPy, as Stable-Baselines3 computes it."""
        (predicted,) = self._predict(*given)
        actions = predicted.numpy().reshape((-1, *self._limits[0].shape))
        policy = self._policy
        return [torch.from_numpy(policy.scale_action(policy.unscale_action(actions)))]

    def _matrices(self) -> Sequence[Tensor]:
        noisy = self._noisy
        return () if noisy is None else (noisy.exploration_mat, noisy.exploration_matrices)

    def _set(self, noise: Sequence[Tensor]) -> None:
        if noise:
            self._noisy.exploration_mat, self._noisy.exploration_matrices = noise


def _tensor(observation: np.ndarray) -> Tensor:
    # The policy's own `predict` takes a copy, so any order in memory will do.
    return torch.from_numpy(np.ascontiguousarray(observation))
