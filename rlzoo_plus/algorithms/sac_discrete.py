"""Soft Actor-Critic for discrete actions (Christodoulou 2019, arXiv 1910.07207).

The critics give the values of all actions at once, and expectations over the policy are sums over
actions instead of samples. Otherwise as Stable-Baselines3's SAC, on the same base classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import BaseModel, BasePolicy
from stable_baselines3.common.torch_layers import (
    BaseFeaturesExtractor,
    CombinedExtractor,
    FlattenExtractor,
    NatureCNN,
    create_mlp,
    get_actor_critic_arch,
)
from torch import Tensor, nn
from torch.nn import functional

from rlzoo_plus.algorithms.sac_updates import SacUpdates, descend

SHARE_OF_ENTROPY = 0.5
"""Target of the entropy, as a share of that of a uniform policy. The paper's 0.98 leaves a policy
of two actions close to a coin."""


class DiscreteActor(BasePolicy):
    """The probabilities of the actions, as logits."""

    action_space: spaces.Discrete
    optimizer: torch.optim.Optimizer

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Discrete,
        net_arch: list[int],
        features_extractor: BaseFeaturesExtractor,
        features_dim: int,
        activation_fn: type[nn.Module] = nn.ReLU,
        normalize_images: bool = True,
    ) -> None:
        """Build the network: `net_arch` are its hidden layers."""
        super().__init__(
            observation_space,
            action_space,
            features_extractor=features_extractor,
            normalize_images=normalize_images,
        )
        sizes = create_mlp(features_dim, -1, net_arch, activation_fn)
        self.latent_pi = nn.Sequential(*sizes)
        self.logits = nn.Linear(net_arch[-1] if net_arch else features_dim, int(action_space.n))

    def forward(self, observation: Any) -> Tensor:
        """Return the logits of the actions, shape (n, n_actions)."""
        seen = self.extract_features(observation, self.features_extractor)
        logits: Tensor = self.logits(self.latent_pi(seen))
        return logits

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        logits: Tensor = self(observation)
        if deterministic:
            return logits.argmax(dim=1)
        return torch.multinomial(logits.softmax(dim=1), 1).squeeze(1)


class DiscreteCritic(BaseModel):
    """Several critics, each of which gives the values of all actions."""

    action_space: spaces.Discrete
    features_extractor: BaseFeaturesExtractor
    optimizer: torch.optim.Optimizer

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Discrete,
        net_arch: list[int],
        features_extractor: BaseFeaturesExtractor,
        features_dim: int,
        activation_fn: type[nn.Module] = nn.ReLU,
        normalize_images: bool = True,
        n_critics: int = 2,
    ) -> None:
        """Build the networks: `net_arch` are the hidden layers of each."""
        super().__init__(
            observation_space,
            action_space,
            features_extractor=features_extractor,
            normalize_images=normalize_images,
        )
        self.q_networks: list[nn.Sequential] = []
        for number in range(n_critics):
            layers = create_mlp(features_dim, int(action_space.n), net_arch, activation_fn)
            self.q_networks.append(nn.Sequential(*layers))
            self.add_module(f"qf{number}", self.q_networks[-1])

    def all_values(self, observation: Any) -> Tensor:
        """Return the values that each critic gives, shape (n_critics, n, n_actions)."""
        seen = self.extract_features(observation, self.features_extractor)
        return torch.stack([network(seen) for network in self.q_networks])

    def forward(self, observation: Any) -> Tensor:
        """Return the lowest value of each action, shape (n, n_actions)."""
        return self.all_values(observation).min(dim=0).values


class SACDiscretePolicy(BasePolicy):
    """Actor, critics and target critics, each with a features extractor of its own."""

    action_space: spaces.Discrete

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Discrete,
        lr_schedule: Callable[[float], float],
        net_arch: list[int] | dict[str, list[int]] | None = None,
        activation_fn: type[nn.Module] = nn.ReLU,
        features_extractor_class: type[BaseFeaturesExtractor] = FlattenExtractor,
        features_extractor_kwargs: dict[str, Any] | None = None,
        normalize_images: bool = True,
        optimizer_class: type[torch.optim.Optimizer] = torch.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
        n_critics: int = 2,
    ) -> None:
        """Build the networks.

        Args:
            observation_space: What is observed.
            action_space: The actions.
            lr_schedule: Learning rate by the share of the training that is left.
            net_arch: Hidden layers: a list, or `{"pi": [...], "qf": [...]}`.
            activation_fn: Between layers.
            features_extractor_class: What observations pass first.
            features_extractor_kwargs: Its arguments.
            normalize_images: Whether images are divided by 255.
            optimizer_class: Of actor and critics.
            optimizer_kwargs: Its arguments but the learning rate.
            n_critics: How many critics.
        """
        super().__init__(
            observation_space,
            action_space,
            features_extractor_class,
            features_extractor_kwargs,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
            normalize_images=normalize_images,
        )
        if net_arch is None:
            net_arch = [] if features_extractor_class is NatureCNN else [256, 256]
        self.net_arch, self.activation_fn, self.n_critics = net_arch, activation_fn, n_critics
        self._of_actor, self._of_critic = get_actor_critic_arch(net_arch)
        self.actor = self.make_actor()
        self.q_net = self.make_q_net()
        self.q_net_target = self.make_q_net()
        self.q_net_target.load_state_dict(self.q_net.state_dict())
        self.q_net_target.set_training_mode(False)
        self.actor.optimizer = self._optimizer_of(self.actor, lr_schedule)
        self.q_net.optimizer = self._optimizer_of(self.q_net, lr_schedule)

    def make_actor(self) -> DiscreteActor:
        """Return a new actor."""
        kwargs = {**self._network_kwargs(), "net_arch": self._of_actor}
        return DiscreteActor(**self._update_features_extractor(kwargs)).to(self.device)

    def make_q_net(self) -> DiscreteCritic:
        """Return new critics."""
        kwargs = {**self._network_kwargs(), "net_arch": self._of_critic}
        kwargs = self._update_features_extractor(kwargs)
        return DiscreteCritic(**kwargs, n_critics=self.n_critics).to(self.device)

    def forward(self, observation: Any, deterministic: bool = False) -> Tensor:
        """Return actions, shape (n,)."""
        return self._predict(observation, deterministic)

    def _predict(self, observation: Any, deterministic: bool = False) -> Tensor:
        return self.actor._predict(observation, deterministic)

    def set_training_mode(self, mode: bool) -> None:
        """Set the mode of actor and critics; the target critics stay as they are."""
        self.actor.set_training_mode(mode)
        self.q_net.set_training_mode(mode)
        self.training = mode

    def _network_kwargs(self) -> dict[str, Any]:
        return {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "activation_fn": self.activation_fn,
            "normalize_images": self.normalize_images,
        }

    def _optimizer_of(
        self, network: nn.Module, lr_schedule: Callable[[float], float]
    ) -> torch.optim.Optimizer:
        make: Any = self.optimizer_class
        optimizer: torch.optim.Optimizer = make(
            network.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs
        )
        return optimizer

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {
            **super()._get_constructor_parameters(),
            "net_arch": self.net_arch,
            "activation_fn": self.activation_fn,
            "n_critics": self.n_critics,
            "lr_schedule": self._dummy_schedule,
            "optimizer_class": self.optimizer_class,
            "optimizer_kwargs": self.optimizer_kwargs,
            "features_extractor_class": self.features_extractor_class,
            "features_extractor_kwargs": self.features_extractor_kwargs,
        }


class SACDiscreteCnnPolicy(SACDiscretePolicy):
    """The policy for images."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Build the networks, as `SACDiscretePolicy`."""
        super().__init__(*args, **{"features_extractor_class": NatureCNN, **kwargs})


