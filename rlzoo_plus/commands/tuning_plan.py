"""From a command line with `hpo=...` to the plan of a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlzoo_plus.config.compose import TRUST, iter_sweep_keys, overrides_of, prepare_overrides
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.hpo import HpoConfig
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.tuning.space import Space
from rlzoo_plus.tuning.study_plan import StudyPlan, check_settings, study_folder

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed

Compose = Callable[[Sequence[str]], "Composed"]
# What one study has one of; the mend for those who want several.
_ONE_OF = {
    "env": "Returns of different environments do not compare: tune each in a study of its own.",
    "algo": "A search space is for one algorithm: tune each in a study of its own.",
    "hpo": "Start one study for each.",
    "seed": "hpo.seeds=3 lets each trial train three seeds.",
    "n_timesteps": "hpo.n_timesteps=... sets the length of the trials.",
    "env.id": "Tune each environment in a study of its own.",
}


def make_plan(arguments: list[str], compose: Compose) -> tuple[StudyPlan, list[str]]:
    """Make the plan of a study; return it and what the user should know.

    Args:
        arguments: The command line, as typed.
        compose: Composes a list of prepared overrides.

    Raises:
        ConfigError: Something in it is wrong.
    """
    words = overrides_of(arguments)
    sweeps = [word for word in words if _is_sweep(word)]
    plain = [word for word in words if word not in sweeps]
    _refuse_sweeps(sweeps)
    from rlzoo_plus.envs.single import scheduled
    from rlzoo_plus.runs.compose import Resolver

    resolver = Resolver(arguments)

    def resolve(overrides: Sequence[str], *, tunes: bool = False) -> tuple[RunConfig, list[str]]:
        config, told = resolver.resolve(compose(prepare_overrides(overrides)), tunes=tunes)
        # The space and the rungs of a study count on numbers.
        return scheduled(config), told

    plain += _algorithm_of_space(compose, plain)
    base, notes = resolve(plain, tunes=True)
    hpo = base.hpo
    assert hpo is not None
    mistakes = check_settings(hpo, base)
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    fixed = [word for word in plain if not _is_hpo(word)]
    base = base.model_copy(update={"hpo": None})
    trial_base = _at_length(resolve, fixed, hpo.n_timesteps)
    space, hpo = _searched(hpo, [*fixed, *sweeps], trial_base)
    name = hpo.study or f"{base.env.name}-{base.algo.name}"
    folder = study_folder(name)
    plan = StudyPlan(
        name=folder.name,
        folder=folder,
        hpo=hpo,
        space=space,
        fixed=tuple(fixed),
        base=base,
        trial_base=trial_base,
        compose=lambda overrides: resolve([*fixed, *overrides])[0],
        trust=TRUST in arguments,
    )
    return plan, notes


def _searched(hpo: HpoConfig, words: list[str], present: RunConfig) -> tuple[Space, HpoConfig]:
    """Return the space that the command line leaves, and the settings that say so.

    Args:
        hpo: The settings as they were composed.
        words: The overrides and sweeps of the command line.
        present: What `train` would take, at the length of a trial.

    Raises:
        ConfigError: The space is wrong, or no grid where there must be one.
    """
    values = present.model_dump(mode="json")
    space = Space.parse(hpo.space, hpo.custom).with_overrides(words)
    if hpo.sampler != "grid":
        # What train takes can then be the first trial.
        space = space.with_present(values)
    space = space.settled(values)
    # What is searched for in fact: with the sweeps of the command line, without its values.
    changes: dict[str, Any] = {"space": space.entries()}
    if hpo.sampler == "grid":
        size = math.prod(len(params) for params in space.grid().values())
        changes["n_trials"] = min(hpo.n_trials, size)
    return space, hpo.model_copy(update=changes)


def _algorithm_of_space(compose: Compose, plain: list[str]) -> list[str]:
    """Choose the algorithm that a search space is for, unless one is chosen."""
    # What an experiment chooses is not to be overruled without a word.
    if {"algo", "experiment"} & set(iter_sweep_keys(plain)):
        return []
    hpo = compose(prepare_overrides(plain)).values.get("hpo")
    return [f"algo={hpo['algo']}"] if hpo and hpo.get("algo") else []


def _at_length(
    resolve: Callable[[Sequence[str]], tuple[RunConfig, list[str]]],
    fixed: list[str],
    n_timesteps: int | None,
) -> RunConfig:
    length = [] if n_timesteps is None else [f"n_timesteps={n_timesteps}"]
    return resolve([*fixed, *length])[0]


def _is_sweep(word: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(word).is_sweep_override()
    except HydraException as error:
        from rlzoo_plus.config.compose import explain

        raise ConfigError(explain(error, [word])) from error


def _refuse_sweeps(words: list[str]) -> None:
    for key in iter_sweep_keys(words):
        own = key.removeprefix("hpo.space.")
        if own != key:
            raise ConfigError(f"{key}: a sweep is written without hpo.space: {own}=...")
        if key in _ONE_OF or key.startswith("hpo."):
            mend = _ONE_OF.get(key, "Start one study for each.")
            raise ConfigError(f"{key}: a study has one value of it. {mend}")


def _is_hpo(word: str) -> bool:
    return any(key == "hpo" or key.startswith("hpo.") for key in iter_sweep_keys([word]))
