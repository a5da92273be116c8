"""`RewardTerms`: the sum of each term of the reward over an episode, from the info of each step."""

from __future__ import annotations

from collections import deque
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from rlzoo_plus.envs.monitor import is_number, mean_of_episodes

_KEPT = 100


class RewardTerms(BaseCallback):
    """Callback that logs the terms of the reward, as means over the last hundred episodes.

    Gymnasium's MuJoCo environments put them into the info of each step, `reward_forward` and so on.
    This project's robots need no callback: their terms are always logged.
    """

    def __init__(self, prefix: str = "reward_") -> None:
        """Create a callback.

        Args:
            prefix: How the keys of the terms begin; the rest is their name in the log.
        """
        super().__init__()
        self.prefix = prefix
        self._running: list[dict[str, float]] = []
        self._episodes: deque[dict[str, float]] = deque(maxlen=_KEPT)

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far."""
        return {"running": self._running, "episodes": list(self._episodes)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the sums."""
        self._running = [dict(terms) for terms in state["running"]]
        self._episodes = deque(state["episodes"], maxlen=_KEPT)

    def _on_training_start(self) -> None:
        if len(self._running) != self.training_env.num_envs:
            self._running = [{} for _ in range(self.training_env.num_envs)]

    def _on_step(self) -> bool:
        ended = zip(self._running, self.locals["infos"], self.locals["dones"], strict=True)
        for rank, (terms, info, is_over) in enumerate(ended):
            for key, value in info.items():
                if key.startswith(self.prefix) and is_number(value):
                    name = f"reward/{key.removeprefix(self.prefix)}"
                    terms[name] = terms.get(name, 0.0) + float(value)
            if is_over:
                self._episodes.append(terms)
                self._running[rank] = {}
        if any(self.locals["dones"]):
            for name, value in mean_of_episodes(self._episodes).items():
                self.logger.record(f"rollout/{name}", value)
        return True
