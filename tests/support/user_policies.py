"""Networks and algorithms as users write them."""

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from torch import nn


class Scaled(FlattenExtractor):
    """Observations times a number that is learned."""

    def __init__(self, observation_space, start=1.0):
        super().__init__(observation_space)
        self.scale = nn.Parameter(torch.tensor(start))

    def forward(self, observations):
        return self.scale * super().forward(observations)


class Shifted(ActorCriticPolicy):
    """Acts as the library's policy, plus a shift: exported as that, it would act otherwise."""

    def __init__(self, *args, shift=0.3, **kwargs):
        self.start = shift
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule):
        super()._build(lr_schedule)
        self.shift = nn.Parameter(torch.tensor(self.start))
        self.optimizer = self.optimizer_class(self.parameters(), lr=lr_schedule(1))

    def _get_action_dist_from_latent(self, latent_pi):
        mean = self.action_net(latent_pi) + self.shift
        return self.action_dist.proba_distribution(mean, self.log_std)


class Late(ActorCriticPolicy):
    """Makes a parameter after its optimizer."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.late = nn.Parameter(torch.zeros(1))


class ShiftedSAC(SACPolicy):
    """A policy for SAC that acts a little otherwise when it is asked for its best."""

    def _predict(self, observation, deterministic=False):
        return torch.clamp(super()._predict(observation, deterministic) + 0.1, -1.0, 1.0)


class ShiftedTD3(TD3Policy):
    """The same for TD3."""

    def _predict(self, observation, deterministic=False):
        return torch.clamp(super()._predict(observation, deterministic) + 0.1, -1.0, 1.0)


class Chooses(ActorCriticPolicy):
    """For choices: never the last."""

    def _get_action_dist_from_latent(self, latent_pi):
        scores = self.action_net(latent_pi)
        mask = torch.zeros_like(scores)
        mask[:, -1] = -1e8
        return self.action_dist.proba_distribution(scores + mask)


class Curious(PPO):
    """Asks its environments for attributes and results while it is built."""

    def __init__(self, policy, env, **kwargs):
        super().__init__(policy, env, **kwargs)
        assert len(self.env.get_attr("gravity")) == self.n_envs
        assert len(self.env.env_method("difficulty")) == self.n_envs
