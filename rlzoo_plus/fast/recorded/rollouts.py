"""`RecordedRollouts`: lets an on-policy algorithm of Stable-Baselines3 act from recordings.

Experience is collected with the effects of `OnPolicyAlgorithm.collect_rollouts`, in their order.
The policy's calls are recorded and made again; the first results of a recording are compared, bit
for bit, with those of the policy. What differs, or cannot be recorded, is never used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from stable_baselines3.common.utils import obs_as_tensor
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rlzoo_plus.fast.recorded.bit_comparison import bits, learned_tensors
from rlzoo_plus.fast.recorded.change_detector import ChangeDetector
from rlzoo_plus.fast.recorded.known_code import (
    Recorder,
    name_of,
    owner_of,
)
from rlzoo_plus.fast.recorded.parts import Parts
from rlzoo_plus.fast.recorded.tape import NotRecordableError, Tape

log = logging.getLogger(__name__)
_OWNER = "stable_baselines3.common.on_policy_algorithm.OnPolicyAlgorithm"
_BUFFERS = "stable_baselines3.common.buffers"
_KNOWN = (f"{_BUFFERS}.RolloutBuffer", f"{_BUFFERS}.DictRolloutBuffer")
# So many results of a recording are compared with those of the policy.
_COMPARED = 16


class RecordedRollouts(Recorder):
    """Collects the experience of an agent from recordings wherever that gives the same bits.

    Attributes:
        n_recorded: Rollouts whose actions came from recordings.
    """

    work = "rollouts"

    def __init__(self) -> None:
        super().__init__()
        self.n_recorded = 0
        self._acting: _Acting | None = None

    def collect(self, agent: Any, plain: Callable[..., bool], *args: Any, **kwargs: Any) -> bool:
        """Collect a rollout.

        Args:
            agent: The agent.
            plain: The algorithm's own `collect_rollouts`.
            *args: For it.
            **kwargs: For it.
        """
        # Updates that are not recorded, such as TRPO's, may have moved the weights in memory.
        if not self.reason and not (self.detector and self.detector.fits(agent)):
            self._renew(agent)
        if self.reason:
            return plain(*args, **kwargs)
        self.n_recorded += 1
        return self._collect(agent, *args, **kwargs)

    def _renew(self, agent: Any) -> None:
        """Record what is not recorded yet, or not any more."""
        self.forget()
        if reason := self.why_not(agent):
            self.refuse(reason, logging.INFO)
            return
        was_training = agent.policy.training
        agent.policy.set_training_mode(False)
        try:
            self._acting = _Acting(agent, self.refuse)
            self.detector = ChangeDetector(agent)
        except NotRecordableError as error:
            self.refuse(str(error))
        # Whatever a network of another version of torch can raise: the policy acts itself.
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            log.debug("why rollouts are not recorded:", exc_info=True)
            self.refuse(f"{type(error).__name__}: {error}")
        agent.policy.set_training_mode(was_training)

    def forget(self) -> None:
        """Give up what has been recorded: the agent has changed."""
        super().forget()
        self._acting = None

    def refuse(self, reason: str, level: int = logging.WARNING) -> None:
        """Record nothing any more."""
        super().refuse(reason, level)
        self._acting = None

    def why_not(self, agent: Any) -> str:
        """Return why an agent's rollouts cannot be recorded, empty if they may be."""
        owner = owner_of(type(agent), "collect_rollouts")
        if owner != _OWNER:
            return f"{owner.rpartition('.')[2]}.collect_rollouts is not one of those that can be"
        kind = type(agent.rollout_buffer)
        if name_of(kind) not in _KNOWN:
            return f"{kind.__name__} is not the buffer that is known"
        return super().why_not(agent)

    def _collect(
        self, agent: Any, env: Any, callback: Any, rollout_buffer: Any, n_rollout_steps: int
    ) -> bool:
        """Do what `OnPolicyAlgorithm.collect_rollouts` does, with the names that it has."""
        assert agent._last_obs is not None, "No previous observation was provided"
        self._set_evaluation_mode(agent)
        n_steps = 0
        rollout_buffer.reset()
        if agent.use_sde:
            self._reset_noise(agent, env.num_envs)
        callback.on_rollout_start()
        # What callbacks see, as far as it stays the same.
        seen = {"self": agent, "env": env, "callback": callback, "rollout_buffer": rollout_buffer}
        seen["n_rollout_steps"] = n_rollout_steps
        while n_steps < n_rollout_steps:
            if agent.use_sde and agent.sde_sample_freq > 0 and n_steps % agent.sde_sample_freq == 0:
                self._reset_noise(agent, env.num_envs)
            obs_tensor = obs_as_tensor(agent._last_obs, agent.device)
            actions, values, log_probs = self._forward(agent, obs_tensor)
            clipped_actions = clipped(agent, actions)
            new_obs, rewards, dones, infos = env.step(clipped_actions)
            agent.num_timesteps += env.num_envs
            seen |= {"n_steps": n_steps, "obs_tensor": obs_tensor, "actions": actions}
            seen |= {"values": values, "log_probs": log_probs, "clipped_actions": clipped_actions}
            seen |= {"new_obs": new_obs, "rewards": rewards, "dones": dones, "infos": infos}
            callback.update_locals(seen)
            if not callback.on_step():
                return False
            agent._update_info_buffer(infos, dones)
            n_steps += 1
            _add_value_of_truncated(agent, rewards, dones, infos)
            starts = agent._last_episode_starts
            rollout_buffer.add(agent._last_obs, actions, rewards, starts, values, log_probs)
            agent._last_obs, agent._last_episode_starts = new_obs, dones
        values = self._last_values(agent, new_obs)
        rollout_buffer.compute_returns_and_advantage(last_values=values, dones=dones)
        callback.update_locals(seen | {"values": values, "n_steps": n_steps})
        callback.on_rollout_end()
        return True

    def _current(self, agent: Any) -> _Acting | None:
        """Return the recordings, if no callback has changed the policy since."""
        if self.detector is not None and not self.detector.fits_if_due(agent):
            self._renew(agent)
        return None if agent.policy.training else self._acting

    def _set_evaluation_mode(self, agent: Any) -> None:
        if self.detector is None:
            agent.policy.set_training_mode(False)
        else:
            self.detector.set_training(False)

    def _forward(self, agent: Any, observations: Any) -> tuple[np.ndarray, Tensor, Tensor]:
        """Return actions, values and log probabilities."""
        acting = self._current(agent)
        with torch.no_grad():
            forward = agent.policy if acting is None else acting.forward
            actions, values, log_probs = forward(observations)
        return actions.cpu().numpy(), values, log_probs

    def _last_values(self, agent: Any, observations: Any) -> Tensor:
        acting = self._current(agent)
        with torch.no_grad():
            predict_values = agent.policy.predict_values if acting is None else acting.values
            return predict_values(obs_as_tensor(observations, agent.device))

    def _reset_noise(self, agent: Any, n_envs: int) -> None:
        acting = self._current(agent)
        if acting is None:
            agent.policy.reset_noise(n_envs)
        else:
            with torch.no_grad():
                acting.reset_noise(n_envs)


