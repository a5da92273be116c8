"""What `identify` finds out about hidden twins of the robots: the tables of its page.

    python -m benchmarks.identification [--seconds 60] [--twins 0 3] [--train 0 1 2] [--out FOLDER]

Each twin is a shipped robot, on either engine, whose mass, motor strength, damping, friction and
latency were drawn by its number. It is driven by sines and random steps for a minute; the log has
noise. Every other robot was weighed, so that its mass is known. With `--train`, policies of these
seeds are trained with the nominal robot and with what was identified, and play on twin 2. See
docs/robots/identification.md.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.identify.fitting import NOT_TOLD, TOLD, Fit
from rlzoo_plus.identify.identification import identify
from rlzoo_plus.identify.logs import state_of
from rlzoo_plus.runs.load import load

ROOT = Path(__file__).resolve().parents[1]
ROBOTS = (
    *("cartpole_swingup", "cartpole_bullet", "double_pendulum", "kuka_reach"),
    "cartpole_swingup",
)
ENGINES = ("bullet", "mujoco")
# Standard deviation of the noise of positions [m, rad] and velocities [m/s, rad/s].
NOISE = (1e-3, 5e-3)
TRAINED = 2
# Steps of a training: three times the shipped budget, since it acts late.
STEPS = 122_880
HEADER = """\
| twin | parameter | true | fitted | 95% interval | error | the log |
|---|---|---|---|---|---|---|"""


@dataclass(frozen=True)
class Twin:
    """A robot that differs from the shipped one."""

    number: int
    env: str
    engine: str
    hidden: dict[str, Any]  # Its randomization: constants
    latency: int
    known: list[str]  # What was measured otherwise, for `--known`

    @property
    def name(self) -> str:
        """What it is called in the tables."""
        weighed = ", weighed" if self.known else ""
        return f"{self.number}: {self.env}, {self.engine}{weighed}"


def make_twin(number: int) -> Twin:
    """Draw a twin."""
    rng = np.random.default_rng((2026, number))
    env, engine = ROBOTS[number // 2], ENGINES[number % 2]
    spec = load([f"env={env}", f"env.kwargs.engine={engine}"]).env
    with closing(make_env(spec)) as made:
        base: Any = made.unwrapped
        joints = [joint.name for joint in base.robot.joints]
        slides = [joint.slides for joint in base.robot.joints]
        is_arm = base.robot.drive.n_actions > 1
    mass = float(rng.uniform(0.7, 1.5))
    most = [1.0 if one else 0.03 for one in slides]
    damping = [float(top * rng.uniform(0.2, 1.0)) * (30.0 if is_arm else 1.0) for top in most]
    hidden = {
        "mass": mass,
        "motor_strength": float(rng.uniform(0.5, 1.0)) * (0.5 if is_arm else 1.0),
        "joint_damping": {"joints": dict(zip(joints, damping, strict=True))},
    }
    latency = int(rng.integers(0, 4))
    if number == TRAINED:  # Later and weaker than the nominal policy stands.
        hidden["mass"], hidden["motor_strength"], latency = 1.2, 0.8, 6
    if number >= 8:
        frictions = [float(top * rng.uniform(0.2, 0.5)) for top in most]
        hidden["joint_friction"] = {"joints": dict(zip(joints, frictions, strict=True))}
    if number == 9:
        added = [float(top * rng.uniform(0.1, 0.3)) for top in most]
        hidden["armature"] = {"joints": dict(zip(joints, added, strict=True))}
    known = [f"mass={hidden['mass']!r}"] if number % 4 > 1 else []
    return Twin(number, env, engine, hidden, latency, known)


def record(twin: Twin, seconds: float, path: Path) -> EnvConfig:
    """Drive a twin, write its log, and return the environment of the nominal robot."""
    spec = load([f"env={twin.env}", f"env.kwargs.engine={twin.engine}"]).env
    changed = {"randomization": twin.hidden, "latency": twin.latency, "episode_s": 1e4}
    rng = np.random.default_rng((2027, twin.number))
    with closing(make_env(spec.model_copy(update={"kwargs": {**spec.kwargs, **changed}}))) as env:
        base: Any = env.unwrapped
        env.reset(seed=twin.number)
        robot, step_s = base.robot, base.simulation.step_s
        count, joints = robot.drive.n_actions, [joint.name for joint in robot.joints]
        hertz = rng.uniform(0.2, 2.5, (count, 5))
        phase = rng.uniform(0.0, 2 * np.pi, (count, 5))
        columns = [joints.index(joint.name) for joint in robot.actuated]
        # A force drives a cart off its rail, and displacements an arm to its limits.
        pull, brake = (0.3, 0.2) if count == 1 else (1.0, 0.0)
        rows = []
        for step in range(round(seconds / step_s)):
            if step % 4 == 0:
                held = rng.uniform(-1.0, 1.0, count)
            state = state_of(base)
            position, velocity = state[: len(joints)], state[len(joints) : 2 * len(joints)]
            sines = np.sin(2 * np.pi * hertz * step * step_s + phase).sum(axis=1)
            back = pull * (position - robot.rest_position) + brake * velocity
            action = np.clip(0.35 * sines + 0.5 * held - back[columns][:count], -1.0, 1.0)
            base.step(action)
            seen = [x + NOISE[0] * rng.standard_normal() for x in position]
            moving = [x + NOISE[1] * rng.standard_normal() for x in velocity]
            rows.append([step * step_s, *action, *seen, *moving])
    names = [f"{what}/{joint}" for what in ("position", "velocity") for joint in joints]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", *(f"action/{i}" for i in range(count)), *names])
        writer.writerows(rows)
    return spec


def rows_of(twin: Twin, fit: Fit) -> list[tuple[str, ...]]:
    """Return a row for each parameter: true, fitted, interval, error, told or not."""
    rows = []
    for one in fit.estimates:
        hidden = twin.hidden.get(one.parameter.name, one.parameter.nominal)
        if one.parameter.joint is not None:
            hidden = hidden["joints"][one.parameter.joint] if isinstance(hidden, dict) else hidden
        true = float(hidden)
        if "motor_strength" in one.given:
            true /= twin.hidden["motor_strength"]
        is_said = one.status != NOT_TOLD and one.low != one.high
        interval = f"{one.low:.4g} to {one.high:.4g}" if is_said else "-"
        error = f"{one.value / true - 1:+.1%}" if true and is_said else "-"
        said = f"{one.status}, by motor_strength" if one.given else one.status
        cells = (str(one.parameter), f"{true:.4g}", f"{one.value:.4g}", interval, error, said)
        rows.append((twin.name, *cells))
    latency, left = str(twin.latency), "/".join(map(str, sorted(fit.latencies)))
    right = "0" if fit.latencies[0] == twin.latency else "wrong"
    found = (latency, str(fit.latencies[0]), left, right, fit.latency_status)
    return [*rows, (twin.name, "latency", *found)]


def train(folder: Path, twin: Twin, seed: int, experiment: Path | None) -> float:
    """Train a policy if it is not there; return its success on the twin."""
    run = folder / f"{'identified' if experiment else 'plain'}-s{seed}"
    words = [f"env={twin.env}", "algo=ppo", f"seed={seed}", f"run_dir={run.resolve()}"]
    words += [f"env.kwargs.engine={twin.engine}", "num_threads=1", "report.video=false"]
    words += ["log.progress=false", f"n_timesteps={STEPS}"]
    if experiment is not None:
        folder_of = experiment.resolve().parent.parent
        words = ["--config-dir", str(folder_of), f"experiment={experiment.stem}", *words]
    if not (run / "result.json").is_file():
        subprocess.run(
            [sys.executable, "train.py", *words],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            check=True,
            stdout=subprocess.DEVNULL,
        )
    from rlzoo_plus.envs.factory import make_eval_env
    from rlzoo_plus.envs.seeding import held_out_seeds
    from rlzoo_plus.runs.run import Run
    from rlzoo_plus.training.evaluation import evaluate, one_torch_thread

    opened = Run.open(run)
    kwargs = {"engine": twin.engine, "randomization": twin.hidden, "latency": twin.latency}
    spec = opened.config.env.model_copy(update={"kwargs": kwargs})
    with one_torch_thread(), closing(make_eval_env(spec, 10)) as venv:
        found = evaluate(opened.policy("best"), venv, held_out_seeds(50))
    return float(np.mean(found.successes))


def main() -> None:
    """Identify the twins, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--twins", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--train", type=int, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=Path("outputs/identification"))
    options = parser.parse_args()
    if options.train and TRAINED not in options.twins:
        parser.error(f"--train trains with twin {TRAINED}: name it in --twins, or leave that out")
    (options.out / "experiment").mkdir(parents=True, exist_ok=True)
    print(HEADER, flush=True)
    n_told, errors = 0, []
    for number in options.twins:
        twin, began = make_twin(number), time.process_time()
        path = options.out / f"twin{number}.csv"
        spec = record(twin, options.seconds, path)
        out = options.out / "experiment" / f"twin{number}.yaml"
        fit, _ = identify(path, spec, twin.known, out=out, command=[], run_of=_no_run)
        for cells in rows_of(twin, fit):
            print(f"| {' | '.join(cells)} |", flush=True)
            if cells[-1].startswith(TOLD):
                n_told += 1
                errors.append(1.0 if cells[5] == "wrong" else abs(float(cells[5].strip("%"))) / 100)
        print(f"{twin.name}: {time.process_time() - began:.0f} s", file=sys.stderr, flush=True)
    within = sum(error <= 0.1 for error in errors)
    print(f"\n{within} of {n_told} that the log tells are within 10%; worst {max(errors):.1%}")
    for seed in options.train:
        twin = make_twin(TRAINED)
        experiment = options.out / "experiment" / f"twin{TRAINED}.yaml"
        for kind in (None, experiment):
            share = train(options.out, twin, seed, kind)
            name = "with what was identified" if kind else "with the nominal robot"
            print(f"seed {seed}, trained {name}: success {share:.0%}", flush=True)


def _no_run(file: Path, about: dict[str, Any]) -> Any:
    raise AssertionError(f"{file} is no saved episode")


if __name__ == "__main__":
    main()
