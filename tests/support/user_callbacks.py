"""Callbacks as users write them: a curriculum, and hands on the model."""

import torch
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


class ClipsTighter(_At):
    """Changes how observations are normalised."""

    def act(self):
        self.model.get_vec_normalize_env().clip_obs = 0.5


class Idle(_At):
    """Does nothing."""

    def act(self):
        pass


class SetsStage(_At):
    """A curriculum that sets the stage, in all environments or in one."""

    def __init__(self, step=10, n=10, indices=None):
        super().__init__(step)
        self.n, self.indices = n, indices

    def act(self):
        self.training_env.env_method("set_n", self.n, indices=self.indices)


class Advances(BaseCallback):
    """A curriculum that goes on by a stage at its start and every so many steps."""

    def __init__(self, every=24):
        super().__init__()
        self.every = every

    def _on_training_start(self):
        self.training_env.env_method("advance", by=1)

    def _on_step(self):
        if self.n_calls % self.every == 0:
            self.training_env.env_method("advance", by=1)
        return True


class SetsAttribute(_At):
    """Sets an attribute of each environment, and rewards nothing for it."""

    def act(self):
        self.training_env.set_attr("bonus", 5.0)

    def _on_rollout_end(self):
        values = self.training_env.get_attr("bonus") if self.n_calls > self.step else [0.0]
        self.logger.record("train/bonus", values[0])


class Transforms(_At):
    """Gives the environments a function."""

    def act(self):
        self.training_env.env_method("set_n", _Two())


class _Two:
    """A number of a kind of its own."""

    def __rmul__(self, other):
        return 2.0 * other


class Asks(BaseCallback):
    """Asks the environments something at every step."""

    def _on_step(self):
        self.training_env.env_method("get_stage")
        return True


class MovesWeights(BaseCallback):
    """Changes weights, after each rollout."""

    def _on_step(self):
        return True

    def _on_rollout_end(self):
        with torch.no_grad():
            next(self.model.policy.parameters()).add_(0.01)


class EndsEarly(BaseCallback):
    """Ends the training at its fifth step."""

    def _on_step(self):
        return self.n_calls < 5
