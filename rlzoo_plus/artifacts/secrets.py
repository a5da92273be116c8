"""Finds secrets, by the names beside them or by their form, and blanks them before writing."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from rlzoo_plus.artifacts.atomic import map_leaves

BLANK = "***"
# Working directories, with names as passwords have.
_NO_SECRETS = ("PWD", "OLDPWD", "INIT_CWD")
_ENDINGS = (
    *("token", "secret", "password", "passwd", "passphrase", "credential"),
    *("apikey", "accesskey", "secretkey", "privatekey"),
)
_WORDS = ("auth", "oauth", "authorization", "bearer", "pwd", "pw")
# A key of a dictionary or a keyboard is not a secret; these are.
_KINDS_OF_KEY = (
    *("api", "access", "secret", "private", "auth", "ssh", "encryption", "signing", "account"),
    *("master", "license", "client", "storage", "service", "deploy"),
)
# A number is a secret only under these names: `n_token=3` is a count.
_NUMERIC = ("password", "passwd", "passphrase", "pwd", "pw", "secret")
# The last one is the placeholder of our own messages.
_NO_VALUES = ("true", "false", "null", "None", "VALUE")
# What precedes a name before an assigning colon, unlike in a sentence: `unclosed token: line 1`.
_BEFORE_KEY = re.compile(r"(^|[{,\[(])[\s+\->\"']*$")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_FORMS = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{20,}"
    r"|sk-[\w-]{20,}|xox[a-z]-[\w-]{10,}|A[KS]IA[A-Z0-9]{16}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,})"
)
_PRIVATE_KEY = re.compile(
    r"(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
_LOGIN = re.compile(r"//(?P<user>[^/@\s:'\"]*):(?!\$)[^/@\s]+@")
_NAMED = re.compile(
    r"""(?P<name>(?<![\w.])[A-Za-z_][\w.-]*)(?P<close>["']?)(?P<sep>\s*[=:]\s*)"""
    r"""(?P<value>"[^"\n]*"|'[^'\n]*'|\{[^{}\n]*\}|\[[^\[\]\n]*\]"""
    r"""|(?:(?:Bearer|Basic)[ ]+)?[^\s,;&(){}\[\]"']++(?!\())"""
)


# Each job of a sweep has the same names.
@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether a key names a secret: `api_token`, `dbPassword`, `auth`; not `author`."""
    parts = [part.lower() for part in _PART.findall(name)]
    if not parts:
        return False
    last = parts[-1] if parts[-1] in _WORDS else parts[-1].removesuffix("s")
    is_key = last == "key" and len(parts) > 1 and parts[-2] in _KINDS_OF_KEY
    return is_key or last in _WORDS or last.endswith(_ENDINGS)


@lru_cache(maxsize=4096)
def is_secret_variable(name: str) -> bool:
    """Return whether an environment variable holds a secret by its name; also a bare `KEY`."""
    if name in _NO_SECRETS:
        return False
    return is_secret_name(name) or _PART.findall(name)[-1:] in (["KEY"], ["key"])


def is_secret(path: str, value: Any, variables: Sequence[str] | None = None) -> bool:
    """Return whether a plain value is a secret, by its dotted path of keys or by its form.

    References to variables and empty texts are not. For `variables` see `redact`.
    """
    if isinstance(value, str):
        text = value.strip()
        if redact(text, variables) != text:
            return True
        is_named = any(map(is_secret_name, path.split(".")))
        return is_named and text not in ("", BLANK) and text[0] != "$"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and _takes_numbers(path.rpartition(".")[2])


def redact(text: str, variables: Sequence[str] | None = None) -> str:
    """Return a text with its secrets blanked.

    It finds the values of environment variables with a secret's name, passwords in addresses,
    tokens of known forms, and values assigned to a secret's name.

    For many texts, give it `values_of_variables` once.
    """
    for value in values_of_variables() if variables is None else variables:
        if value in text:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])", BLANK, text)
    text = _LOGIN.sub(rf"//\g<user>:{BLANK}@", text)
    text = _PRIVATE_KEY.sub(rf"\1{BLANK}\2", _FORMS.sub(BLANK, text))
    return _NAMED.sub(_without_value, text)


def redact_all(value: Any) -> Any:
    """Return nested plain data with the secrets in its texts blanked."""
    return map_leaves(value, lambda leaf: redact(leaf) if isinstance(leaf, str) else leaf)


def _without_value(match: re.Match[str]) -> str:
    name, value = match["name"].rpartition(".")[2], match["value"]
    is_named = is_secret_variable(name) if name.isupper() else is_secret_name(name)
    inner = value.strip("\"'")
    if not is_named:
        return match[0].removesuffix(value) + _NAMED.sub(_without_value, value)
    before = match.string[: match.start()].rpartition("\n")[2]
    is_prose = ":" in match["sep"] and not _BEFORE_KEY.search(before)
    if is_prose and not inner.startswith(("Bearer ", "Basic ")):
        return match[0]
    if not inner or inner[0] in "$*." or inner in _NO_VALUES:
        return match[0]
    if re.fullmatch(r"[-+\d.e]+", inner) and not _takes_numbers(name):
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['name']}{match['close']}{match['sep']}{quote}{BLANK}{quote}"


def _takes_numbers(name: str) -> bool:
    parts = _PART.findall(name)
    return bool(parts) and is_secret_name(name) and parts[-1].lower().endswith(_NUMERIC)


def values_of_variables() -> list[str]:
    """Return the values of all environment variables with a secret, the longest first.

    Paths are left out, and short values, which would be blanked wherever they occur.
    """
    values = set()
    for value in (value for name, value in os.environ.items() if is_secret_variable(name)):
        is_mixed = re.search("[A-Za-z]", value) and re.search("[0-9]", value)
        if len(value) >= (8 if is_mixed else 16) and value[0] not in "/~.":
            values.add(value)
    return sorted(values, key=len, reverse=True)
