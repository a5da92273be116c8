"""Whether a shield keeps its limits under random policies, and what it costs.

    python -m benchmarks.shield [--policies 1000] [--steps 1000] [--engine mujoco] [--robots a1 ...]

Each policy is uniform noise, a sine, a switch between the ends, a constant, or one that pushes all
joints to a limit for a while and then to the other. Prints for each robot and limit what it
promises, the steps that broke it, those among them that began while a motor was at its greatest
force, and the steps that it changed; then the same without a shield, for fewer policies; then the
processor time of a projection.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

import robots
from robots.conditions import shielded_targets
from robots.engines.compiling import SWITCH
from robots.env import BaseRobotEnv
from robots.vec_env import RobotVecEnv

Floats = NDArray[np.float64]

ROBOTS: dict[str, tuple[str, dict[str, Any]]] = {
    "cart-pole": (
        "robots/CartPoleBalance-v0",
        # The rail ends at 15 m: the cart turns before 0.2 m.
        {"joint_margin": 14.8, "max_velocity": 1.0, "max_torque": 8.0, "max_action_rate": 0.5},
    ),
    "swing-up": (
        # Its pole spins, and pulls harder than the weight that the promise is about.
        "robots/CartPoleSwingUp-v0",
        {"joint_margin": 13.5, "max_velocity": 1.0, "max_torque": 8.0, "max_action_rate": 0.5},
    ),
    "a1": (
        # The limits of its description; within narrower ones the ground moves the joints of a
        # robot that falls harder than its motors can stop them.
        "robots/A1Walk-v1",
        {"joint_margin": 0.0, "max_velocity": 21.0, "max_torque": 33.5, "max_action_rate": 0.5},
    ),
    "kuka": (
        "robots/KukaReach-v1",
        {
            **{"joint_margin": 0.1, "max_velocity": 1.2, "max_torque": 200.0},
            **{"max_action_rate": 0.5, "workspace": [[0.3, -0.5, 0.2], [0.8, 0.5, 0.9]]},
        },
    ),
    "franka": (
        "robots/FrankaPush-v0",
        {
            **{"joint_margin": 0.05, "max_velocity": 1.5, "max_torque": 80.0},
            **{"max_action_rate": 0.5, "workspace": [[0.25, -0.35, 0.015], [0.6, 0.35, 0.4]]},
        },
    ),
}
N_WORLDS = 25
FULL_FORCE = 0.999


def main() -> None:
    """Count and print."""
    os.environ[SWITCH] = "0"  # In Python, physics steps can be watched; the numbers are the same.
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policies", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--without", type=int, default=50, help="policies without a shield")
    parser.add_argument("--engine", default=None)
    parser.add_argument("--robots", nargs="+", default=list(ROBOTS), choices=list(ROBOTS))
    options = parser.parse_args()
    print("| robot | limit | promise | broken | of these at full force | changed | without |")
    print("|---|---|---|---|---|---|---|")
    costs = []
    for name in options.robots:
        worlds = make(name, "shield", options.engine)
        shield = worlds.envs[0].conditions.shield
        found = count(worlds, options.policies, options.steps)
        plain = count(make(name, "count", options.engine), options.without, options.steps)
        per = {one["steps"] or 1: one for one in (found, plain)}
        for kind in shield.kinds:
            row = (f"{found[part, kind]:,}" for part in ("broken", "at full force"))
            changed, open_share = (
                f"{one[part, kind] / max(one['steps'], 1):.2%}"
                for one, part in ((found, "changed"), (plain, "broken"))
            )
            cells = (name, kind, shield.promises[kind], *row, changed, open_share)
            print("| " + " | ".join(cells) + " |", flush=True)
        print(f"{name}: {max(per):,} steps, {found['episodes']:,} episodes.", flush=True)
        costs.append((name, *cost(worlds)))
        worlds.close()
    print("\n| robot | one world [us] | each of many [us] |\n|---|---|---|")
    for name, one, many in costs:
        print(f"| {name} | {one:.0f} | {many:.1f} |")


def make(name: str, answer: str, engine: str | None) -> RobotVecEnv:
    """Return worlds of a robot with its limits."""
    env_id, limits = ROBOTS[name]
    robots.register_robots()
    safety = {**limits, "on_violation": answer}
    envs = [gymnasium.make(env_id, engine=engine, safety=safety) for _ in range(N_WORLDS)]
    return RobotVecEnv([env.unwrapped for env in envs])  # type: ignore[misc]


def count(worlds: RobotVecEnv, policies: int, steps: int) -> Counter[Any]:
    """Return steps that broke or changed something, by what and limit, with many policies."""
    found: Counter[Any] = Counter()
    peaks = [Peak(env) for env in worlds.envs]
    for first in range(0, policies, N_WORLDS):
        for index in range(N_WORLDS):
            worlds.reset_world(index, first + index)
        n_used = min(N_WORLDS, policies - first)
        size = worlds.single_action_space.shape[0]
        acts = [policy(first + index, size) for index in range(N_WORLDS)]
        # Limits that a motor at its greatest force let go, until they hold again.
        beyond: list[set[str]] = [set() for _ in range(N_WORLDS)]
        for step in range(steps):
            actions = np.array([act(step) for act in acts], np.float32)
            _, _, terminated, truncated, infos = worlds.step_worlds(actions)
            for index in range(n_used):
                info = infos[index]
                found["steps"] += 1
                broken = info.get("violations", {}).keys()
                beyond[index] = set(broken) if peaks[index].is_full else beyond[index] & broken
                for kind in broken:
                    found["broken", kind] += 1
                    found["at full force", kind] += kind in beyond[index]
                for kind in info.get("shield", ()):
                    found["changed", kind] += 1
            for index in np.flatnonzero(terminated | truncated).tolist():
                worlds.reset_world(index)
                beyond[index] = set()
                found["episodes"] += 1
    return found


class Peak:
    """Whether a motor of a world was at its greatest force in a physics step of the last step."""

    def __init__(self, env: BaseRobotEnv) -> None:
        """Watch an environment; torques that are commanded are never more than the motors have."""
        self.is_full = False
        motors = env.robot.drive.motors
        if env.robot.without_motor and env.robot.actuated[0] in env.robot.without_motor:
            return
        simulation, count = env.simulation, len(motors.joints)
        read = simulation.joint_reader(motors.body, motors.indices, efforts=True)

        def step() -> None:
            self.is_full = False
            for _ in range(simulation.substeps):
                simulation.substep()
                efforts = zip(read()[-count:], motors.forces, strict=True)
                self.is_full |= any(abs(x) > FULL_FORCE * force for x, force in efforts)

        simulation.step = step


def policy(seed: int, size: int) -> Callable[[int], Floats]:
    """Return one of five kinds of policies without a purpose."""
    rng = np.random.default_rng(seed)
    held, until = rng.choice([-1.0, 1.0], size), 0
    amplitude, frequency = rng.uniform(0.3, 1.0, size), rng.uniform(0.02, 1.5, size)
    phase = rng.uniform(-np.pi, np.pi, size)

    def act(step: int) -> Floats:
        nonlocal held, until
        kind = seed % 5
        if kind == 0:
            return rng.uniform(-1.0, 1.0, size)
        if kind == 1:
            return amplitude * np.sin(frequency * step + phase)
        if kind == 2:
            return np.sign(np.sin(frequency * step + phase))
        if kind == 3:
            return held * amplitude
        if step >= until:
            held, until = -held, step + int(rng.integers(5, 120))
            held[rng.integers(size)] *= -1.0
        return held

    return act


def cost(worlds: RobotVecEnv, repeats: int = 300) -> tuple[float, float]:
    """Return the processor time [us] of what a shield does in a step, alone and in many worlds."""
    conditions = [env.conditions for env in worlds.envs if env.conditions is not None]
    shield, first = conditions[0].shield, worlds.envs[0]
    assert shield is not None
    columns = conditions[0].columns
    position = worlds.state.joint_position[..., columns]
    velocity = worlds.state.joint_velocity[..., columns]
    action = np.ones(first.robot.drive.n_actions)
    targets = position + 0.1 if not conditions[0].is_guarded else position * 1.01

    def alone() -> None:
        shield.limit_action(action, conditions[0].command)
        shield.project(targets[0], position[0], velocity[0], 1.0)

    def together() -> None:
        if conditions[0].is_guarded:  # It is called for each world.
            for index in range(len(conditions)):
                shield.project(targets[index], position[index], velocity[index], 1.0)
        else:
            shielded_targets(conditions, targets, worlds.state)

    times = []
    for call, share in ((alone, 1), (together, len(conditions))):
        call()
        before = time.process_time()
        for _ in range(repeats):
            call()
        times.append((time.process_time() - before) / repeats / share * 1e6)
    return times[0], times[1]


if __name__ == "__main__":
    main()
