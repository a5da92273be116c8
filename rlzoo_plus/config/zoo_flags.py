"""Translates the command line of rl_zoo3's `train.py` into overrides; nothing in it is run."""

from __future__ import annotations

import argparse
import re
import secrets
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from rlzoo_plus.config.catalog import ALGORITHM_OF_STEM, get_algorithm
from rlzoo_plus.config.literals import parse_literal, plain_mapping
from rlzoo_plus.config.overrides import apart, as_arguments, typed_values
from rlzoo_plus.config.search_path import config_dirs, group_options
from rlzoo_plus.config.zoo_import import UNSUPPORTED, convert_entry
from rlzoo_plus.errors import ConfigError

# Flags with a value that is the value of one of our keys; a negative one is rl_zoo3's default.
_KEYS = {
    "-n --n-timesteps": "n_timesteps",
    "--eval-episodes": "eval.episodes",
    "--n-eval-envs": "eval.n_envs",
    "--save-freq": "checkpoint.every_steps",
    "--num-threads": "num_threads",
    "--vec-env": "vec_env",
    "--device": "device",
    "--n-jobs": "infra.workers",
    "--n-trials": "hpo.n_trials",
    "--max-total-trials": "hpo.n_trials",
    "--sampler": "hpo.sampler",
    "--pruner": "hpo.pruner",
    "--storage": "hpo.storage",
}
_OF_A_STUDY = ("infra.", "hpo.")
# Flags with a value of their own meaning, see `_Flags`.
_VALUES = (
    *("--algo", "--env", "-tb --tensorboard-log", "-i --trained-agent", "-f --log-folder"),
    *("--seed", "--log-interval", "--eval-freq", "--verbose", "-conf --conf-file"),
    *("--n-startup-trials", "--n-evaluations", "--study-name", "--trial-id"),
    *("--wandb-project-name", "--wandb-entity", "--wandb-group"),
    *("--optimization-log-path", "--truncate-last-trajectory"),
)
_SWITCHES = (
    *("-optimize --optimize-hyperparameters", "-uuid --uuid", "--track", "-P --progress"),
    *("--save-replay-buffer", "--no-optim-plots"),
)
_LISTS = ("-params --hyperparams", "--env-kwargs", "--eval-env-kwargs", "--gym-packages")
_TAGS = "-tags --wandb-tags"
# What a run or a study does without being asked.
_ANYWAY = {
    "--uuid": "each run has a directory of its own",
    "--save-replay-buffer": "each checkpoint holds the replay buffer",
    "--no-optim-plots": "a study is drawn by `rlzoo-plus study plot` only",
    "--optimization-log-path": "each trial has a run directory, below that of the study",
    "--truncate-last-trajectory": "a resumed run needs it not, a loaded buffer is always cut",
    "--tensorboard-log": "TensorBoard's files are in each run directory",
}
_LEVELS = {"0": "warning", "1": "info", "2": "debug"}
_EXPERIMENT = re.compile(r"_(\d+)(_[0-9a-f-]{36})?$")


@dataclass(frozen=True)
class Translation:
    """A command line in Hydra's form, and what its user should know."""

    arguments: list[str]
    notes: list[str]


class FlagParser(argparse.ArgumentParser):
    """A parser of rl_zoo3's flags, whose errors are those of a user."""

    def error(self, message: str) -> NoReturn:
        """Refuse in one line, without the usage."""
        raise ConfigError(f"{message}. The flags here are rl_zoo3's; settings are key=value.")


def translated(arguments: Sequence[str]) -> Translation | None:
    """Translate rl_zoo3's flags; overrides and Hydra's options stay.

    Returns:
        None if there are none, or options that are neither Hydra's nor rl_zoo3's.

    Raises:
        ConfigError: A flag has no counterpart; the text names what to use.
    """
    ours, theirs = apart(arguments)
    parser = _parser()
    if not any(word.startswith("-") for word in theirs):
        return None
    found, rest = parser.parse_known_args(theirs)
    if any(word.startswith("-") for word in rest):
        return None
    flags = {name: value for name, value in vars(found).items() if value not in (None, False)}
    for name in (dest_of(names) for names in _LISTS):
        # What follows a list of key:value may be an override.
        items = flags.get(name, [])
        rest += [item for item in items if "=" in item.partition(":")[0]]
        flags[name] = [item for item in items if "=" not in item.partition(":")[0]]
    flags = {name: value for name, value in flags.items() if value != []}
    reader = _Flags(flags, [*ours, *rest])
    overrides = list(reader.overrides())
    options = ["-m"] if reader.tunes and not {"-m", "--multirun"} & set(ours) else []
    return Translation([*options, *ours, *overrides, *rest], reader.notes)


def dest_of(names: str) -> str:
    """Return the name of the value that some spellings of a flag set."""
    return names.split()[-1].removeprefix("--").replace("-", "_")


