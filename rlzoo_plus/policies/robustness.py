"""How a policy's return degrades as the world changes: masses, latency, pushes, engine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import gymnasium
import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlzoo_plus.artifacts.untrusted import (
    LARGEST_YAML_BYTES,
    one_line,
    parse_yaml,
    printable,
    read_plain_file,
)
from rlzoo_plus.config.schema import EnvConfig, is_own_vec_env
from rlzoo_plus.envs.engine import check_engine
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.evaluation import evaluate, one_torch_thread
from robots.quiet import native_output_hidden

DEFAULT_GRID = Path(__file__).with_name("robustness.yaml")
# Besides the quantities of `robots.randomization`; those are added where they are needed.
_ADDED = {"noise": 0.0, "push": 0.0}
_PUSH_EVERY_S = 2.0
_MOST_VALUES, _MOST_POINTS = 50, 500
# How environments that are not ours can be changed: by a wrapper.
_BY_WRAPPER = {
    "noise": ("noisy_observation", "noise_std"),
    "latency": ("delayed_action", "delay"),
}

Change = dict[str, float | str]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
# Besides those of `nominal_values`; its values are names.
ENGINE = "engine"


@dataclass(frozen=True)
class Point:
    """The episodes of one changed world."""

    change: Change  # What is changed, to which value; nothing in the nominal world
    returns: list[float]  # Of each episode
    success_rate: float | None  # None if the environment reports no success

    @property
    def mean_return(self) -> float:
        """Mean over the episodes."""
        return float(np.mean(self.returns))

    def data(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "change": self.change,
            "mean_return": self.mean_return,
            "std_return": float(np.std(self.returns)),
            "success_rate": self.success_rate,
        }

    def __str__(self) -> str:
        texts = (f"{k} {v if isinstance(v, str) else f'{v:g}'}" for k, v in self.change.items())
        return ", ".join(texts) or "nominal"


@dataclass(frozen=True)
class Robustness:
    """The points of one policy."""

    label: str  # What it is called
    nominal: Point  # Its episodes in the world without changes
    points: list[Point]  # Its episodes in changed worlds
    # Why a change could not be made, by its name
    skipped: dict[str, str] = field(default_factory=dict)
    engine: str | None = None  # Physics engine of the nominal world, None if it is no robot's

    @property
    def worst(self) -> Point:
        """The world with the lowest mean return."""
        return min([self.nominal, *self.points], key=lambda point: point.mean_return)

    def data(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "label": self.label,
            "nominal": self.nominal.data(),
            "points": [point.data() for point in self.points],
            "worst": self.worst.data(),
            "engine": self.engine,
            "skipped": self.skipped,
        }


class _Grid(BaseModel):
    """The content of a grid: lists of values by name, and combinations of values."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Annotated[list[_Number], Field(max_length=_MOST_VALUES)]]
    engine: Annotated[list[str], Field(max_length=_MOST_VALUES)] = []
    combinations: list[Annotated[dict[str, _Number | str], Field(min_length=1)]] = []


def read_grid(file: Path) -> list[Change]:
    """Read the changes of a YAML file: values by name, and combinations of them.

    Raises:
        ConfigError: It is none, or names something unknown.
    """
    where = f"--grid {printable(file)}"
    try:
        grid = _Grid.model_validate(parse_yaml(read_plain_file(file, LARGEST_YAML_BYTES)))
    except FileNotFoundError as error:
        raise ConfigError(f"{where}: no such file.") from error
    except (OSError, ValueError) as error:
        example = "Write lists of numbers by name, as mass: [0.5, 2.0]"
        raise ConfigError(f"{where}: {one_line(error)}. {example}.") from error
    values = {**(grid.model_extra or {}), ENGINE: grid.engine}
    changes = [{name: value} for name in values for value in values[name]] + grid.combinations
    known = [*nominal_values(), ENGINE]
    for name, value in {pair: None for change in changes for pair in change.items()}:
        if name not in known:
            raise ConfigError(f"{where}: {unknown_name('change', name, known)}")
        if name == ENGINE:
            check_engine(value, where)
        elif isinstance(value, str):
            raise ConfigError(f"{where}: {name}: {printable(value)} is no number. Write e.g. 2.0.")
    if not 0 < len(changes) <= _MOST_POINTS:
        raise ConfigError(f"{where}: {len(changes)} worlds are not from 1 to {_MOST_POINTS}.")
    return changes


