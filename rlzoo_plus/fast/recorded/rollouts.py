"""`RecordedRollouts`: lets the policy of an algorithm of Stable-Baselines3 act from recordings.

Experience is collected by the algorithm's own `collect_rollouts`. What its policy computes there is
recorded and made again; the first results of a recording are compared, bit for bit, with those of
the policy. What differs, or cannot be recorded, is never used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import torch
from stable_baselines3.common.distributions import StateDependentNoiseDistribution
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rlzoo_plus.fast.recorded.bit_comparison import bits, learned_tensors
from rlzoo_plus.fast.recorded.change_detector import ChangeDetector
from rlzoo_plus.fast.recorded.known_code import Recorder, owner_of
from rlzoo_plus.fast.recorded.parts import Parts
from rlzoo_plus.fast.recorded.tape import Tape

_COMMON = "stable_baselines3.common"
_OFF_POLICY = f"{_COMMON}.off_policy_algorithm.OffPolicyAlgorithm"
# Who may collect, and who may predict: known code that calls the policy as is recorded here.
_KNOWN = {
    "collect_rollouts": (_OFF_POLICY, f"{_COMMON}.on_policy_algorithm.OnPolicyAlgorithm"),
    "predict": (
        f"{_COMMON}.base_class.BaseAlgorithm",
        *("stable_baselines3.dqn.dqn.DQN", "sb3_contrib.qrdqn.qrdqn.QRDQN"),
    ),
}
# So many results of a recording are compared with those of the policy.
_COMPARED = 16
# The actions of all environments, and the values of all and of one.
_MOST_FUNCTIONS = 3
# What collects the experience of a policy, by the policy's identity.
_collecting: dict[int, RecordedRollouts] = {}


class RecordedRollouts(Recorder):
    """Collects the experience of an agent from recordings wherever that gives the same bits.

    Attributes:
        agent: The agent.
        n_recorded: Rollouts whose actions came from recordings.
    """

    work = "rollouts"

    def __init__(self, agent: Any) -> None:
        """Let the policy of an agent, whose class is `Accelerated`, act from recordings."""
        super().__init__()
        self.n_recorded = 0
        self.agent = agent
        self._functions: dict[Any, RecordedFunction] = {}
        agent.policy.__class__ = _acting_class(agent.policy.__class__)

    def collect(self, agent: Any, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Collect experience.

        Args:
            agent: The agent.
            plain: The algorithm's own `collect_rollouts`.
            *args: For it.
            **kwargs: For it.
        """
        with torch.no_grad():  # as where the policy acts
            # Updates that are not recorded, such as TRPO's, may have moved the weights in memory.
            if isinstance(agent, OnPolicyAlgorithm) or self.detector is None:
                self._look_at(agent, is_same=bool(self.detector and self.detector.fits(agent)))
        self.n_recorded += not self.reason
        key = id(agent.policy)
        _collecting[key] = self
        try:
            return plain(*args, **kwargs)
        finally:
            _collecting.pop(key, None)

    def can_act(self, policy: Any) -> bool:
        """Return whether a policy may act from recordings now; looks at its agent if it is due."""
        if self.reason or policy.training or torch.is_grad_enabled():
            return False
        assert self.detector is not None
        self._look_at(self.agent, is_same=self.detector.fits_if_due(self.agent))
        return not self.reason

    def act(self, name: str, method: Callable[[Any], Any], observations: Any) -> Sequence[Tensor]:
        """Return what a method of the policy gives, which is recorded under a name."""

        def results_for(*given: Tensor) -> Sequence[Tensor]:
            joined, noise = self._parts.join(given)
            before = self._matrices()
            self._set_noise(noise)
            results = method(joined)
            self._set_noise(before)
            return [results] if isinstance(results, Tensor) else results

        noise = (matrix.detach() for matrix in self._matrices())
        given = *self._parts.split(observations), *noise
        key = name, *((tensor.shape, tensor.stride(), tensor.dtype) for tensor in given)
        if key not in self._functions and len(self._functions) < _MOST_FUNCTIONS:
            with self.failures() as reasons:
                made = RecordedFunction(results_for, given, self._readable, self.refuse)
                self._functions[key] = made
            for reason in reasons:
                self.refuse(reason)
        function = self._functions.get(key)
        return results_for(*given) if function is None else function(*given)

    def _look_at(self, agent: Any, *, is_same: bool = False) -> None:
        """Begin anew with an agent that is not the same as before."""
        if is_same or self.reason:
            return
        self.forget()
        if reason := self.why_not(agent):
            self.refuse(reason, logging.INFO)
            return
        self.detector = ChangeDetector(agent)
        self._readable = list(learned_tensors(agent).values())
        self._parts = Parts(agent.observation_space)
        acting = getattr(agent.policy, "actor", None) or agent.policy
        distribution = getattr(acting, "action_dist", None)
        has_noise = isinstance(distribution, StateDependentNoiseDistribution)
        self._noisy: Any = distribution if has_noise else None

    def _matrices(self) -> Sequence[Tensor]:
        """Return the matrices of gSDE's noise, if the policy has them."""
        noisy = self._noisy
        return () if noisy is None else (noisy.exploration_mat, noisy.exploration_matrices)

    def _set_noise(self, noise: Sequence[Tensor]) -> None:
        if noise:
            self._noisy.exploration_mat, self._noisy.exploration_matrices = noise

    def forget(self) -> None:
        """Give up what has been recorded: the agent has changed."""
        super().forget()
        self._functions.clear()

    def refuse(self, reason: str, level: int = logging.WARNING) -> None:
        """Record nothing any more."""
        super().refuse(reason, level)
        self._functions.clear()

    def why_not(self, agent: Any) -> str:
        """Return why an agent's rollouts cannot be recorded, empty if they may be."""
        for method, known in _KNOWN.items():
            owner = owner_of(type(agent), method)
            if owner not in known:
                return f"{owner.rpartition('.')[2]}.{method} is not one of those that can be"
        return super().why_not(agent)