class SACDiscreteMultiInputPolicy(SACDiscretePolicy):
    """The policy for dictionaries."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Build the networks, as `SACDiscretePolicy`."""
        super().__init__(*args, **{"features_extractor_class": CombinedExtractor, **kwargs})


class SACDiscrete(SacUpdates, OffPolicyAlgorithm):
    """Soft Actor-Critic for discrete actions."""

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": SACDiscretePolicy,
        "CnnPolicy": SACDiscreteCnnPolicy,
        "MultiInputPolicy": SACDiscreteMultiInputPolicy,
    }
    policy: SACDiscretePolicy
    actor: DiscreteActor

    def __init__(
        self,
        policy: str | type[SACDiscretePolicy],
        env: Any,
        learning_rate: float | Callable[[float], float] = 3e-4,
        buffer_size: int = 1_000_000,
        learning_starts: int = 100,
        batch_size: int = 256,
        tau: float = 0.005,
        gamma: float = 0.99,
        train_freq: int | tuple[int, str] = 1,
        gradient_steps: int = 1,
        replay_buffer_class: Any = None,
        replay_buffer_kwargs: dict[str, Any] | None = None,
        optimize_memory_usage: bool = False,
        n_steps: int = 1,
        ent_coef: str | float = "auto",
        target_update_interval: int = 1,
        target_entropy: str | float = "auto",
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        """Build the agent; arguments as of Stable-Baselines3's `SAC`.

        Args:
            policy: `MlpPolicy`, `CnnPolicy`, `MultiInputPolicy`, or a class.
            env: Environment with discrete actions.
            learning_rate: Of actor, critics and the weight of the entropy.
            buffer_size: Transitions kept.
            learning_starts: Steps before the first update.
            batch_size: Transitions of an update.
            tau: Weight of the new parameters in an update of the target critics.
            gamma: Discount.
            train_freq: Steps between updates.
            gradient_steps: Updates each time.
            replay_buffer_class: Class of the replay buffer.
            replay_buffer_kwargs: Its arguments.
            optimize_memory_usage: Whether next observations are stored once.
            n_steps: n-step returns.
            ent_coef: Weight of the entropy; `auto`, or `auto_0.1` to begin there.
            target_update_interval: Updates between two updates of the target critics.
            target_entropy: In nats; `auto` is half of a uniform policy's.
            stats_window_size: Episodes in the logged means.
            tensorboard_log: Folder of TensorBoard's files.
            policy_kwargs: Arguments of the policy.
            verbose: What is printed.
            seed: Of all random numbers.
            device: Where the networks are.
        """
        super().__init__(
            policy,
            env,
            learning_rate,
            buffer_size,
            learning_starts,
            batch_size,
            tau,
            gamma,
            train_freq,
            gradient_steps,
            replay_buffer_class=replay_buffer_class,
            replay_buffer_kwargs=replay_buffer_kwargs,
            optimize_memory_usage=optimize_memory_usage,
            n_steps=n_steps,
            policy_kwargs=policy_kwargs,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            verbose=verbose,
            device=device,
            seed=seed,
            sde_support=False,
            supported_action_spaces=(spaces.Discrete,),
            support_multi_env=True,
        )
        self.ent_coef, self.target_entropy = ent_coef, target_entropy
        self.target_update_interval = target_update_interval
        self.log_ent_coef: Tensor | None = None
        self.ent_coef_optimizer: torch.optim.Adam | None = None
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        self._create_aliases()
        if self.target_entropy == "auto":
            space: Any = self.action_space
            self.target_entropy = SHARE_OF_ENTROPY * float(np.log(space.n))
        self.target_entropy = float(self.target_entropy)
        if isinstance(self.ent_coef, str):
            _, _, initial = self.ent_coef.partition("_")
            start = torch.full((1,), float(initial or 1.0), device=self.device)
            self.log_ent_coef = start.log().requires_grad_(True)
            self.ent_coef_optimizer = torch.optim.Adam([self.log_ent_coef], lr=self.lr_schedule(1))
        else:
            self.ent_coef_tensor = torch.tensor(float(self.ent_coef), device=self.device)

    def _create_aliases(self) -> None:
        self.actor = self.policy.actor
        self.q_net, self.q_net_target = self.policy.q_net, self.policy.q_net_target

    def networks(self) -> tuple[DiscreteActor, DiscreteCritic, DiscreteCritic]:
        """Return actor, critics and target critics."""
        return self.actor, self.q_net, self.q_net_target

    def update(self, batch: Any) -> dict[str, float]:
        """Update entropy weight, critics and actor with a batch; return what is logged."""
        log_probabilities = self.actor(batch.observations).log_softmax(dim=1)
        probabilities = log_probabilities.exp()
        entropy = -(probabilities * log_probabilities).sum(dim=1)
        weight, logged = self.entropy_weight(entropy.detach())
        discounts = self.gamma if batch.discounts is None else batch.discounts
        with torch.no_grad():
            next_log = self.actor(batch.next_observations).log_softmax(dim=1)
            next_values = self.q_net_target(batch.next_observations) - weight * next_log
            expected = (next_log.exp() * next_values).sum(dim=1, keepdim=True)
            targets = batch.rewards + (1 - batch.dones) * discounts * expected
        values = self.q_net.all_values(batch.observations)
        chosen = batch.actions.long().expand(len(values), -1, -1)
        done = values.gather(2, chosen)
        critic_loss = 0.5 * sum(functional.mse_loss(value, targets) for value in done)
        assert isinstance(critic_loss, Tensor)
        descend(self.q_net.optimizer, critic_loss)
        with torch.no_grad():
            lowest = self.q_net(batch.observations)
        actor_loss = -(weight * entropy + (probabilities * lowest).sum(dim=1)).mean()
        descend(self.actor.optimizer, actor_loss)
        return {
            **logged,
            "entropy": entropy.mean().item(),
            "actor_loss": actor_loss.item(),
            "critic_loss": critic_loss.item(),
        }

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "actor", "q_net", "q_net_target"]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        names = ["policy", "actor.optimizer", "q_net.optimizer"]
        if self.ent_coef_optimizer is None:
            return names, ["ent_coef_tensor"]
        return [*names, "ent_coef_optimizer"], ["log_ent_coef"]
