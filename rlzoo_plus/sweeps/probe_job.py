"""The inside of a probe's process: trains for some seconds, and writes how fast that was."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.own_code import import_packages, packages_of
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.factory import make_eval_env
from rlzoo_plus.envs.single import scheduled
from rlzoo_plus.errors import RunError
from rlzoo_plus.sweeps.probe import RATES_FILE, warm_steps
from rlzoo_plus.training.callbacks.base import RunCallback
from rlzoo_plus.training.evaluation import play
from rlzoo_plus.training.exp_manager import manager_of

# Shares of the probe's time.
_LEAST_WINDOW, _FOR_EVALUATION = 0.5, 0.15


class RateMeter(RunCallback):
    """Measures steps a second from the end of the first update, and ends the training."""

    def __init__(self, until: float, least_s: float, warm_steps: int) -> None:
        """Measure nothing yet.

        It ends at `until`, in `time.monotonic` [s], but trains for `least_s` [s]; the first update
        is over after `warm_steps`.
        """
        super().__init__()
        self._until, self._least_s, self._warm_steps = until, least_s, warm_steps
        # Time and steps by event.
        self._marks: dict[str, tuple[float, int]] = {}

    def on_iteration(self) -> None:
        """Note the time and the steps."""
        now, n_steps = time.monotonic(), self.model.num_timesteps
        if not self._marks:
            self._until = max(self._until, now + self._least_s)
            self._marks["begin"] = (now, n_steps)
        if n_steps >= self._warm_steps:
            self._marks.setdefault("warm", (now, n_steps))
        self._marks["iteration"] = (now, n_steps)
        self._on_step()

    def on_evaluation(self, record: dict[str, Any], is_best: bool) -> None:
        """Ignore evaluations: there are none."""

    def close(self) -> None:
        """Release nothing."""

    def rates(self) -> dict[str, Any]:
        """Return the steps a second, and whether they are rough: no second iteration was seen."""
        windows = [("warm", "iteration", 0.25 * self._least_s)]
        windows += [("begin", "iteration", 0.0), ("begin", "step", 0.0)]
        for first, last, least_s in windows:
            if first in self._marks:
                began, ended = self._marks[first], self._marks[last]
                seconds, steps = ended[0] - began[0], ended[1] - began[1]
                if seconds > 0 and seconds >= least_s and steps > 0:
                    return {"rate": steps / seconds, "rough": first == "begin"}
        return {"rate": None, "rough": True}

    def _on_step(self) -> bool:
        now = time.monotonic()
        self._marks["step"] = (now, self.model.num_timesteps)
        if now >= self._until:
            raise StopTraining("the probe is over", interrupted=True)
        return True


def run_probe(data: dict[str, Any]) -> int:
    """Train the `config` for `seconds`, and `evaluate` it; write rates into its directory."""
    seconds = float(data["seconds"])
    for_evaluation = _FOR_EVALUATION * seconds if data["evaluate"] else 0.0
    until = time.monotonic() + seconds - for_evaluation
    config = RunConfig.model_validate(data["config"])
    import_packages(config)
    run_dir = RunDir(Path(str(config.run_dir)))
    run_dir.path.mkdir(parents=True)
    run_dir.start(data["config"], "rlzoo-plus doctor", {})
    meter = RateMeter(until, _LEAST_WINDOW * seconds, warm_steps(config))
    try:
        manager_of(config)(config, run_dir, progress=meter).train()  # type: ignore[arg-type]
    except RunError as error:
        # The user is shown the last line of the log.
        print(error)
        return 1
    rates = meter.rates()
    if data["evaluate"]:
        rates["eval_rate"] = _evaluation_rate(meter.model, config, for_evaluation)
    (run_dir.path / RATES_FILE).write_text(json.dumps(rates))
    return 0


def only_import(_data: dict[str, Any]) -> int:
    """Do nothing, in a process that has everything imported."""
    return 0


def _evaluation_rate(agent: Any, config: RunConfig, seconds: float) -> float | None:
    """Return the steps a second of evaluations, None if there was no time for two."""
    n_envs = scheduled(config).eval.n_envs
    assert isinstance(n_envs, int)
    venv = make_eval_env(config.env, n_envs, config.vec_env, packages=packages_of(config))
    try:
        steps, began = 0, time.monotonic()
        for _ in play(Policy.of_agent(agent), venv, deterministic=config.eval.deterministic):
            # The first reset and the first call take longer than all the others.
            if steps == 0:
                began = time.monotonic()
            steps += n_envs
            if time.monotonic() - began >= seconds:
                break
        return (steps - n_envs) / max(time.monotonic() - began, 1e-9) or None
    finally:
        venv.close()
