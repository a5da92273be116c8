"""A callback: records how hard the policy works, beside the other metrics of each rollout.

Use, in this folder:

    rlzoo-plus train 'callbacks=[{effort_callback.EffortCallback: {name: effort}}]'

Its attributes are plain values, which a checkpoint keeps: the run is resumed bit for bit.
"""

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback


class EffortCallback(BaseCallback):
    """Records `own/<name>`, the mean size of the actions since the last rollout."""

    def __init__(self, name: str = "effort") -> None:
        super().__init__()
        self.name = name
        self.total, self.count = 0.0, 0

    def _on_step(self) -> bool:
        self.total += float(np.abs(self.locals["actions"]).mean())
        self.count += 1
        return True

    def _on_rollout_end(self) -> None:
        self.logger.record(f"own/{self.name}", self.total / max(1, self.count))
        self.total, self.count = 0.0, 0
