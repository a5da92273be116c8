"""Evaluate while training, keep the record, and keep the best policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlzoo_plus.agents.policy import Policy, save_policy
from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.callbacks.base import RunCallback
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.seeding import evaluation_seeds
from rlzoo_plus.evaluation import evaluate

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

_SCALARS = ("mean_return", "std_return", "iqm_return", "success_rate")


class EvaluationCallback(RunCallback):
    """Evaluates every so many environment steps.

    Attributes:
        last: The record of the newest evaluation, None before the first.
        best: The record with the highest mean return so far.
        since_best: Evaluations since then.
    """

    def __init__(self, config: RunConfig, run_dir: RunDir, venv: VecEnv) -> None:
        super().__init__()
        self.config = config
        self.run_dir = run_dir
        self.venv = venv
        self.seeds = evaluation_seeds(config.eval.episodes)
        self.last: dict[str, Any] | None = None
        self.best: dict[str, Any] | None = None
        self.since_best = 0
        self.listeners: list[Callable[[dict[str, Any], bool], None]] = []
        self._next = 0 if config.eval.at_start else config.eval.every_steps

    def on_iteration(self) -> None:
        """Evaluate if it is time."""
        if self._next is None or self.model.num_timesteps < self._next:
            return
        self.evaluate_now()
        every = self.config.eval.every_steps
        if not isinstance(every, int):
            self._next = None
        else:
            self._next = (self.model.num_timesteps // every + 1) * every

    def evaluate_now(self) -> dict[str, Any]:
        """Evaluate the policy as it is, unless that was done at this very step."""
        step = self.model.num_timesteps
        if self.last is not None and self.last["step"] == step:
            return self.last
        deterministic = self.config.eval.deterministic
        policy = Policy.of_agent(self.model)
        result = evaluate(policy, self.venv, self.seeds, deterministic=deterministic)
        self.last = result.record(step)
        append_records(self.run_dir.evaluations_file, [self.last])
        self._write_metrics(self.last)
        is_best = self._is_best(self.last["mean_return"])
        self.since_best = 0 if is_best else self.since_best + 1
        if is_best:
            self.best = self.last
            save_policy(self.run_dir.best, self.model, self.config, self.last)
            if self.config.export.sb3_zip:
                export_sb3(self.model, self.run_dir, "best")
        for listener in self.listeners:
            listener(self.last, is_best)
        return self.last

    def _is_best(self, mean_return: float) -> bool:
        """Compare; what is not a number is never better, and never stays the best."""
        before = math.nan if self.best is None else self.best["mean_return"]
        return self.best is None or mean_return > before or not math.isfinite(before)

    def _write_metrics(self, record: dict[str, Any]) -> None:
        """Pass the figures to every output at once, apart from the training metrics pending."""
        values = {f"eval/{key}": record[key] for key in _SCALARS if record[key] is not None}
        lengths = record["episode_lengths"]
        values["eval/mean_episode_length"] = sum(lengths) / len(lengths)
        for output in self.model.logger.output_formats:
            output.write(values, dict.fromkeys(values, ()), record["step"])


def export_sb3(agent: Any, run_dir: RunDir, which: str) -> None:
    """Write the agent in the format of Stable-Baselines3 beside a bundle, for exchange."""
    target = run_dir.path / f"{which}_sb3"
    target.mkdir(exist_ok=True)
    agent.save(target / "model.zip")
    venv = agent.get_vec_normalize_env()
    if venv is not None:
        venv.save(str(target / "vecnormalize.pkl"))
