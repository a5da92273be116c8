"""A policy class of one's own: actions from a Beta distribution, which never leaves the bounds.

A Gaussian policy puts probability outside the bounds, which clipping moves onto them; a Beta
distribution has none there (Chou, Maturana and Scherer, ICML 2017). For `ppo`, `a2c` and `trpo`,
and boxes with bounds.

Use, from this folder:

    rlzoo-plus train network.policy=beta_policy.BetaPolicy

Any class that inherits from the algorithm's own policy will do: `ActorCriticPolicy` for on-policy
algorithms, `SACPolicy` for SAC, and so on. Arguments come from `network.*`, and those of its own
from `network.policy_kwargs`.
"""

import math
from typing import Any

import torch
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from torch import nn


class BetaDistribution(Distribution):
    """A Beta distribution for each action, stretched from (0, 1) to (-1, 1)."""

    def proba_distribution_net(self, latent_dim: int, action_dim: int) -> nn.Module:
        """Return the layer of both parameters of each action."""
        return nn.Linear(latent_dim, 2 * action_dim)

    def proba_distribution(self, parameters: torch.Tensor) -> "BetaDistribution":
        """Set the parameters, shape (batch, 2 * action_dim)."""
        # Above 1, there is a single peak, and none at the bounds.
        self.alpha, self.beta = (1.0 + nn.functional.softplus(parameters)).chunk(2, dim=1)
        return self

    @property
    def beta_distribution(self) -> torch.distributions.Beta:
        """The distribution on (0, 1)."""
        return torch.distributions.Beta(self.alpha, self.beta)

    def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the log density of actions, shape (batch,)."""
        inside = ((actions + 1.0) / 2.0).clamp(1e-6, 1.0 - 1e-6)
        return (self.beta_distribution.log_prob(inside) - math.log(2.0)).sum(dim=1)

    def entropy(self) -> torch.Tensor:
        """Return the entropy, shape (batch,)."""
        return (self.beta_distribution.entropy() + math.log(2.0)).sum(dim=1)

    def sample(self) -> torch.Tensor:
        """Draw actions."""
        return 2.0 * self.beta_distribution.sample() - 1.0

    def mode(self) -> torch.Tensor:
        """Return the likeliest actions; written out, so that a policy exports to ONNX."""
        return 2.0 * (self.alpha - 1.0) / (self.alpha + self.beta - 2.0) - 1.0

    def actions_from_params(
        self, parameters: torch.Tensor, deterministic: bool = False
    ) -> torch.Tensor:
        """Return actions for parameters."""
        return self.proba_distribution(parameters).get_actions(deterministic=deterministic)

    def log_prob_from_params(self, parameters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return actions for parameters, and their log density."""
        actions = self.actions_from_params(parameters)
        return actions, self.log_prob(actions)


class BetaPolicy(ActorCriticPolicy):
    """An actor and a critic; the actor's last layer says how a Beta distribution is shaped."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Build the networks, with the arguments of `ActorCriticPolicy`."""
        super().__init__(*args, **kwargs)
        # The library stretches actions from (-1, 1) to the bounds, instead of clipping them.
        self._squash_output = True

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        del self.log_std
        self.action_dist = BetaDistribution()
        width, count = self.mlp_extractor.latent_dim_pi, self.action_space.shape[0]
        self.action_net = self.action_dist.proba_distribution_net(width, count)
        rate = lr_schedule(1)
        self.optimizer = self.optimizer_class(self.parameters(), lr=rate, **self.optimizer_kwargs)

    def _get_action_dist_from_latent(self, latent_pi: torch.Tensor) -> Distribution:
        return self.action_dist.proba_distribution(self.action_net(latent_pi))
