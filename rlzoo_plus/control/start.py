"""Starts a session: policy, environment, driver and loop from what the user asks for."""

from __future__ import annotations

import json
import shlex
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.control.attention import Attention
from rlzoo_plus.control.control_loop import (
    Acting,
    ControlLoop,
    Outcome,
    for_robot,
    report,
    robot_env_of,
)
from rlzoo_plus.control.faults import LEARNER, Fault, Rules
from rlzoo_plus.control.pacing import RealClock, SteppedClock
from rlzoo_plus.control.session import Session
from rlzoo_plus.drivers.driver import Description, Driver, DriverError
from rlzoo_plus.drivers.factory import make_driver
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.learner.learning import Learning
from rlzoo_plus.runs.changed_env import check_spaces
from rlzoo_plus.runs.run import Run

__all__ = ["Learning", "on_robot", "report"]

# A robot that stops itself later than after so many periods has no watchdog of use.
_WATCHDOG_PERIODS = 2


def on_robot(
    run: Run,
    options: Namespace,
    command: Sequence[str],
    tell: Callable[[str], None],
    learning: Learning | None = None,
) -> tuple[Outcome, Path]:
    """Run a session with the options of the command; return what came of it, and its folder.

    Args:
        run: Whose task it is, and whose policy unless it learns.
        options: Of the command.
        command: As it was typed.
        tell: Takes what the operator should know.
        learning: What explores in place of a policy.

    Raises:
        ConfigError: An option, or the robot, does not fit the policy.
        RunError: The robot cannot be reached, or learning does not begin.
    """
    config, changed = run.changed_config([] if learning else options.overrides)
    config, left_out = for_robot(config)
    policy: Acting = learning or run.policy(options.which)
    driver = make_driver(options.driver, _options(options.driver, options.options, config.env))
    with closing(run.env(1, config=config)) as venv:
        if changed:
            check_spaces(run.policy(options.which), venv, changed)
        trained_s = robot_env_of(venv).simulation.step_s
        try:
            driver.connect()
            robot = driver.describe()
        except DriverError as error:
            raise RunError(f"driver {options.driver}: {one_line(error)}") from error
        try:
            hz = options.hz or 1 / trained_s
            rules = Rules(
                _safe_action(options.safe, robot),
                1 / hz,
                most_missed=options.missed,
                dry_run=options.dry_run,
            )
            for note in _notes(robot, driver, hz, trained_s, left_out):
                tell(f"note: {note}")
            if learning is not None:
                learning.join(venv, is_stepped=driver.is_stepped)
            session = Session(options.out)
            attention = Attention(session.folder, robot.safe_actions)
            ask = (lambda: attention.wait_for_enter(tell)) if options.ask else lambda: None
            # A robot that each command steps needs no time in between.
            clock = SteppedClock() if driver.is_stepped else RealClock()
            loop = ControlLoop(
                policy, venv, driver, rules, session, attention,
                clock=clock, tell=tell,
                **({"ask": ask} if learning is None else _of_learning(learning, ask)),
            )  # fmt: skip
            if learning is not None:
                run = learning.begin(loop.attend)
                tell(f"learns in {run.path}")
        except BaseException:
            driver.disconnect()
            raise
        there = "" if options.out is None else f" {shlex.quote(str(options.out))}"
        tell(f"session {session.folder}: `rlzoo-plus override{there} stop` stops it")
        tell(f"`rlzoo-plus watch-robot{there}` shows it in the browser")
        seconds = None if options.minutes is None else 60 * options.minutes
        endless = learning is not None or seconds is not None
        about = {
            "command": list(command),
            "run": None if run.path is None else str(run.path),
            "policy_step": policy.step,
            "env": config.env.model_dump(mode="json"),
            "left_out": left_out,
            "hz": hz,
            "seed": options.seed,
            "safe_action": rules.safe_action,
            "dry_run": rules.dry_run,
            "driver": options.driver,
            "robot": asdict(robot),
        }
        episodes = options.episodes or (None if endless else 1)
        return loop.run(episodes, seconds, options.seed, about), session.folder


def _of_learning(learning: Learning, ask: Callable[[], None]) -> dict[str, Any]:
    """Return what the loop asks of learning."""

    def look() -> None:
        try:
            learning.look()
        except RunError as error:
            raise Fault(LEARNER, one_line(error)) from error

    def before_an_episode() -> None:
        learning.wait_between_episodes()
        ask()

    return {
        "ask": before_an_episode,
        "look": look,
        "is_over": lambda: learning.is_over,
        "seeds_of": lambda count, _: learning.seeds(count),
    }


def _safe_action(asked: str | None, robot: Description) -> str:
    if asked is not None and asked not in robot.safe_actions:
        raise ConfigError(
            f"--safe {asked}: {robot.robot} cannot do that. Choose: "
            f"{', '.join(robot.safe_actions)}."
        )
    return asked or robot.safe_actions[0]


def _options(driver: str, given: list[str], env: EnvConfig) -> list[str]:
    """Return the options of a driver; of the simulated robot the policy's own if none is named."""
    if driver != "sim" or any(option.startswith("env=") for option in given):
        return given
    own = {"env": env.id, "kwargs": env.kwargs, "packages": env.packages}
    return [*(f"{name}={json.dumps(value)}" for name, value in own.items()), *given]


def _notes(
    robot: Description, driver: Driver, hz: float, trained_s: float, left_out: list[str]
) -> list[str]:
    """Return what the user should know before anything moves; refuse a rate beyond the robot's."""
    if hz > robot.rate_hz * (1 + 1e-6):
        raise ConfigError(
            f"--hz {hz:g} is more than {robot.robot} takes, {robot.rate_hz:g}. A policy that was "
            "trained with longer control steps can be slower."
        )
    notes = []
    if abs(hz * trained_s - 1) > 1e-6:
        notes.append(f"the policy was trained at {1 / trained_s:g} Hz, and acts at {hz:g} Hz")
    if left_out:
        notes.append(f"{', '.join(left_out)} of the training are left out: the robot has its own")
    if driver.is_stepped:
        return notes
    if robot.watchdog_s is None:
        notes.append(f"{robot.robot} does not stop itself if this process dies: stay at its switch")
    elif robot.watchdog_s > (_WATCHDOG_PERIODS + 0.01) / hz:
        notes.append(
            f"{robot.robot} stops itself {robot.watchdog_s:g} s after this process dies, which is "
            f"more than {_WATCHDOG_PERIODS} periods"
        )
    return notes
