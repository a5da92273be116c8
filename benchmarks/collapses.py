"""Twenty planted collapses: does `rlzoo-plus bisect` find the update that each began with?

    python -m benchmarks.collapses [--only NAME] [--keep DIR]

Each run is a few seconds of PPO, A2C, SAC, TD3 or DQN on CartPole or Pendulum, with something
planted: a learning rate that jumps, an observation that becomes NaN or huge, a reward that
explodes, a callback that spoils the weights. While it trains, every update is noted here, which
bisect does not see: it has the run directory alone, with a sparse log and few checkpoints. Exits
with 1 unless it names the same update in every run, with at most log2(N) + 1 replays.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import dispatch
from rlzoo_plus.config.own_code import import_packages
from rlzoo_plus.errors import RunError
from rlzoo_plus.runs.load import load
from rlzoo_plus.training.exp_manager import ExpManager

_HERE = "benchmarks.collapses"
PPO = ("algo=ppo", "env=CartPole-v1", "n_timesteps=2048", "algo.hyperparams.n_steps=64")
PPO += ("algo.hyperparams.batch_size=32", "algo.hyperparams.n_epochs=2", "n_envs=1")
A2C = ("algo=a2c", "env=CartPole-v1", "n_timesteps=2000", "algo.hyperparams.n_steps=8", "n_envs=1")
OFF_POLICY = ("env=pendulum", "n_timesteps=700", "algo.hyperparams.learning_starts=100", "n_envs=1")
OFF_POLICY += ("algo.hyperparams.batch_size=32", "algo.hyperparams.buffer_size=2000")
OFF_POLICY += ("algo.hyperparams.train_freq=1", "algo.hyperparams.gradient_steps=1")
SAC, TD3 = ("algo=sac", *OFF_POLICY), ("algo=td3", *OFF_POLICY)
DQN = ("algo=dqn", *OFF_POLICY, "env=CartPole-v1", "algo.hyperparams.train_freq=2")
SMALL = ("tuned=none", "network.net_arch=[16]", "normalize=false", "device=cpu", "num_threads=1")
SMALL += ("eval.every_steps=null", "log.tensorboard=false", "report.plot=false")
SMALL += ("report.video=false", "checkpoint.every_minutes=null", "checkpoint.keep=10")


class Planted(gym.Wrapper):
    """Wrapper whose observation or reward goes wrong from one step of the training on.

    Its count of steps outlasts an episode, so it has a state.
    """

    def __init__(self, env: gym.Env, what: str, at: int, size: str = "1e6") -> None:
        super().__init__(env)
        self._what, self._at, self._size, self._count = what, at, float(size), 0

    def state_dict(self) -> dict[str, int]:
        """Return the steps so far."""
        return {"count": self._count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a state."""
        self._count = int(state["count"])

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Act; from the planted step on, spoil what comes of it."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._count += 1
        if self._count < self._at or (self._what.endswith("_once") and self._count > self._at):
            return observation, reward, terminated, truncated, info
        if self._what.startswith("observation"):
            observation = np.full_like(observation, self._size)
        else:
            reward = float(reward) * self._size
        return observation, reward, terminated, truncated, info


class Spoils(BaseCallback):
    """Callback that multiplies every weight of the policy, once."""

    def __init__(self, at: int = 0, factor: float = 1e3) -> None:
        super().__init__()
        self.at, self.factor = at, factor

    def _on_step(self) -> bool:
        if self.num_timesteps == self.at:
            with torch.no_grad():
                for parameter in self.model.policy.parameters():
                    parameter.mul_(self.factor)
        return True


def jump(progress_remaining: float) -> float:
    """Return a learning rate that jumps after six tenths of a run."""
    return 3.0 if progress_remaining < 0.4 else 3e-4


def leap(progress_remaining: float) -> float:
    """Return a learning rate that becomes absurd after half of a run."""
    return 1e30 if progress_remaining < 0.5 else 3e-4


def planted(what: str, at: int, size: float = 1e6) -> str:
    """Return the override that plants something in the environment."""
    return f"env.wrappers=[{{{_HERE}.Planted: {{what: {what}, at: {at}, size: '{size}'}}}}]"


def schedule(name: str) -> str:
    """Return the override of a learning rate."""
    return f"algo.hyperparams.learning_rate={_HERE}.{name}"


@dataclass(frozen=True)
class Case:
    """A planted collapse."""

    name: str
    overrides: tuple[str, ...]
    when: str
    every_steps: int | None  # between checkpoints
    log_interval: int = 5
    after: int = 0


