"""What a policy expects: its V of an observation, or its Q of an observation and an action."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sb3_contrib.common.recurrent.type_aliases import RNNStates

from rlzoo_plus.agents.policy import Policy


class Values:
    """The critic of a policy, asked step by step.

    Algorithms with a V are on-policy, those with a Q off-policy; of several critics the lowest
    counts, as in their updates, and of quantiles the mean.

    Attributes:
        kind: `V`, `Q`, or None for a policy without a critic.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._network: Any = policy.network
        self._memory: RNNStates | None = None
        self._critic_memory: tuple[torch.Tensor, torch.Tensor] | None = None
        self.kind: str | None = None
        if hasattr(self._network, "predict_values"):
            self.kind = "V"
        elif any(hasattr(self._network, name) for name in ("critic", "q_net", "quantile_net")):
            self.kind = "Q"

    def __call__(self, observation: Any, action: np.ndarray, starts: np.ndarray) -> Any:
        """Return the values of a batch.

        Args:
            observation: Raw, shape (n, ...) or a dictionary of such.
            action: What was done, shape (n, ...).
            starts: Which of the batch begin an episode, shape (n,), for recurrent policies; each
                call is the next step.

        Returns:
            Shape (n,); None for a policy without a critic.
        """
        if self.kind is None:
            return None
        with torch.no_grad():
            self._network.set_training_mode(False)
            seen = as_tensors(self._policy, observation)
            values = self._v(seen, starts) if self.kind == "V" else self._q(seen, action, starts)
        return values.reshape(len(starts)).cpu().numpy().astype(np.float64)

    def _v(self, seen: Any, starts: np.ndarray) -> Any:
        network = self._network
        if not hasattr(network, "lstm_actor"):
            return network.predict_values(seen)
        if self._memory is None:
            empty = empty_memory(network, len(starts))
            self._memory = RNNStates(empty, empty)
        begins = torch.as_tensor(starts, dtype=torch.float32, device=network.device)
        # The most probable action: drawing one would change those of the policy.
        _, values, _, self._memory = network.forward(seen, self._memory, begins, deterministic=True)
        return values

    def _q(self, seen: Any, action: np.ndarray, starts: np.ndarray) -> Any:
        network = self._network
        if hasattr(network, "critic"):
            scaled = torch.as_tensor(network.scale_action(action), device=network.device).float()
            if hasattr(network, "lstm_actor"):
                return self._recurrent_critic(seen, scaled, starts)
            found = network.critic(seen, scaled)
            if isinstance(found, tuple):
                return torch.cat(found, dim=1).min(dim=1).values
            # Quantiles of several critics.
            return found.mean(dim=(1, 2))
        chosen = torch.as_tensor(action, device=network.device).long().reshape(-1, 1)
        return action_values(network, seen).gather(1, chosen)

    def _recurrent_critic(self, seen: Any, scaled: Any, starts: np.ndarray) -> Any:
        network = self._network
        keep = torch.as_tensor(~starts, dtype=torch.float32, device=network.device)[:, None]
        before = self._critic_memory or empty_memory(network, len(starts))
        memory = tuple(keep * part for part in before)
        latent, self._critic_memory = network.critic.lstm_step(seen, memory)
        return network.critic.values(latent, scaled).min(dim=0).values


def empty_memory(network: Any, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the state of a recurrent network before an episode, for some environments."""
    lstm = network.lstm_actor
    zeros = torch.zeros(lstm.num_layers, count, lstm.hidden_size, device=network.device)
    return zeros, zeros


def action_values(network: Any, seen: Any) -> Any:
    """Return the Q of each discrete action, shape (n, n_actions)."""
    if hasattr(network, "quantile_net"):
        return network.quantile_net(seen).mean(dim=1)
    return network.q_net(seen)


def as_tensors(policy: Policy, observation: Any) -> Any:
    """Return raw observations as the network takes them: normalised, as tensors."""
    if policy.normalizer is not None:
        observation = policy.normalizer(observation)
    return policy.network.obs_to_tensor(observation)[0]
