"""Experiment files: a run's configuration under a name, so that it can be trained again.

The file chooses the run's environment and algorithm and has the values that differ from their
files. Tuned values are left out (`tuned=none`): the file has the run's own.
"""

from __future__ import annotations

import json
import re
import shlex
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from hydra.core.global_hydra import GlobalHydra

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.hydra_app import compose_once
from rlzoo_plus.config.literals import PlainDumper
from rlzoo_plus.config.references import REFERENCE
from rlzoo_plus.config.resolve import UNHASHED, config_hash, resolve
from rlzoo_plus.config.schema import EvalConfig, RunConfig
from rlzoo_plus.config.search_path import conf_dir, config_dirs, group_options
from rlzoo_plus.config.unused_keys import without_unused
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.tuning.study_plan import StudyPlan

GROUP = "experiment"
# Where and how a run is placed or searched for is no part of what it is.
_LEFT_OUT = {*UNHASHED, "hpo"} - {"init_from"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
# Hydra reads these as values, not as names.
_NO_NAMES = ("null", "none", "true", "false", "nan", "inf")
_ALWAYS = ("n_timesteps", "seed", "n_envs", "num_threads")
_NEUTRAL_ENV = "gym"


class _NotMergeableError(Exception):
    """A file that an experiment builds on has a key that it cannot take away."""


def experiment_name(text: str) -> str:
    """Return a text as a name that `experiment=<name>` takes: `my study.1` -> `my_study_1`."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_-") or "best"
    return name if _is_name(name) else f"study_{name}"


def _is_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text)) and text.lower() not in _NO_NAMES


def write_experiment(
    target: Path, config: RunConfig, header: Sequence[str], *, overwrite: bool = False
) -> None:
    """Write a run's configuration as an experiment file, and check that it gives the run again.

    Args:
        target: `<folder>/experiment/<name>.yaml`; the folder is what `--config-dir` takes.
        config: A checked configuration, with `num_threads` as the run had it.
        header: Lines of the comment at the beginning.
        overwrite: Whether to replace an existing file.
    """
    target = target.absolute()
    name, root = target.stem, target.parent.parent
    if target.parent.name != GROUP or target.suffix != ".yaml":
        raise ConfigError(f"{target}: an experiment file is FOLDER/{GROUP}/NAME.yaml.")
    if not _is_name(name):
        raise ConfigError(
            f"{GROUP}={printable(name)}: a name is made of letters, digits, _ and -, and "
            f"begins with a letter. Use {experiment_name(name)}."
        )
    shipped = conf_dir() / GROUP / target.name
    if shipped.exists() and shipped != target:
        # It would be used in place of the other one.
        raise ConfigError(f"{GROUP}={name} is taken by {shipped}. Choose another name.")
    if target.exists() and not overwrite:
        raise ConfigError(f"{target} exists already. Choose another name, or remove the file.")
    text = _render(config, header, root)
    _check_text(text, name, config, root)
    try:
        write_atomic(target, text)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}.") from error


def _render(config: RunConfig, header: Sequence[str], root: Path) -> str:
    values = config.model_dump(exclude=_LEFT_OUT)
    env, content = _build_on(values, root)
    defaults = [
        *(f"  - override /{group}: {_dump(name)}" for group, name in env.items()),
        "  - override /tuned: none",
    ]
    blocks = ["\n".join(["# @package _global_", *map(_comment, header), "defaults:", *defaults])]
    scalars = {key: value for key, value in content.items() if not isinstance(value, dict)}
    sections = [{key: value} for key, value in content.items() if isinstance(value, dict)]
    blocks += [_dump(part) for part in (scalars, *sections) if part]
    return "\n\n".join(blocks) + "\n"


def _build_on(values: dict[str, Any], root: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the files to build on by group, and what differs from them."""
    env, algo = values["env"]["name"], values["algo"]["name"]
    dirs = [root, conf_dir()]
    if algo not in group_options("algo", dirs):
        raise ConfigError(
            f"algo={printable(algo)}: no such file in {root} or {conf_dir()}, so the experiment "
            f"cannot build on it. Write the experiment into the folder of the algorithm."
        )
    known = group_options("env", dirs)
    for name in (name for name in (env, _NEUTRAL_ENV) if name in known):
        groups = {"env": name, "algo": algo}
        base = _compose([f"env={name}", f"algo={algo}", "tuned=none"], [root]).values
        if name != _NEUTRAL_ENV and base["env"].get("id") != values["env"]["id"]:
            continue
        base["env"].setdefault("name", None if name == _NEUTRAL_ENV else name)
        # A configuration leaves out what came later and is not set.
        base = without_unused(base)
        for key, field in EvalConfig.model_fields.items():
            if key not in values["eval"] and base["eval"].get(key) == field.default:
                base["eval"].pop(key, None)
        try:
            content = _difference(base, values)
        except _NotMergeableError as error:
            problem = str(error)
            continue
        # Readers want to see these even where they are defaults, in the order of the values.
        hyperparams = values["algo"]["hyperparams"]
        content["algo"] = {**content.get("algo", {}), "hyperparams": hyperparams}
        content |= {key: values[key] for key in _ALWAYS}
        return groups, {key: content[key] for key in values if key in content}
    raise ConfigError(
        f"{problem} is set in a file of conf/, and not in this run: an experiment file cannot "
        "remove a key. Give the key a value."
    )


def _difference(base: Mapping[str, Any], wanted: Mapping[str, Any], path: str = "") -> Any:
    """Return what has to be merged over `base` to make it `wanted`."""
    different = {}
    for key, value in wanted.items():
        here = f"{path}{key}"
        before = base.get(key)
        if here == "normalize" and before is False:
            before = None
        if isinstance(before, dict) and isinstance(value, dict):
            if gone := before.keys() - value.keys():
                raise _NotMergeableError(f"{here}.{min(map(str, gone))}")
            if inner := _difference(before, value, f"{here}."):
                different[key] = inner
        elif key not in base or not _is_same(before, value, here):
            # Hydra merges neither a list over a mapping nor a mapping over a list.
            kinds = (list, tuple) if isinstance(before, list) else dict
            if value and isinstance(before, (list, dict)) and not isinstance(value, kinds):
                raise _NotMergeableError(here)
            different[key] = value
    return different


def _is_same(before: Any, value: Any, path: str) -> bool:
    if _text(before) == _text(value):
        return True
    # A typed field makes 500 a float by itself; arguments stay what they are.
    is_typed = not re.search(r"kwargs(\.|$)", path)
    return is_typed and type(before) is int and type(value) is float and before == value


def _check_text(text: str, name: str, config: RunConfig, root: Path) -> None:
    """Compose the text as `experiment=<name>` would be, and compare the outcome."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder)
        write_atomic(trial / GROUP / f"{name}.yaml", text)
        composed = _compose([f"{GROUP}={name}"], [trial, root])
        again = resolve(composed.values, env_name=str(composed.choices["env"])).config
    wanted, got = (each.model_copy(update={"hpo": None}) for each in (config, again))
    if config_hash(wanted) == config_hash(got):
        return
    before, now = ({k: _text(v) for k, v in each.model_dump().items()} for each in (wanted, got))
    keys = [key for key in before if key not in _LEFT_OUT and before[key] != now.get(key)]
    differing = [f"{key}={before[key]} became {now.get(key)}" for key in keys]
    raise ConfigError(
        f"{GROUP}={name} would not be the same run: {printable(', '.join(differing))}. The file "
        "was not written."
    )


def _compose(overrides: list[str], folders: list[Path]) -> Composed:
    """Compose as `train` does, with folders searched first."""
    # A sweeper calls from within another Hydra, and only one may be active.
    active = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        return compose_once([*(f"--config-dir={folder}" for folder in folders), *overrides])
    finally:
        GlobalHydra.instance().hydra = active


def _text(value: Any) -> str:
    """Return a value as text in which 1 and 1.0 differ, but lists and tuples do not."""
    return json.dumps(value, sort_keys=True, default=str)


def _comment(text: str) -> str:
    # A line break in a name must not become configuration.
    lines = textwrap.wrap(printable(text, 1000), 96, break_long_words=False)
    return "\n".join(f"# {line}".rstrip() for line in lines or [""])


def _dump(value: Any) -> str:
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=96, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


class _Dumper(PlainDumper):
    """Writes texts so that Hydra reads them as the same texts."""


def _represent_text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    # OmegaConf takes more for numbers than PyYAML does: '1e-3' must stay a text. And it would
    # replace ${...}; a backslash before it keeps it as it is. A reference to a secret is one.
    is_plain = re.match(r"[A-Za-z/]", data) and "${" not in data
    escaped = re.sub(
        rf"(\\*)(?!{REFERENCE.pattern})\$\{{", lambda found: f"{found[1] * 2}\\${{", data
    )
    return dumper.represent_scalar("tag:yaml.org,2002:str", escaped, None if is_plain else "'")


_Dumper.add_representer(str, _represent_text)


# Below the study.
CONF = "conf"


def write_winner(
    plan: StudyPlan, number: int, config: RunConfig, arguments: list[str]
) -> tuple[Path, str]:
    """Write the configuration of the winner; return the file, and the option that finds it."""
    target, option = _target(plan, arguments)
    header = [
        f"{_first_words(plan)} trial {number}.",
        f"Use: rlzoo-plus train {option}experiment={target.stem}",
        f"Written by a study; the next one of the same name replaces it. See {plan.folder}.",
    ]
    write_experiment(target, config, header, overwrite=_is_ours(target, plan))
    return target, option


def winner_options(study: Path, experiment: str) -> list[str]:
    """Return the option that finds a winner below its study, none if it is elsewhere."""
    file = study / CONF / GROUP / f"{experiment}.yaml"
    return ["--config-dir", str(study / CONF)] if file.is_file() else []


def check_target(plan: StudyPlan, arguments: list[str]) -> None:
    """Raise a ConfigError if the winner's file would replace one of the user's."""
    target, _ = _target(plan, arguments)
    if target.exists() and not _is_ours(target, plan):
        raise ConfigError(
            f"{target} exists, and this study did not write it. "
            "Choose another name for the winner: hpo.experiment=NAME."
        )


def _target(plan: StudyPlan, arguments: list[str]) -> tuple[Path, str]:
    """Return the path of the winner's file, and the option of `train` that finds it.

    It is in the user's own configuration folder, whose files it may need, or below the study.
    """
    *own, _ = config_dirs(arguments)
    root = own[0] if own else plan.folder / CONF
    name = plan.hpo.experiment or f"{experiment_name(plan.name)}_best"
    return root / GROUP / f"{name}.yaml", f"--config-dir {shlex.quote(str(root))} "


def _first_words(plan: StudyPlan) -> str:
    return f"The winner of the study {plan.name}:"


def _is_ours(target: Path, plan: StudyPlan) -> bool:
    """Return whether a file was written by this study, and not by the user."""
    try:
        with target.open(encoding="utf-8") as file:
            head = file.read(2048)
    except (OSError, UnicodeDecodeError):
        return False
    # A long name is wrapped, at spaces and hyphens.
    wanted, found = (re.sub(r"[\s#]+", "", text) for text in (_first_words(plan), head))
    return f"{wanted}trial" in found
