"""An algorithm: PPO whose exploration fades, as the weight of the entropy falls to zero.

Use, in this folder:

    rlzoo-plus train algo=ppo algo.name=calm_ppo.CalmPPO algo.hyperparams.ent_coef=0.01

What is known of PPO holds for a class that extends it: its networks, action spaces, schedules. A
class that is unlike the shipped ones says so in an attribute `spec`, an `rlzoo_plus.AlgorithmSpec`.
"""

from typing import Any

from stable_baselines3 import PPO


class CalmPPO(PPO):
    """PPO with an entropy bonus that fades."""

    def __init__(self, *args: Any, ent_coef: float = 0.01, **kwargs: Any) -> None:
        super().__init__(*args, ent_coef=ent_coef, **kwargs)
        self.first_ent_coef = ent_coef

    def train(self) -> None:
        """Update as PPO does, with the weight of this moment."""
        self.ent_coef = self.first_ent_coef * self._current_progress_remaining
        super().train()