CASES = (
    Case("ppo rate, seen in the rate", (*PPO, schedule("jump")), "train/learning_rate > 1", 512),
    Case("ppo rate, seen in the KL", (*PPO, schedule("jump")), "train/approx_kl > 0.5", 256),
    Case("ppo rate, no checkpoint", (*PPO, schedule("jump")), "train/learning_rate > 1", None),
    Case("ppo rate becomes NaN", (*PPO, schedule("leap")), "nan", 256),
    Case("ppo NaN seen", (*PPO, planted("observation", 1000, math.nan)), "nan", 256),
    Case("ppo inf seen, no checkpoint", (*PPO, planted("observation", 700, math.inf)), "nan", None),
    Case("sac huge seen", (*SAC, planted("observation", 400, 1e6)), "train/critic_loss > 1e6", 100,
         1),
    Case("ppo reward", (*PPO, planted("reward", 1300)), "train/value_loss > 1e6", 512),
    Case("ppo reward once", (*PPO, planted("reward_once", 777)), "train/value_loss > 1e6", 512, 1),
    Case("ppo NaN reward", (*PPO, planted("reward", 1500, math.nan)), "nan", 512),
    Case("ppo return rises", (*PPO, planted("reward", 600)), "rollout/ep_rew_mean > 1e4", 512, 1),
    Case("ppo weights", (*PPO, f"callbacks=[{{{_HERE}.Spoils: {{at: 1200}}}}]"),
         "train/value_loss > 1e3", 512),
    Case("a2c reward", (*A2C, planted("reward", 1111)), "train/value_loss > 1e6", 256, 20),
    Case("a2c rate", (*A2C, schedule("jump")), "train/learning_rate > 1", 512, 20),
    Case("a2c huge reward", (*A2C, planted("reward", 777, 1e30)), "nan", 512, 20),
    Case("sac rate", (*SAC, schedule("jump")), "train/learning_rate > 1", 150, 1),
    Case("sac NaN seen", (*SAC, planted("observation", 555, math.nan)), "nan", 150, 1),
    Case("sac reward", (*SAC, planted("reward", 333)), "train/critic_loss > 1e6", 100, 1),
    Case("td3 reward", (*TD3, planted("reward", 450)), "train/critic_loss > 1e6", 100, 1),
    Case("dqn reward", (*DQN, planted("reward", 500)), "train/loss > 100", 100, 1),
)  # fmt: skip


@dataclass
class Noting(ExpManager):
    """Trains a run, and notes every update by itself."""

    updates: list[dict[str, Any]] = field(default_factory=list)
    rows: list[tuple[int, int, dict[str, float]]] = field(default_factory=list)

    def _attach(self, stack: Any, agent: Any, *given: Any) -> Any:
        callbacks = super()._attach(stack, agent, *given)
        dump, agent.train = agent.logger.dump, partial(self._note, agent, agent.train)

        def dumped(step: int = 0) -> None:
            self.rows.append((len(self.updates), step, dict(agent.logger.name_to_value)))
            dump(step)

        agent.logger.dump = dumped
        return callbacks

    def _note(self, agent: Any, train: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        known = {"iteration": agent.iterations, "step": agent.num_timesteps}
        self.updates.append(known)
        train(*args, **kwargs)
        weights = agent.policy.parameters()
        known["is_nan"] = not all(bool(torch.isfinite(w).all()) for w in weights)
        known |= dict(agent.logger.name_to_value)
        losses = [value for name, value in known.items() if name.endswith("loss")]
        known["is_nan"] = known["is_nan"] or not all(map(math.isfinite, losses))


def expected(case: Case, noted: Noting, message: str) -> int:
    """Return the iteration of the first update after which the condition held."""
    if case.when == "nan":
        lost = [one["iteration"] for one in noted.updates if one.get("is_nan", True)]
        assert lost or message, "nothing was lost"
        return lost[0] if lost else noted.updates[-1]["iteration"]
    metric, sign, number = case.when.split()
    holds = (lambda v: v > float(number)) if sign == ">" else (lambda v: v < float(number))
    if metric.startswith("rollout/"):
        place = next(n for n, step, v in noted.rows if step >= case.after and holds(v[metric]))
        return int(noted.updates[place - 1]["iteration"])
    return next(u["iteration"] for u in noted.updates if metric in u and holds(u[metric]))


def run_case(case: Case, folder: Path) -> tuple[bool, str]:
    """Train a case and bisect it; return whether bisect was right, and a line about it."""
    overrides = [*case.overrides, *SMALL, f"log.interval={case.log_interval}"]
    overrides += [f"checkpoint.every_steps={case.every_steps or 'null'}"]
    given = {word.partition("=")[0]: word for word in overrides}
    config = load(list(given.values()))
    import_packages(config)
    run_dir = RunDir(folder / case.name.replace(" ", "-").replace(",", ""))
    run_dir.path.mkdir(parents=True)
    run_dir.start(config.whole(), "benchmarks.collapses", {})
    noted, message = Noting(config, run_dir), ""
    try:
        noted.train()
    except RunError as error:
        message = str(error)
    truth = expected(case, noted, message)
    out, said, started = folder / "found.json", io.StringIO(), time.monotonic()
    arguments = [str(run_dir.path), "--when", case.when, "--trust", "--out", str(out)]
    arguments += [f"--after={case.after}"] if case.after else []
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = dispatch.run("bisect", arguments)
    if code != 0:
        return False, f"expected {truth}; {said.getvalue().strip()}"
    found = json.loads(out.read_text())
    bound = math.log2(max(len(noted.updates), 1)) + 1
    is_right = found["iteration"] == truth and found["replays"] <= bound
    return is_right, (
        f"iteration {found['iteration']}, is {truth} ({len(noted.updates)} updates); "
        f"{found['replays']} x replayed, {found['replayed']} updates in all, "
        f"{time.monotonic() - started:.1f} s"
    )


def main() -> int:
    """Run the cases; return 1 if one came out wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="cases with this text in their name")
    parser.add_argument("--keep", type=Path, help="keep the runs in this new folder")
    options = parser.parse_args()
    right, cases = 0, [case for case in CASES if options.only in case.name]
    with tempfile.TemporaryDirectory(prefix="rlzoo-collapses-") as folder:
        for case in cases:
            good, line = run_case(case, options.keep or Path(folder))
            right += good
            print(
                f"{'ok   ' if good else 'WRONG'} {case.name:28} {case.when:26} {line}", flush=True
            )
    print(f"{right} of {len(cases)} found")
    return 0 if right == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
