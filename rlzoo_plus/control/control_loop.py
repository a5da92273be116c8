"""The control loop: a policy acts on a robot, episode after episode, and whatever fails is safe."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.control.attention import Attention
from rlzoo_plus.control.driven_body import DrivenBody
from rlzoo_plus.control.faults import ACTION, OUTSIDE, Fault, Overridden, Rules, of_error
from rlzoo_plus.control.pacing import Clock, collector_at_rest
from rlzoo_plus.control.session import Rows, Session
from rlzoo_plus.drivers.driver import Driver
from rlzoo_plus.envs.seeding import generators_kept, held_out_seeds
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.entries import entry_names, flat_entries
from rlzoo_plus.policies.recorder import end_of
from rlzoo_plus.processes import stop_signals_go_to
from rlzoo_plus.training.evaluation import Step, one_torch_thread, play
from robots.env import BaseRobotEnv

log = logging.getLogger(__name__)
# Conditions of a simulation, which a robot has of its own.
SIMULATED = ("latency", "motor_strength", "randomization", "privileged")
# Decisions made before anything moves: the first ones take longest.
_WARM_UP = 20
_MOST_EPISODES = 10_000
_UNDISTURBED = "as planned"


@dataclass
class Outcome:
    """What came of a session."""

    episodes: list[dict[str, Any]] = field(default_factory=list)
    cause: str = _UNDISTURBED  # Why it ended
    code: int = 0  # Exit code of the command
    numbers: dict[str, Any] = field(default_factory=dict)  # Periods, decisions, limits

    def data(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {"ended": self.cause, "episodes": self.episodes, **self.numbers}


def for_robot(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """Return a configuration without the conditions of a simulation, and the names of those."""
    left_out = [name for name in SIMULATED if name in config.env.kwargs]
    kwargs = {name: v for name, v in config.env.kwargs.items() if name not in left_out}
    env = config.env.model_copy(update={"kwargs": kwargs})
    return config.model_copy(update={"env": env}), left_out


def robot_env_of(venv: VecEnv) -> BaseRobotEnv:
    """Return the one robot's environment in a vectorised one.

    Raises:
        ConfigError: It is no robot of ours.
    """
    env = venv.get_attr("unwrapped")[0]
    if not isinstance(env, BaseRobotEnv):
        raise ConfigError(
            f"{type(env).__name__} is no environment built on `robots`, whose sensors and motors "
            "a driver could replace. Use a policy of one that is."
        )
    return env


class ControlLoop:
    """Runs one session."""

    def __init__(
        self,
        policy: Acting,
        venv: VecEnv,
        driver: Driver,
        rules: Rules,
        session: Session,
        attention: Attention,
        *,
        clock: Clock,
        ask: Callable[[], None] = lambda: None,
        look: Callable[[], None] = lambda: None,
        is_over: Callable[[], bool] = lambda: False,
        seeds_of: Callable[[int, int], list[int]] = held_out_seeds,
        tell: Callable[[str], None] = log.info,
    ) -> None:
        """Match environment and robot; nothing moves.

        Args:
            policy: What decides.
            venv: From `Run.env`, with one environment.
            driver: Connected.
            rules: What is watched.
            session: Where it is recorded.
            attention: Signals and overrides.
            clock: Of the periods.
            ask: Called before each episode.
            look: Called every period, besides; what it raises ends the session.
            is_over: Whether the session has reached its end, asked after each step.
            seeds_of: Returns seeds of so many episodes of a set.
            tell: Takes what the operator should know.

        Raises:
            ConfigError: The robot lacks what the task needs.
        """
        self._env = robot_env_of(venv)
        self._policy, self._venv, self._driver = _Checked(policy), venv, driver
        self._rules, self._session, self._attention = rules, session, attention
        self._clock, self._tell, self._look = clock, tell, look
        self._is_over, self._seeds_of = is_over, seeds_of
        self.body = DrivenBody(
            self._env, driver, rules, clock,
            attend=self.attend, ask=ask, idle=session.write_waiting, tell=tell,
        )  # fmt: skip
        self._rows = Rows(
            self._env,
            entry_names(venv) or [],
            {kind: one.names for kind, one in self.body.robot.commands.items()},
        )
        self.outcome = Outcome()
        self._return, self._steps = 0.0, 0

    def attend(self) -> None:
        """Look for what ends the session from outside.

        Raises:
            Fault: There is something.
        """
        self._attention()
        self._look()

    def run(
        self, episodes: int | None, seconds: float | None, seed: int, about: Mapping[str, Any]
    ) -> Outcome:
        """Run until the plan is done or something fails; the robot is safe afterwards.

        Args:
            episodes: How many; None for as many as there is time for.
            seconds: How long at most; None for no limit.
            seed: Of a set of episodes, by default of held-out ones as for `evaluate`.
            about: What the session is of.
        """
        self._session.begin(about, self._rows.columns)
        outcome = self.outcome
        try:
            with (
                stop_signals_go_to(self._attention.on_signal),
                one_torch_thread(),
                generators_kept(),
                collector_at_rest(),
            ):
                try:
                    self._play_all(episodes, seconds, seed)
                except Exception as error:
                    fault = of_error(error)
                    self._make_safe(fault)
                    log.debug("the session was ended by", exc_info=error)
                    outcome.cause, outcome.code = str(fault), fault.code
                finally:
                    self._make_safe(None)
        finally:
            self._driver.disconnect()
            self._cut(outcome.cause)
            self._session.event("end", outcome.cause)
            outcome.numbers = self._numbers()
            self._session.end({**about, **outcome.data()}, report(outcome))
        return outcome

    def _play_all(self, episodes: int | None, seconds: float | None, seed: int) -> None:
        most = episodes or _MOST_EPISODES
        self._venv.env_method("set_episode_seeds", self._seeds_of(most, seed))
        self._warm_up()
        self.body.episodes_left = most
        end_s = np.inf if seconds is None else self._clock.now() + seconds
        while not self.body.is_done and self._clock.now() < end_s and not self._is_over():
            try:
                self._play(end_s)
            except Overridden as asked:
                self._obey(asked)

    def _play(self, end_s: float) -> None:
        for step in play(self._policy, self._venv):  # type: ignore[arg-type]
            self._record(step)
            if self._clock.now() >= end_s:
                self._cut("the time is over")
                return
            if self.body.is_done or self._is_over():
                return

    def _record(self, step: Step) -> None:
        acted, info = self.body.acted, step.infos[0]
        assert acted is not None
        seen = step.observation
        one = {k: v[0] for k, v in seen.items()} if isinstance(seen, dict) else seen[0]
        number = len(self.outcome.episodes)
        self._session.add(self._rows.row(number, acted, flat_entries(one), step))
        self._return += float(step.reward[0])
        self._steps += 1
        if not step.done[0]:
            return
        episode, success = info["episode"], info.get("is_success")
        self._end_episode(
            {
                "return": float(episode["r"]),
                "length": int(episode["l"]),
                "success": None if success is None else bool(success),
                "end_reason": end_of(info),
                "terms": dict(info.get("episode_terms", {})),
            }
        )

    def _end_episode(self, facts: dict[str, Any]) -> None:
        self.outcome.episodes.append(facts)
        self._return, self._steps = 0.0, 0
        self._session.event("episode", f"{facts['end_reason']}, return {facts['return']:.3f}")

    def _cut(self, why: str) -> None:
        """End the record of a running episode that did not come to its own end."""
        if self._steps:
            facts = {"return": self._return, "length": self._steps, "success": None}
            self._end_episode({**facts, "end_reason": f"cut: {why}", "terms": {}})

    def _obey(self, asked: Overridden) -> None:
        """Do what an override asks for, until it is released."""
        while True:
            self.body.safe_action = asked.action
            self.body.make_safe()
            self._session.event(asked.kind, asked.action)
            self._cut(str(asked))
            self._tell(f"{asked}; `rlzoo-plus override release` goes on with the next episode")
            try:
                self._attention.wait_for_release()
            except Overridden as again:
                asked = again
            else:
                self.body.safe_action = self._rules.safe_action
                self._session.event(asked.kind, "released")
                self._tell("released")
                return

    def _make_safe(self, fault: Fault | None) -> None:
        """Let the robot do its safe action, and write down why."""
        try:
            self.body.make_safe()
        except Fault as error:
            if fault is None:
                # It was told so before, or has ended as planned and is let go now.
                log.debug("the robot does not answer: %s", error)
                return
            watchdog_s = self.body.robot.watchdog_s
            own = "it has no watchdog" if watchdog_s is None else f"its watchdog: {watchdog_s:g} s"
            self._session.event("not safe", f"{error}; {own}")
            self._tell(f"the robot does not answer; {own}")
        if fault is not None:
            self._session.event(fault.kind, f"{fault.detail}: {self.body.safe_action}")

    def _warm_up(self) -> None:
        space = self._venv.observation_space
        parts = space.spaces if isinstance(space, spaces.Dict) else {"": space}
        zeros: Any = {k: np.zeros((1, *(s.shape or ())), s.dtype) for k, s in parts.items()}
        masks = None
        if self._policy.maskable:
            masks = np.stack(self._venv.env_method("action_masks"))
        for _ in range(_WARM_UP):
            seen = zeros if isinstance(space, spaces.Dict) else zeros[""]
            self._policy.predict(seen, None, np.ones(1, bool), True, masks)

    def _numbers(self) -> dict[str, Any]:
        decisions = 1000 * np.array(self.body.decisions_s or [np.nan])
        return {
            "in_real_time": not self._driver.is_stepped,
            **self.body.pacer.summary(),
            "n_decisions": len(self.body.decisions_s),
            "mean_decision_ms": float(decisions.mean()),
            "largest_decision_ms": float(decisions.max()),
            "limits_touched": dict(self.body.touched),
        }


class Acting(Protocol):
    """What decides: a `Policy`, or what explores in place of one."""

    maskable: bool

    @property
    def action_space(self) -> spaces.Space[Any]:
        """Space of the actions."""

    @property
    def step(self) -> int | None:
        """Environment steps it was trained for."""

    def predict(
        self, observation: Any, state: Any, starts: Any, deterministic: bool, masks: Any, /
    ) -> tuple[np.ndarray, Any]:
        """Choose actions, as `Policy.predict`."""


class _Checked:
    """A policy whose actions are numbers within the limits of its action space, or a `Fault`."""

    def __init__(self, policy: Acting) -> None:
        self._policy, self.maskable = policy, policy.maskable
        space = policy.action_space
        self._low = self._high = np.array(np.nan)
        if isinstance(space, spaces.Box):
            self._low, self._high = space.low, space.high
        elif isinstance(space, spaces.Discrete):
            self._low, self._high = np.array(space.start), np.array(space.start + space.n - 1)

    def predict(self, *given: Any) -> Any:
        """Choose actions, as `Policy.predict`."""
        actions, state = self._policy.predict(*given)
        if not np.isfinite(actions).all():
            raise Fault(ACTION, f"the policy chose {_short(actions)}")
        if (actions < self._low).any() or (actions > self._high).any():
            raise Fault(OUTSIDE, f"the policy chose {_short(actions)}")
        return actions, state


def _short(actions: np.ndarray) -> str:
    return printable(np.array2string(np.ravel(actions), precision=3, threshold=8), 120)


def report(outcome: Outcome) -> str:
    """Return the report as text."""
    numbers = outcome.numbers
    rows = [("ended", outcome.cause)]
    if numbers["n_periods"] and numbers["in_real_time"]:
        rows.append(
            (
                "periods",
                f"{numbers['n_periods']} of {numbers['period_ms']:.1f} ms, mean "
                f"{numbers['mean_period_ms']:.2f}, 99% within {numbers['p99_error_ms']:.2f} ms, "
                f"{numbers['missed_deadlines']} missed",
            )
        )
    if numbers["n_decisions"] and numbers["in_real_time"]:
        mean, largest = numbers["mean_decision_ms"], numbers["largest_decision_ms"]
        rows.append(("decisions", f"{mean:.2f} ms on average, {largest:.2f} at most"))
    touched = numbers["limits_touched"]
    each = ", ".join(f"{name} in {count} periods" for name, count in touched.items())
    rows.append(("limits touched", each or "none"))
    for number, one in enumerate(outcome.episodes):
        success = {None: "", True: ", success", False: ", no success"}[one["success"]]
        text = f"return {one['return']:.2f} in {one['length']} steps{success}: {one['end_reason']}"
        rows.append((f"episode {number}", text))
        rows += [("", f"{name} {value:.3f}") for name, value in one["terms"].items()]
    return "\n".join(f"{name:<16}{printable(text, 1000)}" for name, text in rows)