def _parser() -> FlagParser:
    parser = FlagParser(add_help=False)
    for names in (*_KEYS, *_VALUES):
        parser.add_argument(*names.split())
    for names in _SWITCHES:
        parser.add_argument(*names.split(), action="store_true")
    for names in (*_LISTS, _TAGS):
        parser.add_argument(*names.split(), nargs="+")
    return parser


class _Flags:
    """The flags of one command line."""

    def __init__(self, flags: Mapping[str, Any], ours: Sequence[str]) -> None:
        self._flags, self._typed = flags, typed_values(ours)
        self._envs = group_options("env", config_dirs(ours))
        self._sweeps = bool({"-m", "--multirun"} & set(ours))
        self.tunes = "optimize_hyperparameters" in flags
        name = flags.get("algo", self._typed.get("algo", "ppo"))
        self._algo = ALGORITHM_OF_STEM.get(name, name)
        self.notes = list[str]()

    def overrides(self) -> Iterator[str]:
        """Yield the overrides, in the order in which one would write them."""
        self._refuse()
        if "algo" in self._flags:
            yield f"algo={self._algo}"
        if (env := self._flags.get("env")) is not None:
            yield f"env={env}" if env in self._envs else f"env.id={env}"
        yield from self._of_keys()
        yield from self._of_runs()
        if self.tunes:
            yield from self._of_studies()
        yield from self._of_hyperparams()
        yield from self._of_tracking()
        for flag, what in _ANYWAY.items():
            if dest_of(flag) in self._flags:
                self.notes.append(f"{flag}: {what}")

    def _refuse(self) -> None:
        if (file := self._flags.get("conf_file")) is not None:
            raise ConfigError(
                f"--conf-file {file}: convert it once with `rlzoo-plus import-zoo {file} --out "
                "my_conf`, and add --config-dir my_conf in its place."
            )
        if "eval_env_kwargs" in self._flags:
            raise ConfigError(
                "--eval-env-kwargs: evaluations play the environment of the training. Leave it "
                "out, and measure elsewhere with `rlzoo-plus evaluate RUN env.kwargs.NAME=VALUE`."
            )
        if self._flags.get("sampler") == "auto":
            raise ConfigError("--sampler auto: there is no such sampler here. Use --sampler tpe.")
        if "trial_id" in self._flags and "study_name" not in self._flags:
            raise ConfigError("--trial-id: name its study, too: --study-name NAME.")

    def _of_keys(self) -> Iterator[str]:
        given = {dest_of(names): (names, key) for names, key in _KEYS.items()}
        if "max_total_trials" in self._flags:
            given.pop("n_trials")
        for dest, (names, key) in given.items():
            value = self._flags.get(dest)
            if value is None or value.startswith("-"):
                continue
            if key.startswith(_OF_A_STUDY) and not (self.tunes or self._sweeps):
                self.notes.append(f"{names.split()[-1]}: it is for -optimize, and left out")
            else:
                yield from as_arguments([], None, {key: _number(value)})

    def _of_runs(self) -> Iterator[str]:
        flags = self._flags
        if (seed := flags.get("seed")) is not None:
            yield f"seed={secrets.randbelow(2**31) if seed.startswith('-') else seed}"
        if (frequency := flags.get("eval_freq")) is not None:
            yield f"eval.every_steps={'null' if frequency.startswith('-') else frequency}"
        if (interval := flags.get("log_interval")) not in (None, "-1"):
            if interval == "-2":
                raise ConfigError("--log-interval -2: metrics are always kept. Use log.level=error")
            yield f"log.interval={interval}"
        if (level := flags.get("verbose")) is not None:
            yield f"log.level={_LEVELS.get(level, level)}"
        if (agent := flags.get("trained_agent")) is not None:
            yield from as_arguments([], None, {"init_from": agent})
            yield "init.parts=[policy,optimizer,normalization]"
        if "gym_packages" in flags:
            yield f"packages=[{','.join(flags['gym_packages'])}]"
        if (folder := flags.get("log_folder")) is not None:
            yield from as_arguments([], None, self._place(folder))
        if "trial_id" in flags:
            yield from (f"study={flags['study_name']}", f"trial={flags['trial_id']}")
        if "progress" in flags:
            yield "log.progress=true"

    def _place(self, folder: str) -> dict[str, str]:
        """Return where rl_zoo3 would write: `logs/ppo/CartPole-v1_3`, the next that is free."""
        place = Path(folder) / self._algo
        if self.tunes:
            name = self._flags.get("study_name", f"study_{self._env}")
            return {"hpo.study": f"{place / name}"}
        if self._sweeps:
            return {"sweep": f"{place}"}
        number = max((0, *(n for n, _ in experiments(place, self._env)))) + 1
        unique = f"_{uuid.uuid4()}" if "uuid" in self._flags else ""
        return {"run_dir": f"{place / f'{self._env}_{number}{unique}'}"}

    @property
    def _env(self) -> str:
        typed = self._typed.get("env.id", self._typed.get("env", "cartpole_bullet"))
        return folder_name(self._flags.get("env", typed))

    def _of_studies(self) -> Iterator[str]:
        flags = self._flags
        if "hpo" not in self._typed:
            yield f"hpo={self._algo}"
        if "study_name" in flags and "log_folder" not in flags and "trial_id" not in flags:
            yield f"hpo.study={flags['study_name']}"
        if "n_timesteps" in flags:
            # A trial of rl_zoo3 is a whole training.
            yield "hpo.n_timesteps=null"
        if (startup := flags.get("n_startup_trials")) is not None:
            if flags.get("sampler", "tpe") == "tpe":
                yield f"hpo.sampler_options.n_startup_trials={startup}"
            if flags.get("pruner", "median") == "median":
                yield f"hpo.pruner_options.n_startup_trials={startup}"
        if (count := flags.get("n_evaluations")) is not None:
            steps = flags.get("n_timesteps", "")
            if not (count.isdecimal() and int(count) and steps.isdecimal()):
                raise ConfigError(
                    f"--n-evaluations {count}: give whole numbers above 0 for it and for "
                    "--n-timesteps, or eval.every_steps=N in its place."
                )
            yield f"eval.every_steps={max(int(steps) // int(count), 1)}"

    def _of_hyperparams(self) -> Iterator[str]:
        given = dict(map(_pair, self._flags.get("hyperparams", [])))
        # A noise has two keys; of all others, each is converted by itself.
        noise = {name: given.pop(name) for name in ("noise_type", "noise_std") if name in given}
        for entry in [{name: value} for name, value in given.items()] + [noise] * bool(noise):
            get_algorithm(self._algo)
            converted = convert_entry(self._algo, entry)
            values = converted.values
            for name in ("n_envs", "normalize"):
                # It is in the values even if it was not given.
                if name not in entry:
                    values.pop(name)
            if entry is not noise:
                values.get("algo", {}).pop("action_noise", None)
            if UNSUPPORTED.keys() & entry.keys():
                raise ConfigError(f"-params: {converted.warnings[0]}")
            if not (settings := _flat(values)) and converted.warnings:
                # The algorithm's own check knows what was meant.
                settings = {f"algo.hyperparams.{name}": value for name, value in entry.items()}
            else:
                self.notes += converted.warnings
            yield from _assignments(settings)
        kwargs = dict(map(_pair, self._flags.get("env_kwargs", [])))
        yield from as_arguments([], None, _flat({"env": {"kwargs": plain_mapping("", kwargs)}}))

    def _of_tracking(self) -> Iterator[str]:
        flags = self._flags
        named = [name for name in flags if name.startswith("wandb_")]
        if "track" not in flags:
            self.notes += [f"--{n.replace('_', '-')}: left out without --track" for n in named]
            return
        yield "tracker=wandb"
        keys = {"wandb_project_name": "project", "wandb_entity": "kwargs.entity"}
        keys |= {"wandb_group": "kwargs.group", "wandb_tags": "kwargs.tags"}
        yield from as_arguments(
            [], None, {f"tracker.{keys[n]}": flags[n] for n in keys if n in flags}
        )


