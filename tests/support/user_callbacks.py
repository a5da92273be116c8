"""Callbacks as users write them: a curriculum, and hands on the model."""

from stable_baselines3.common.callbacks import BaseCallback


class _At(BaseCallback):
    """Acts once, at a step."""

    def __init__(self, step=40):
        super().__init__()
        self.step = step

    def _on_step(self):
        if self.n_calls == self.step:
            self.act()
        return True


class SlowsDown(_At):
    """Replaces the schedule of the learning rate."""

    def act(self):
        self.model.lr_schedule = lambda _: 1e-6


class StopsExploring(_At):
    """Takes the noise away."""

    def act(self):
        self.model.action_noise = None


class Idle(_At):
    """Does nothing."""

    def act(self):
        pass
