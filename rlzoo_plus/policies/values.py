"""What a policy expects: its V of an observation, or its Q of an observation and an action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

    from rlzoo_plus.agents.policy import Policy


class Values:
    """The critic of a policy, asked step by step.

    Algorithms with a V are on-policy, those with a Q off-policy; of several critics the lowest
    counts, as in their updates, and of quantiles the mean.

    Attributes:
        kind: `V`, `Q`, or None for a policy without a critic.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy, self._network = policy, policy.network
        network: Any = policy.network
        self.kind: str | None = None
        if hasattr(network, "predict_values"):
            self.kind = "V"
        elif any(hasattr(network, name) for name in ("critic", "q_net", "quantile_net")):
            self.kind = "Q"
        self._state: Any = None

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
        import torch

        with torch.no_grad():
            self._network.set_training_mode(False)
            seen = as_tensors(self._policy, observation)
            values = self._v(seen, starts) if self.kind == "V" else self._q(seen, action)
        return values.reshape(len(starts)).cpu().numpy().astype(np.float64)

    def _v(self, seen: Any, starts: np.ndarray) -> torch.Tensor:
        network: Any = self._network
        if not hasattr(network, "lstm_actor"):
            return network.predict_values(seen)
        import torch
        from sb3_contrib.common.recurrent.type_aliases import RNNStates

        if self._state is None:
            lstm = network.lstm_actor
            shape = (lstm.num_layers, len(starts), lstm.hidden_size)
            zeros = torch.zeros(shape, device=network.device)
            self._state = RNNStates((zeros, zeros), (zeros, zeros))
        begins = torch.as_tensor(starts, dtype=torch.float32, device=network.device)
        # The most probable action: drawing one would change those of the policy.
        _, values, _, self._state = network.forward(seen, self._state, begins, deterministic=True)
        return values

    def _q(self, seen: Any, action: np.ndarray) -> torch.Tensor:
        import torch

        network: Any = self._network
        if hasattr(network, "critic"):
            scaled = torch.as_tensor(network.scale_action(action), device=network.device)
            found = network.critic(seen, scaled.float())
            if isinstance(found, tuple):
                return torch.cat(found, dim=1).min(dim=1).values
            # Quantiles of several critics.
            return found.mean(dim=(1, 2))
        of_actions = action_values(network, seen)
        chosen = torch.as_tensor(action, device=network.device).long().reshape(-1, 1)
        return of_actions.gather(1, chosen)


def action_values(network: Any, seen: Any) -> torch.Tensor:
    """Return the Q of each discrete action, shape (n, n_actions)."""
    if hasattr(network, "quantile_net"):
        return network.quantile_net(seen).mean(dim=1)
    return network.q_net(seen)


def as_tensors(policy: Policy, observation: Any) -> Any:
    """Return raw observations as the network takes them: normalised, as tensors."""
    if policy.normalizer is not None:
        observation = policy.normalizer(observation)
    return policy.network.obs_to_tensor(observation)[0]