def folder_name(env_id: str) -> str:
    """Return what rl_zoo3 calls an environment in paths."""
    return re.sub(r"[/:]", "-", env_id)


def experiments(place: Path, env: str) -> list[tuple[int, Path]]:
    """Return the numbered folders of an environment, as rl_zoo3 names them, in their order."""
    found = [(path, _EXPERIMENT.search(path.name)) for path in place.glob(f"{env}_*")]
    own = [(path, m) for path, m in found if m is not None and path.name[: m.start()] == env]
    return sorted((int(match[1]), path) for path, match in own)


def _pair(item: str) -> tuple[str, Any]:
    """Return a name and its value, a Python literal or a plain text."""
    name, colon, text = item.partition(":")
    if not colon or not name:
        raise ConfigError(f"{item}: a value is written name:value, e.g. gamma:0.99.")
    if name == "policy_kwargs" or re.fullmatch(r"[A-Za-z][\w.+-]*", text):
        return name, {"True": True, "False": False, "None": None}.get(text, text)
    return name, parse_literal(text)


def _assignments(settings: Mapping[str, Any]) -> Iterator[str]:
    for key, value in settings.items():
        if isinstance(value, Mapping) and value:
            parts = ", ".join(f"{name}: {layers}" for name, layers in value.items())
            yield f"{key}={{{parts}}}"
        else:
            yield from as_arguments([], None, {key: value})


def _number(text: str) -> Any:
    return int(text) if text.isdecimal() else text


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by dotted keys; the layers of a network stay one value."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value and name != "net_arch":
            flat |= _flat(value, f"{prefix}{name}.")
        elif value != {}:
            flat[prefix + name] = value
    return flat
