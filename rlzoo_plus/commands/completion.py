"""Shell completion: verbs, their options and sub-commands, paths, and the overrides of conf/."""

from __future__ import annotations

import os
from glob import escape, glob
from pathlib import Path

from rlzoo_plus.commands.verbs import VERBS, WITH_OVERRIDES
from rlzoo_plus.config.conf_keys import GROUPS, hyperparams, settings
from rlzoo_plus.config.search_path import config_dirs, group_options

OPTIONS = Path(__file__).with_name("options.txt")
"""Sub-commands and options of each verb: its help would take most of a second of imports."""


def complete(arguments: list[str]) -> bool:
    """Print what may follow in the command line of `COMP_LINE`; return False to leave it to Hydra.

    Args:
        arguments: `-sc`, and what is asked for: `install=SHELL` or `query=SHELL`.
    """
    program, _, rest = os.environ.get("COMP_LINE", "").partition(" ")
    verb, space, after = rest.lstrip().partition(" ")
    if arguments[1:] and arguments[1].startswith("query"):
        if space:
            choices = choices_of(verb, after) if verb in VERBS else []
        else:
            choices = [name for name in VERBS if name.startswith(verb)]
        if choices or not space:
            print(("\n" if arguments[1].endswith("fish") else " ").join(choices))
        return True
    os.environ["COMP_LINE"] = f"{program} {after}"
    return False


def choices_of(verb: str, line: str) -> list[str]:
    """Return what may follow at the end of a line."""
    *before, last = line.split(" ")
    offered = options()[verb]
    if last.startswith("-"):
        return [option for option in offered if option.startswith(last)]
    commands = [option for option in offered if not option.startswith("-")]
    if commands and not any(before):
        return [command for command in commands if command.startswith(last)]
    if verb in WITH_OVERRIDES and (choices := _overrides(last)):
        return choices
    if verb == "train" or "=" in last:
        return []
    paths = sorted(glob(f"{escape(last)}*"))
    return [f"{path}/" if Path(path).is_dir() else path for path in paths if " " not in path]


def options() -> dict[str, list[str]]:
    """Return sub-commands and options of each verb."""
    lines = OPTIONS.read_text(encoding="utf-8").splitlines()
    return {verb: words.split() for verb, _, words in (line.partition(": ") for line in lines)}


def _overrides(word: str) -> list[str]:
    """Return the overrides that begin like this: groups, their files, and keys.

    The files of conf/, and of the command's `--config-dir`, are read each time, as text: Hydra
    would take a second to compose them.
    """
    group, is_chosen, _ = word.partition("=")
    if is_chosen:
        dirs = config_dirs(["-sc"])
        names = group_options(group, dirs) if group in GROUPS else []
        return [choice for name in names if (choice := f"{group}={name}").startswith(word)]
    keys = [*GROUPS, *settings(), *(f"algo.hyperparams.{name}" for name in hyperparams())]
    return sorted({f"{key}=" for key in keys if key.startswith(word)})
