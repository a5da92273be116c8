"""References to secrets: `${oc.env:API_TOKEN}` is stored as it is, and read where it is used.

A variable is a secret if its name or the key that refers to it says so. Other variables are read
when the configuration is composed, as Hydra does.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlzoo_plus.artifacts.atomic import map_leaves
from rlzoo_plus.artifacts.encryption import looks_like_key
from rlzoo_plus.artifacts.secrets import is_secret, is_secret_variable, values_of_variables
from rlzoo_plus.errors import ConfigError

REFERENCE = re.compile(r"\$\{oc\.env:(?P<name>[A-Za-z_]\w*)\}")
# Arguments for environments, wrappers, callbacks and trackers.
_REVEALED = re.compile(r"(env\.kwargs|env\.wrappers|callbacks|tracker\.kwargs)(\.|$)")
# What `infra.secrets` holds, as data and as typed: names of parameters of AWS's Systems Manager.
_PARAMETER = r"""["']?(?:/[A-Za-z0-9_.-]+){2,}["']?"""
_PARAMETERS = re.compile(
    rf"""{_PARAMETER}|\{{(?:\s*["']?\w+["']?\s*:\s*{_PARAMETER}\s*,?)*\s*\}}"""
)


def reveal(value: Any, where: str) -> Any:
    """Return nested plain data with the values of the variables that it refers to.

    Raises:
        ConfigError: A variable is not set here.
    """
    for name in variables_in(value):
        if name not in os.environ:
            raise ConfigError(
                f"{where} refers to the environment variable {name}, which is not set here. "
                f"Set it: export {name}=..."
            )

    def revealed(leaf: Any) -> Any:
        is_text = isinstance(leaf, str)
        return REFERENCE.sub(lambda match: os.environ[match["name"]], leaf) if is_text else leaf

    return map_leaves(value, revealed)


def variables_in(value: Any) -> list[str]:
    """Return the names of the variables that nested plain data refers to."""
    texts = [text for _, text in _texts(value) if isinstance(text, str)]
    return list(dict.fromkeys(name for text in texts for name in REFERENCE.findall(text)))


def refuse_secrets(values: Mapping[str, Any], *, composed: bool = True) -> None:
    """Refuse secrets in a configuration: it is written to files, which others may see.

    Args:
        values: The configuration or a part of it from its root, plain data, or texts by dotted key.
        composed: Whether interpolations are resolved, so that only references to secrets are left;
            they are refused where none is read.

    Raises:
        ConfigError: It holds a secret or such a reference. The text has no secret.
    """
    variables = values_of_variables()
    for path, value in _texts(values):
        is_reference = composed and isinstance(value, str) and REFERENCE.search(value)
        if is_reference and not _REVEALED.match(path):
            places = "env.kwargs, env.wrappers, callbacks and tracker.kwargs"
            raise ConfigError(f"{path} refers to a secret, which only {places} may.")
        plain = REFERENCE.sub("", value) if isinstance(value, str) else value
        if re.match(r"infra\.secrets\b", path) and _PARAMETERS.fullmatch(str(plain)):
            # The names beside them are those of secrets; the launcher checks which may be read.
            plain = ""
        if path == "encryption" and looks_like_key(value):
            raise ConfigError(
                "encryption takes the NAME of an environment variable, and this looks like the key "
                "itself, which others may have seen now. Make a new one: "
                "export RUN_KEY=$(openssl rand -hex 32), then encryption=RUN_KEY."
            )
        # The storage has a check of its own, which knows the addresses of databases.
        if path != "hpo.storage" and is_secret(path, plain, variables):
            raise ConfigError(f"{path} holds a secret, or looks as if: {_instead(path)}")


def _instead(path: str) -> str:
    stays = "a configuration is written to files that are shared."
    if path.startswith("infra.setup"):
        return (
            f"{stays} Set the variable in the shell that starts the jobs, which hands it on to "
            "them, or read a file: 'source ~/.secrets'."
        )
    if path.startswith("infra.secrets"):
        return (
            f"{stays} Put the value into a parameter of AWS's Systems Manager, and name that: "
            "infra.secrets={NAME: /rlzoo/PROJECT/name}."
        )
    if not _REVEALED.match(path):
        return f"{stays} Leave it out, and set an environment variable if your code reads one."
    key = next((part for part in reversed(path.split(".")) if not part.isdigit()), path)
    name = re.sub(r"\W", "_", key).upper()
    reference = f"${{oc.env:{name if is_secret_variable(name) else f'{name}_SECRET'}}}"
    if path.startswith("env.kwargs"):
        reference = f"'{path}={reference}'"
    return f"{stays} Put it into an environment variable, and refer to that: {reference}."


def _texts(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each value of nested plain data with the keys that lead to it, joined by dots."""
    # Most are plain values, and to ask for a mapping first takes longer.
    if value is None or isinstance(value, (str, int, float)):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _texts(item, f"{path}.{number}")
    else:
        yield path, value