class _ActsFromRecordings:
    """Mixin for a policy: it comes before it. Copies are without it."""

    def set_training_mode(self, mode: bool) -> None:
        """Set whether the policy is in training mode."""
        plain: Any = super().set_training_mode  # type: ignore[misc]
        collecting = _collecting.get(id(self))
        if collecting is None:
            plain(mode)
        else:
            collecting.set_training_mode(mode, plain, collecting.agent)

    def __reduce_ex__(self, protocol: Any) -> Any:
        reduced: Any = super().__reduce_ex__(protocol)
        function, (_, *arguments), *state = reduced
        return function, (type(self).__bases__[1], *arguments), *state


class _ActorCritic(_ActsFromRecordings):
    """The mixin of on-policy algorithms."""

    def forward(self, obs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return actions, values and log probabilities."""
        plain: Any = super().forward  # type: ignore[misc]
        if args or kwargs or (acting := _acting(self)) is None:
            return plain(obs, *args, **kwargs)
        return acting.act("forward", plain, obs)

    def predict_values(self, obs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the values."""
        plain: Any = super().predict_values  # type: ignore[misc]
        if args or kwargs or (acting := _acting(self)) is None:
            return plain(obs, *args, **kwargs)
        return acting.act("predict_values", plain, obs)[0]


class _Actor(_ActsFromRecordings):
    """The mixin of off-policy algorithms."""

    def _predict(self, observation: Any, *args: Any, **kwargs: Any) -> Any:
        plain: Any = super()._predict  # type: ignore[misc]
        explores = not args and kwargs == {"deterministic": False}
        if not explores or (acting := _acting(self)) is None:
            return plain(observation, *args, **kwargs)
        return acting.act("_predict", partial(plain, **kwargs), observation)[0]


def _acting(policy: Any) -> RecordedRollouts | None:
    """Return what lets a policy act from recordings now, None if it acts by itself."""
    collecting = _collecting.get(id(policy))
    return collecting if collecting is not None and collecting.can_act(policy) else None


@cache
def _acting_class(kind: type) -> type:
    """Return a subclass of a policy's class with the mixin, under its own name."""
    mixin = _ActorCritic if hasattr(kind, "predict_values") else _Actor
    own = {"__doc__": kind.__doc__, "__module__": kind.__module__}
    return type(kind.__name__, (mixin, kind), own)


class RecordedFunction:
    """One function of a policy from a recording; its first results are compared."""

    def __init__(
        self,
        plain: Callable[..., Sequence[Tensor]],
        example: Sequence[Tensor],
        readable: Sequence[Tensor],
        give_up: Callable[[str], None],
    ) -> None:
        """Record a function.

        Args:
            plain: The function.
            example: Its arguments; later ones have the same shapes and types.
            readable: What else it reads.
            give_up: Is told why the recording must not be used any more.
        """

        def results_for(inputs: Sequence[Tensor], numbers: SimpleNamespace) -> Sequence[Tensor]:
            with _PlainDraws():
                return plain(*inputs)

        self._plain, self._give_up = plain, give_up
        self._tape = Tape(results_for, example, (), readable)
        self._left = _COMPARED

    def __call__(self, *inputs: Tensor) -> Sequence[Tensor]:
        """Return what the policy would, gradients being disabled."""
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
        return self._tape.run(inputs, {})


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
