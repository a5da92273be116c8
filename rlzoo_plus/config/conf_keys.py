"""The keys of conf/ with their defaults and comments, read as text: in milliseconds, no library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlzoo_plus.config.search_path import conf_dir

GROUPS = ("env", "algo", "network", "tuned", "infra", "tracker", "hpo", "experiment")


def settings() -> dict[str, tuple[str, str]]:
    """Return default and meaning of each key of a run and of a study."""
    files = (
        *(("config.yaml", "experiment: null\n", ""), ("hpo/_study.yaml", "- _self_\n", "hpo.")),
        *(("env/_base.yaml", "\n\n", "env."), ("algo/sac.yaml", "\nname: ", "algo.")),
    )
    found: dict[str, tuple[str, str]] = {}
    for name, start, prefix in files:
        text = (conf_dir() / name).read_text(encoding="utf-8").partition("\nhyperparams:")[0]
        for line in key_lines(text, start, prefix):
            assignment, _, about = line.strip().partition("  ")
            # A short line has one blank between the two.
            assignment, value = assignment.partition("=")[::2]
            if not about and " " in value and not value.startswith(("[", "{")):
                value, _, about = value.partition(" ")
            found.setdefault(assignment, (value, about.strip()))
    return found


def hyperparams() -> Mapping[str, list[tuple[str, str, str]]]:
    """Return algorithm, default and meaning of each argument, from the files of conf/algo."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for path in sorted((conf_dir() / "algo").glob("[!_]*.yaml")):
        _, _, text = path.read_text(encoding="utf-8").partition("\nhyperparams:")
        for line in text.splitlines():
            setting, _, about = line.partition("#")
            name, colon, value = setting.strip().partition(":")
            if colon and line.startswith("  ") and not line.startswith("   "):
                found.setdefault(name, []).append((path.stem, value.strip(), about.strip()))
    return found


def key_lines(content: str, start: str, prefix: str = "") -> Iterable[str]:
    """Yield each key of a configuration file with its default and comment.

    The keys begin behind `start`, the end of its defaults list; `prefix` precedes each on the
    command line.
    """
    section = ""
    for line in content.split(start, 1)[-1].split("\nhydra:", 1)[0].splitlines():
        text, _, comment = line.partition("#")
        name, colon, value = text.strip().partition(":")
        if not colon or name.startswith("-") or text.startswith("    "):
            continue
        if not text.startswith(" "):
            section = "" if value.strip() else f"{name}."
        if value.strip():
            assignment = f"{prefix}{section}{name}={value.strip()}"
            yield f"  {assignment:<40} {comment.strip()}"