def nominal_values() -> dict[str, float]:
    """Return what can be changed, with the value that changes nothing."""
    with native_output_hidden():
        # PyBullet prints its build time when it is imported.
        from robots.randomization import QUANTITIES
    return {name: quantity.nominal for name, quantity in QUANTITIES.items()} | _ADDED


def measure(
    run: Run,
    which: str | None,
    changes: list[Change],
    *,
    label: str = "",
    episodes: int = 20,
    seed: int = 0,
    n_envs: int = 10,
) -> Robustness:
    """Play the same held-out episodes in the nominal world and in each changed one.

    The randomization that a run was trained with is left out everywhere, so that policies of
    different trainings are compared in the same worlds.

    Raises:
        ConfigError: There is no such policy, the run needs trust, or nothing can be changed.
    """
    run.require_trust()
    config, policy = run.config, run.policy(which)
    if is_own_vec_env(config.vec_env):
        raise ConfigError(
            f"vec_env={config.vec_env} makes all environments by itself, and robustness changes "
            "one by one. Use evaluate with env.kwargs.* instead."
        )
    seeds = held_out_seeds(episodes, seed)
    with closing(make_env(config.env)) as env:
        is_ours = is_robot(env)
        engine = env.unwrapped.simulation.engine if is_ours else None  # type: ignore[attr-defined]

    def play(change: Change) -> Point:
        spec = changed_env(config.env, change, is_ours=is_ours)
        made = run.env(min(n_envs, episodes), config=config.model_copy(update={"env": spec}))
        with one_torch_thread(), closing(made) as venv:
            result = evaluate(policy, venv, seeds)
        return Point(change, result.returns, result.record(0)["success_rate"])

    nominal, points, skipped = play({}), [], {}
    for change in changes:
        if change == {ENGINE: engine}:
            continue  # That is the nominal world.
        try:
            points.append(play(change))
        except ConfigError as error:
            skipped[", ".join(change)] = one_line(error)
    if skipped and not points:
        raise ConfigError(f"nothing can be changed. {next(iter(skipped.values()))}")
    return Robustness(label, nominal, points, skipped, engine)


def changed_env(spec: EnvConfig, change: Mapping[str, float | str], *, is_ours: bool) -> EnvConfig:
    """Return an environment with some changes, and without randomization.

    Raises:
        ConfigError: It cannot be changed like this.
    """
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "randomization"}
    if not is_ours:
        wrappers = list(spec.wrappers)
        for name, value in change.items():
            if name not in _BY_WRAPPER:
                raise ConfigError(
                    f"{spec.id} is no robot of this project: only {' and '.join(_BY_WRAPPER)} can "
                    f"be changed from outside, not {name}"
                )
            wrapper, key = _BY_WRAPPER[name]
            wrappers.append({wrapper: {key: _whole(value) if name == "latency" else value}})
        return spec.model_copy(update={"wrappers": wrappers})
    randomization: dict[str, Any] = {}
    for name, value in change.items():
        if isinstance(value, str):
            kwargs[name] = value
        elif name == "latency":
            kwargs[name] = _whole(value)
        elif name == "motor_strength":
            kwargs[name] = float(kwargs.get(name) or 1.0) * value
        elif name == "noise":
            randomization["observation_noise"] = {"normal": value}
        elif name == "push":
            randomization[name] = {"every_s": _PUSH_EVERY_S, "velocity": value}
        else:
            randomization[name] = value
    if randomization:
        kwargs["randomization"] = randomization
    return spec.model_copy(update={"kwargs": kwargs})


def ranked(found: list[Robustness]) -> list[Robustness]:
    """Return policies by their worst case, the best first; equal ones by the nominal world."""
    return sorted(found, key=lambda r: (-r.worst.mean_return, -r.nominal.mean_return))


def is_robot(env: gymnasium.Env[Any, Any]) -> bool:
    """Tell whether an environment is built on `robots`; PyBullet need not be installed."""
    module = sys.modules.get("robots.env")
    return module is not None and isinstance(env.unwrapped, module.BaseRobotEnv)


def _whole(value: float | str) -> int:
    value = float(value)
    if value != int(value) or value < 0:
        raise ConfigError(f"latency {value:g} must be whole control steps, and not negative")
    return int(value)
