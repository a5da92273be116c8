"""Learning on a simulated robot, killed at random moments: what is lost, and when it is solved.

Use: python -m benchmarks.learning_on_a_robot --task swing_up --kills 5 --out trial

`run-robot --learn` is started again after each `kill -9`, of the process that acts, of the one that
learns, or of both. At the end every line of every session's own log must be a transition of the
run, in the same place, the replay buffer must hold each transition once, and no joint may ever
have been beyond the limits that the shield keeps.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import rlzoo_plus
from rlzoo_plus.learner.transition_log import FILE, Layout, LogReader
from rlzoo_plus.runs.load import load

# Small networks that learn fast: Stable-Baselines3's SAC with four updates a step that begins with
# little entropy.
SAC = [
    *("algo=sac", "network.net_arch=[64,64]", "report.video=false", "eval.episodes=3"),
    *(f"algo.hyperparams.{name}" for name in (
        "batch_size=256", "gradient_steps=4", "learning_rate=1e-3", "gamma=0.99", "tau=0.01",
        "learning_starts=500", "ent_coef=auto_0.1",
    )),
]  # fmt: skip
# Of each task: robot steps in 8 minutes, the mean return that ends it, its words, and a joint with
# the limits that are kept [rad or m].
TASKS: dict[str, tuple[int, float, list[str], dict[str, float]]] = {
    "swing_up": (
        *(8 * 60 * 25, 190.0),
        [
            "env=cartpole_swingup",
            # 5 cm more than must be kept: a spinning pole pulls harder than the shield promises.
            "env.kwargs.safety={joint_margin: 12.75, deceleration: 1.5, on_violation: shield}",
        ],
        {"slider_to_cart": 2.3},
    ),
    "reach": (
        *(8 * 60 * 20, 42.5),
        [
            "env.id=benchmarks/TwoJointReach-v0",
            "env.packages=[benchmarks.two_joint_reach]",
            "env.kwargs.safety={joint_margin: 0.54, on_violation: shield}",
        ],
        {"joint_1": 2.6, "joint_2": 2.6},
    ),
}
WHO = ("acts", "learns", "both")


def main() -> None:
    """Run one trial and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True)
    steps, solved, words, limits = TASKS[options.task]
    run = options.out / "run"
    words = [
        *(*words, *SAC, "env.kwargs.engine=mujoco", f"seed={options.seed}", f"run_dir={run}"),
        *(f"n_timesteps={steps}", f"eval.every_steps={steps // 12}"),
        f"stop.reward_threshold={solved}",
        *("--learn", "--driver", "sim", "--set", "clock=simulated"),
    ]
    draws = random.Random(options.seed)
    killed = []
    for number in itertools.count():
        session = options.out / f"session{number}"
        process = start(words, session)
        if number < options.kills:
            who = WHO[number % len(WHO)]
            killed.append(f"{who} at {kill(process, run, who, draws):,}")
        process.wait()
        print(f"session {number} has ended with exit code {process.returncode}", flush=True)
        if (run / "result.json").is_file():
            break
    print(f"killed: {'; '.join(killed)}")
    check(run, options.out, limits, steps)


def start(words: list[str], session: Path) -> subprocess.Popen[bytes]:
    """Start a session."""
    command = [sys.executable, "-m", "rlzoo_plus", "run-robot", *words, "--out", str(session)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def kill(process: subprocess.Popen[bytes], run: Path, who: str, draws: random.Random) -> int:
    """Kill at a random moment; return about how many transitions there were."""
    before = size(run)
    more = draws.randint(8, 24) * 1000
    while size(run) < before + more and process.poll() is None:
        time.sleep(0.01)
    time.sleep(draws.random())
    if process.poll() is not None:
        raise SystemExit(f"the session ended before the kill: exit code {process.returncode}")
    learners = [
        int(child)
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if b"learning_process" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]
    for pid in {"acts": [process.pid], "learns": learners}.get(who, [process.pid, *learners]):
        os.kill(pid, signal.SIGKILL)
    return len(transitions(run))


def size(run: Path) -> int:
    """Return the bytes of the log of transitions."""
    file = run / FILE
    return file.stat().st_size if file.is_file() else 0


def transitions(run: Path) -> list[Any]:
    """Return all transitions of a run."""
    venv = rlzoo_plus.Run.open(run, trust=True).env()
    reader = LogReader(run / FILE, Layout(venv.observation_space, venv.action_space))
    venv.close()
    found: list[Any] = []
    while (row := reader.row(len(found))) is not None:
        found.append(row)
    return found


def check(run: Path, out: Path, limits: dict[str, float], steps: int) -> None:
    """Compare the transitions with the logs of the sessions and the replay buffer; print it."""
    rows = transitions(run)
    place = lines = missing = broken = 0
    farthest = dict.fromkeys(limits, 0.0)
    for session in sorted(out.glob("session*"), key=lambda path: int(path.name[7:])):
        log = session / "log.csv"
        if not log.is_file():
            continue
        with log.open() as file:
            told = [line for line in csv.DictReader(file) if None not in line.values()]
        if not told:
            continue
        # The first of this session's lines is the first transition after those of the last.
        starts = [n for n in range(place, len(rows)) if same(rows[n], told[0])]
        place = starts[0] if starts else place
        for number, line in enumerate(told):
            at = place + number
            missing += not (at < len(rows) and same(rows[at], line))
            for joint, limit in limits.items():
                reach = abs(float(line[f"position/{joint}"]))
                farthest[joint] = max(farthest[joint], reach)
                broken += reach > limit
        lines += len(told)
        place += len(told)
    opened = rlzoo_plus.Run.open(run, trust=True)
    buffer = opened.load_model().replay_buffer
    taken = int(buffer.pos)
    stored = buffer.rewards[:taken, 0]
    wanted = np.array([row.reward for row in rows[:taken]], np.float32)
    print(f"transitions {len(rows):,}, of which the replay buffer holds {taken:,}")
    print(f"lines of the sessions' logs {lines:,}, of which no transition {missing}")
    print(f"replay buffer equals the log: {bool((stored == wanted).all())}")
    print(f"limits broken {broken}; farthest {farthest}")
    for line in (run / "evaluations.jsonl").read_text().splitlines():
        record = json.loads(line)
        minutes = 8 * record["step"] / steps
        print(
            f"{minutes:.1f} min of the robot, step {record['step']:,}: "
            f"{record['mean_return']:.1f}, success {record['success_rate']}"
        )
    result = opened.result or {}
    print(f"ended: {result.get('reason')}; exact: {result.get('exact')}")


def same(row: Any, line: dict[str, str]) -> bool:
    """Return whether a transition is what a line of a session's log tells."""
    action = [float(value) for name, value in line.items() if name.startswith("policy/")]
    return float(line["reward"]) == np.float32(row.reward) and action == row.action.tolist()


if __name__ == "__main__":
    # Composed once here, so that a mistake in the words is told before anything starts.
    load(["env=cartpole_swingup", *SAC])
    main()
