"""What demonstrations save: SAC from scratch, with them in every batch, and cloned from them first.

    nice -n 19 python -m benchmarks.demonstrations franka_lift [panda_pick_and_place]
                         [--seeds 0 1 2 3 4] [--workers 1] [--short] [--out FOLDER]

A controller made by hand plays the demonstrations: 20 of franka_lift, 100 of pick and place, whose
reward is sparse. Each way trains until an evaluation of 20 episodes reaches the task's score, at
most so many steps; runs that are there already are not trained again. Prints the environment steps
that each seed took. With --short the other ways train as far as it takes to compare a seed with
its RLPD: cloned first as many steps, from scratch twice as many.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.controllers import lift_by_hand, pick_by_hand
from benchmarks.trained import curve_of, train_seeds
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.demonstrations.dataset import Dataset, Demonstration
from rlzoo_plus.demonstrations.minari_format import is_dataset, write_dataset
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.policies.entries import stacked
from rlzoo_plus.runs.load import load

Controller = Callable[[np.ndarray], np.ndarray]
FIRST_SEED = 10_000
CLONING = ("algo=bc_sac", "n_timesteps=100000", "eval.every_steps=100000")
HEADER = """\
| {name}, score {score:g} | steps to the score, each seed | best evaluation, each seed |
|---|---|---|"""


@dataclass(frozen=True)
class Task:
    """A task and how it is trained."""

    controller: Controller
    episodes: int  # demonstrations
    score: float  # mean return of an evaluation that ends a training
    steps: int  # at most, from scratch; the other ways have three quarters of them
    env: tuple[str, ...]
    settings: tuple[str, ...]  # of all ways


TASKS = {
    "franka_lift": Task(
        lift_by_hand,
        20,
        60.0,
        80_000,
        ("env=franka_lift", "env.kwargs.engine=mujoco"),
        ("algo.hyperparams.gamma=0.97",),
    ),
    "panda_pick_and_place": Task(
        pick_by_hand,
        100,
        -30.0,
        60_000,
        (
            "env=panda_pick_and_place",
            "env.wrappers=[reproducible_resets,flatten_observation]",
        ),
        (
            "algo.hyperparams.gamma=0.95",
            "algo.hyperparams.n_steps=3",
            "algo.hyperparams.learning_rate=1e-3",
            "algo.hyperparams.tau=0.02",
            "algo.hyperparams.ent_coef=auto_0.1",
        ),
    ),
}


def main() -> None:
    """Train what is missing, and print a table for each task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="+", choices=TASKS, metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="only as far as it takes to compare")
    parser.add_argument("--out", type=Path, default=Path("outputs/demonstrations"))
    options = parser.parse_args()
    for name in options.tasks:
        task, folder = TASKS[name], options.out.resolve() / name
        print(HEADER.format(name=name, score=task.score), flush=True)
        ways = _trained(task, folder, options.seeds, options.workers, short=options.short)
        for way, runs in ways:
            print(_row(way, runs, task.score), flush=True)


def _trained(
    task: Task, folder: Path, seeds: list[int], workers: int, *, short: bool
) -> Iterator[tuple[str, list[Path]]]:
    """Yield each way and its runs."""
    data = folder / "data"
    if not is_dataset(data):
        seeds_played = range(FIRST_SEED, FIRST_SEED + task.episodes)
        write_dataset(data, played(task.env, task.controller, seeds_played))
    both = [*task.env, "tuned=none", *task.settings, "report.video=false", "eval.episodes=20"]
    sac = [*both, "algo=sac", "fast=true", "eval.every_steps=2500"]
    sac.append(f"stop.reward_threshold={task.score}")
    fewer = f"n_timesteps={task.steps * 3 // 4}"
    mixed = [*sac, fewer, "network=layer_norm", f"data={data}"]
    runs = train_seeds(folder / "mixed", seeds, workers, mixed)
    yield "in every batch (RLPD)", runs
    needed = [steps_to(task.score, run) or task.steps for run in runs]
    words = [*task.env, "tuned=none", *CLONING, f"data={data}", "report.video=false"]
    cloned = train_seeds(folder / "cloned", seeds, workers, words)
    runs = []
    for seed, source, steps in zip(seeds, cloned, needed, strict=True):
        length = f"n_timesteps={steps}" if short else fewer
        words = [*sac, length, f"init_from={source}"]
        runs += train_seeds(folder / f"after_cloning_{seed}", [seed], 1, words)
    yield "cloned first", runs
    if short:
        runs = []
        for seed, steps in zip(seeds, needed, strict=True):
            words = [*sac, f"n_timesteps={2 * steps}"]
            runs += train_seeds(folder / f"scratch_{seed}", [seed], 1, words)
        yield "from scratch", runs
    else:
        words = [*sac, f"n_timesteps={task.steps}"]
        yield "from scratch", train_seeds(folder / "scratch", seeds, workers, words)


def played(
    env_words: Sequence[str], controller: Controller, seeds: Iterable[int], *, push: float = 0.0
) -> Dataset:
    """Return episodes of a controller.

    Args:
        env_words: Its task.
        controller: Returns an action for an observation.
        seeds: One for each episode.
        push: How far its actions are pushed aside at most in a step, four fifths of which last to
            the next one. With any, the episodes show how to come back, and only those that succeed
            are kept; the actions are those that the controller wanted.
    """
    spec: EnvConfig = load(list(env_words)).env
    env, rng, episodes = make_env(spec), np.random.default_rng(0), []
    for seed in seeds:
        observation, info = env.reset(seed=seed)
        seen, actions, rewards = [observation], [], []
        pushed, strength = np.zeros_like(controller(observation)), push * rng.uniform()
        terminated = truncated = False
        while not (terminated or truncated):
            action = np.clip(controller(observation), -1, 1).astype(np.float32)
            pushed = 0.8 * pushed + strength * rng.normal(size=pushed.shape)
            given = np.clip(action + pushed, -1, 1).astype(np.float32)
            observation, reward, terminated, truncated, info = env.step(given)
            seen.append(observation)
            actions.append(action)
            rewards.append(float(reward))
        if not push or info["is_success"]:
            row = (stacked(seen), np.stack(actions), np.array(rewards), bool(terminated), seed)
            episodes.append(Demonstration(*row))
    about = {"dataset_id": f"{spec.name}/by-hand-v0", "algorithm_name": "a controller by hand"}
    found = Dataset(env.observation_space, env.action_space, episodes, about)
    env.close()
    return found


def steps_to(score: float, run: Path) -> int | None:
    """Return the step of the first evaluation with this mean return, None without one."""
    return next((step for step, mean in curve_of(run) if mean >= score), None)


def _row(way: str, runs: list[Path], score: float) -> str:
    told = []
    for run in runs:
        reached, last = steps_to(score, run), curve_of(run)[-1][0]
        told.append(f"not in {last:,}" if reached is None else f"{reached:,}")
    best = ", ".join(f"{max(mean for _, mean in curve_of(run)):.1f}" for run in runs)
    return f"| {way} | {', '.join(told)} | {best} |"


if __name__ == "__main__":
    main()