class RecordedFunction:
    """One function of a policy from a recording; its first results are compared."""

    def __init__(
        self,
        plain: Callable[..., Sequence[Tensor]],
        example: Sequence[Tensor],
        readable: Sequence[Tensor],
        give_up: Callable[[str], None],
        expected: Callable[..., Sequence[Tensor]] | None = None,
    ) -> None:
        """Record a function.

        Args:
            plain: The function.
            example: Its arguments; later ones have the same shapes and types.
            readable: What else it reads.
            give_up: Is told why the recording must not be used any more.
            expected: What gives the results that are right, if it is not the function itself.
        """

        def parts(inputs: Sequence[Tensor], numbers: SimpleNamespace) -> Iterator[Sequence[Tensor]]:
            with _PlainDraws():
                results = plain(*inputs)
            yield results

        self._plain, self._give_up = expected or plain, give_up
        self._tape = Tape(parts, example, (), readable)
        self._kinds = _kinds(example)
        self._left = _COMPARED

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        """Return what the policy would, gradients being disabled."""
        if _kinds(inputs) != self._kinds:
            return self._plain(*inputs)
        if not self._left:
            return self._replay(inputs)
        self._left -= 1
        before = torch.get_rng_state()
        expected = self._plain(*inputs)
        after = torch.get_rng_state()
        torch.set_rng_state(before)
        found = self._replay(inputs)
        if bits([*found, torch.get_rng_state()]) != bits([*expected, after]):
            torch.set_rng_state(after)
            self._give_up("an action, a value or a random number differs from SB3")
        return expected

    def _replay(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        return self._tape.run(0, self._tape.start(inputs, {}))


class _PlainDraws(TorchFunctionMode):
    """Makes the calls that `torch.multinomial` consists of, without its checks of the weights.

    They are two thirds of it. Weights that are not finite are found after the update.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.multinomial and args[1:] == (1, True) and not kwargs:
            weights = args[0]
            noise = torch.empty_like(weights).exponential_()
            return torch.argmax(weights / noise, dim=-1, keepdim=True)
        return func(*args, **(kwargs or {}))


class _Acting:
    """What a policy computes in rollouts, from recordings."""

    def __init__(self, agent: Any, give_up: Callable[[str], None]) -> None:
        policy = self._policy = agent.policy
        has_noise = isinstance(policy.action_dist, StateDependentNoiseDistribution)
        self._noisy: Any = policy.action_dist if has_noise else None
        self._readable, self._give_up = list(learned_tensors(agent).values()), give_up
        self._parts, noise = Parts(agent.observation_space), self._noise()
        parts = self._parts.split(obs_as_tensor(agent._last_obs, agent.device))
        self._forward = self._function(self._act, (*parts, *noise))
        self._values = self._function(self._value, parts)
        self._n_envs = agent.n_envs if has_noise else 0
        if has_noise:
            self._reset = self._function(self._new_noise, ())
            self._set_noise(noise)

    def forward(self, observations: Any) -> Sequence[Tensor]:
        """Return actions, values and log probabilities."""
        return self._forward(*self._parts.split(observations), *self._noise())

    def values(self, observations: Any) -> Tensor:
        """Return the values."""
        return self._values(*self._parts.split(observations))[0]

    def reset_noise(self, n_envs: int) -> None:
        """Do what the policy's `reset_noise` does."""
        if n_envs == self._n_envs:
            self._set_noise(self._reset())
        else:
            self._policy.reset_noise(n_envs)

    def _function(
        self, plain: Callable[..., Sequence[Tensor]], example: Sequence[Tensor]
    ) -> RecordedFunction:
        return RecordedFunction(plain, example, self._readable, self._give_up)

    def _act(self, *given: Tensor) -> Sequence[Tensor]:
        observations, noise = self._parts.join(given)
        before = self._matrices()
        self._set_noise(noise)
        results: Sequence[Tensor] = self._policy(observations)
        self._set_noise(before)
        return results

    def _value(self, *parts: Tensor) -> Sequence[Tensor]:
        return [self._policy.predict_values(self._parts.join(parts)[0])]

    def _new_noise(self) -> Sequence[Tensor]:
        self._policy.reset_noise(self._n_envs)
        return self._noise()

    def _matrices(self) -> Sequence[Tensor]:
        """Return the matrices of gSDE's noise, if the policy has them."""
        noisy = self._noisy
        return () if noisy is None else (noisy.exploration_mat, noisy.exploration_matrices)

    def _noise(self) -> Sequence[Tensor]:
        return [matrix.detach() for matrix in self._matrices()]

    def _set_noise(self, noise: Sequence[Tensor]) -> None:
        if noise:
            self._noisy.exploration_mat, self._noisy.exploration_matrices = noise


def _kinds(tensors: Sequence[Tensor]) -> list[Any]:
    return [(tensor.shape, tensor.dtype) for tensor in tensors]


def clipped(agent: Any, actions: np.ndarray) -> np.ndarray:
    """Return actions as the environments take them."""
    space = agent.action_space
    if not isinstance(space, spaces.Box):
        return actions
    if agent.policy.squash_output:
        actions = agent.policy.unscale_action(actions)
        return actions
    return actions.clip(space.low, space.high)


def _add_value_of_truncated(
    agent: Any, rewards: np.ndarray, dones: np.ndarray, infos: Sequence[Mapping[str, Any]]
) -> None:
    """Add the value of the last observation to the reward of an episode that was cut."""
    for index in np.flatnonzero(dones).tolist():
        last = infos[index].get("terminal_observation")
        if last is not None and infos[index].get("TimeLimit.truncated", False):
            with torch.no_grad():
                value = agent.policy.predict_values(agent.policy.obs_to_tensor(last)[0])[0]
            rewards[index] += agent.gamma * value
