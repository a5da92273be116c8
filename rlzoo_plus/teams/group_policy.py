"""A policy for each group of agents, as one policy of Stable-Baselines3 for PPO and A2C.

Every group has a whole policy of the library: extractor, actor and critic. Each computes for all
rows of a batch, and a row takes the results of its own: shapes are the same for any mixture of
groups, so that updates can be recorded. Gradients of a row reach its group's parameters alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import DictRolloutBuffer
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from torch import Tensor, nn

from rlzoo_plus.envs.grouped import GROUP, GroupedActions
from rlzoo_plus.errors import ConfigError

_SMALLEST = 1e-8


def policy_class(
    names: Iterable[str], space: spaces.Space[Any], class_for: Callable[[Any], type[BasePolicy]]
) -> type[BasePolicy]:
    """Return the class of a policy of groups.

    Args:
        names: Of the groups.
        space: Of a row's observation.
        class_for: Returns the class of a group's policy from its observation space.

    Raises:
        ConfigError: The space is not of such groups.
    """
    if not isinstance(space, spaces.Dict) or {*space.spaces} != {*names, GROUP}:
        raise ConfigError("env.groups: the observations are not those of these groups.")
    return _with_kinds(tuple((name, class_for(space[name])) for name in names))


@functools.cache
def _with_kinds(kinds: tuple[tuple[str, type[BasePolicy]], ...]) -> type[BasePolicy]:
    return type("GroupPolicy", (GroupPolicy,), {"__module__": __name__, "kinds": kinds})


class GroupPolicy(ActorCriticPolicy):
    """Policies of groups that learn together.

    Attributes:
        kinds: The class of each group's policy, by the group's name.
        groups: The policies, by the group's name.
    """

    kinds: tuple[tuple[str, type[ActorCriticPolicy]], ...] = ()

    # Its signature tells which arguments a policy has.
    @functools.wraps(ActorCriticPolicy.__init__)  # type: ignore[misc]
    def __init__(
        self, observation_space: Any, action_space: Any, lr_schedule: Any, **kwargs: Any
    ) -> None:
        """Make the policies; each gets the arguments of an `ActorCriticPolicy`.

        Raises:
            ConfigError: The actions are not those of these groups.
        """
        if not isinstance(action_space, GroupedActions) or {*action_space.groups} != {
            name for name, _ in self.kinds
        }:
            raise ConfigError("env.groups: the actions are not those of these groups.")
        # Not that of ActorCriticPolicy, which makes networks of its own.
        BasePolicy.__init__(self, observation_space, action_space)
        made = dict(self.kinds)
        self.groups = nn.ModuleDict(
            {
                name: made[name](observation_space[name], actions, lr_schedule, **kwargs)
                for name, actions in action_space.groups.items()
            }
        )
        for part in self._parts:
            del part.optimizer
        first = self._parts[0]
        self.optimizer_class, self.optimizer_kwargs = first.optimizer_class, first.optimizer_kwargs
        make: Any = self.optimizer_class
        self.optimizer = make(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    @property
    def _parts(self) -> list[Any]:
        return list(self.groups.values())

    @property
    def _width(self) -> int:
        return int(np.prod(self.action_space.shape or ()))

    def _named(self) -> Iterable[tuple[str, Any]]:
        return self.groups.items()

    def forward(self, obs: Any, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Return actions, values and log probabilities."""
        found = [part(obs[name], deterministic=deterministic) for name, part in self._named()]
        actions, values, log_probs = zip(*found, strict=True)
        padded = [self._padded(action) for action in actions]
        return self._own(obs, padded), self._own(obs, values), self._own(obs, log_probs)

    def evaluate_actions(self, obs: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return values, log probabilities and entropies of actions, one row each."""
        found = []
        for index, (name, part) in enumerate(self._named()):
            own = actions[:, : int(np.prod(part.action_space.shape, dtype=np.int64))]
            # Those of another group may be impossible here.
            own = torch.where(obs[GROUP][:, index, None].bool(), own, 0.0)
            if isinstance(part.action_space, spaces.Discrete):
                own = own[:, 0].long()
            found.append(part.evaluate_actions(obs[name], own))
        values, log_probs, entropies = zip(*found, strict=True)
        entropy = None if None in entropies else self._own(obs, entropies)
        return self._own(obs, values), self._own(obs, log_probs), entropy

    def predict_values(self, obs: Any) -> Tensor:
        """Return the values of observations."""
        return self._own(obs, [part.predict_values(obs[name]) for name, part in self._named()])

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        """Return actions, each within the bounds of its group."""
        found = []
        for name, part in self._named():
            action = part._predict(observation[name], deterministic)
            if isinstance(space := part.action_space, spaces.Box):
                low, high = (
                    torch.as_tensor(x, device=action.device) for x in (space.low, space.high)
                )
                action = torch.minimum(torch.maximum(action, low), high)
            found.append(self._padded(action))
        return self._own(observation, found)

    def get_distribution(self, obs: Any) -> Any:
        """Refuse: groups have distributions of different kinds.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            "env.groups: a policy of several groups has no single distribution of actions. Use "
            "that of one: load_policy(RUN).of_group(NAME)."
        )

    def _padded(self, action: Tensor) -> Tensor:
        """Return a group's actions as rows of numbers, as wide as those of all."""
        # Not by len(), which a traced graph takes for a constant.
        rows = action.unsqueeze(1) if action.dim() == 1 else action.flatten(1)
        return nn.functional.pad(rows.float(), (0, self._width - rows.shape[1]))

    def _own(self, obs: Mapping[str, Tensor], results: Sequence[Tensor]) -> Tensor:
        """Return for each row the result of its group."""
        chosen = results[0]
        for index, result in enumerate(results[1:], start=1):
            is_own = obs[GROUP][:, index].bool().reshape(-1, *[1] * (result.dim() - 1))
            chosen = torch.where(is_own, result, chosen)
        return chosen


class GroupRolloutBuffer(DictRolloutBuffer):
    """A rollout whose advantages have zero mean and unit variance in each group.

    The library's own normalization of a minibatch, which mixes the groups, then changes little.
    """

    def compute_returns_and_advantage(self, last_values: Tensor, dones: np.ndarray) -> None:
        """Compute returns, and normalised advantages."""
        super().compute_returns_and_advantage(last_values, dones)
        is_in = self.observations[GROUP].astype(bool)
        for index in range(is_in.shape[-1]):
            own = is_in[..., index]
            if (values := self.advantages[own]).size:
                self.advantages[own] = (values - values.mean()) / (values.std() + _SMALLEST)
