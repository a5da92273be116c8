"""Variants: runs that differ in nothing but their seed, and short labels that tell them apart.

Summaries, tables, plots and comparisons average within a variant and never across variants.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

from rlzoo_plus.artifacts.secrets import BLANK, is_secret
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.resolve import UNHASHED
from rlzoo_plus.config.schema import IN_PROCESS
from rlzoo_plus.config.unused_keys import OF_SOME_ALGORITHMS, without_unused

# Besides keys that cannot affect results: the seed; `hpo` steers a search, metrics only measure.
_NOT_COMPARED = (*UNHASHED, "seed", "hpo")
_NOT_COMPARED_BELOW = (("init", "which"), ("eval", "metrics"))
# Only these are told apart by name, since names are shown anyway.
_NAMES = ("algo.name", "env.name")
_PREFIXES = ("algo.hyperparams.", "network.", "env.kwargs.", "env.")
_LONGEST_LABEL, _LONGEST_VALUE = 120, 40
_ABSENT = "-"

Key = TypeVar("Key", bound=Hashable)


def variant_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes a variant: all keys that affect results, but the seed.

    The configuration is plain data, and may be untrusted or incomplete.
    """
    # Runs from before a key lack it, or have it with the value that changes nothing.
    used = without_unused(config)
    for section, keys in OF_SOME_ALGORITHMS.items():
        if isinstance(found := used.get(section), Mapping):
            used[section] = {**keys, **found}
    kept = {key: value for key, value in used.items() if key not in _NOT_COMPARED}
    for section, key in _NOT_COMPARED_BELOW:
        inner = kept.get(section)
        if isinstance(inner, Mapping):
            kept[section] = {name: value for name, value in inner.items() if name != key}
    if kept.get("vec_env") in IN_PROCESS:
        kept["vec_env"] = IN_PROCESS[0]
    return _flat(kept)


def variant_key(values: Mapping[str, Any]) -> str:
    """Return a hash that is equal for runs of one variant."""
    text = json.dumps(values, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differing_keys(variants: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys in which variants differ, in the order of the configuration."""
    keys = dict.fromkeys(key for values in variants for key in values)
    return [key for key in keys if len({_text(v.get(key, _ABSENT)) for v in variants}) > 1]


def shown_value(key: str, value: Any, longest: int = _LONGEST_VALUE) -> str:
    """Return a value as text that is safe to print; a secret is blanked."""
    return BLANK if is_secret(key, value) else printable(_text(value), longest)


def settings_labels(variants: Mapping[Key, Mapping[str, Any]]) -> dict[Key, str]:
    """Name variants by what sets each apart from the others of its algorithm and environment.

    Labels are short and differ within an algorithm and environment; the only variant of one has an
    empty label. A variant may be there repeatedly.
    """
    families: dict[tuple[str, ...], list[Key]] = {}
    for key, values in variants.items():
        families.setdefault(tuple(str(values.get(n)) for n in _NAMES), []).append(key)
    labels: dict[Key, str] = {}
    for members in families.values():
        labels |= _family_labels({key: variants[key] for key in members})
    return {key: labels[key] for key in variants}


def _family_labels(variants: Mapping[Key, Mapping[str, Any]]) -> dict[Key, str]:
    variants = _with_sections(variants)
    names = [key for key in differing_keys(list(variants.values())) if key not in _NAMES]
    # What a user swept comes first, what follows from it behind.
    names.sort(
        key=lambda name: next(
            (i for i, prefix in enumerate(_PREFIXES) if name.startswith(prefix)), len(_PREFIXES)
        )
    )
    shown = {name: _text_by_key(name, variants) for name in names}
    full = _joined(variants, names, shown)
    if max(map(len, full.values()), default=0) > _LONGEST_LABEL // 2:
        # Of keys that divide the variants alike, one is enough.
        partitions: dict[tuple[int, ...], str] = {}
        for name in names:
            partitions.setdefault(_partition(list(shown[name].values())), name)
        full = _joined(variants, list(partitions.values()), shown)
    cut = {key: printable(label, _LONGEST_LABEL) for key, label in full.items()}
    marks = {key: variant_key(values)[:6] for key, values in variants.items()}
    if len(set(cut.values())) < len(set(marks.values())):
        # They differ beyond what is shown.
        cut = {k: f"{printable(v, _LONGEST_LABEL - 10)} #{marks[k]}" for k, v in full.items()}
    return cut


def _with_sections(
    variants: Mapping[Key, Mapping[str, Any]],
) -> Mapping[Key, Mapping[str, Any]]:
    """Return variants in which a section that is null in one of them has a value in the others.

    The value is the section's `type`, or true. Below it stays what differs among the others.
    """
    names = dict.fromkeys(name for values in variants.values() for name in values)
    heads = {name[: at.start()] for name in names for at in re.finditer(r"\.", name)}
    found = variants
    for section in (name for name in names if name in heads):
        inside = [name for name in names if name.startswith(f"{section}.")]
        having = [v for v in found.values() if any(name in v for name in inside)]
        alike = {n for n in inside if len({_text(v.get(n, _ABSENT)) for v in having}) == 1}
        found = {
            key: values
            if section in values
            else {
                **{n: v for n, v in values.items() if n not in alike},
                section: values.get(f"{section}.type", True),
            }
            for key, values in found.items()
        }
    return found


def _joined(
    variants: Mapping[Key, Any], names: Sequence[str], shown: Mapping[str, Mapping[Key, str]]
) -> dict[Key, str]:
    short = _short_names(names)
    return {key: " ".join(f"{short[n]}={shown[n][key]}" for n in names) for key in variants}


def _text_by_key(name: str, variants: Mapping[Key, Mapping[str, Any]]) -> dict[Key, str]:
    whole = {key: _text(values.get(name, _ABSENT)) for key, values in variants.items()}
    is_hidden = any(is_secret(name, values.get(name)) for values in variants.values())
    if max(map(len, whole.values())) <= _LONGEST_VALUE and not is_hidden:
        return whole
    # Long values may begin alike.
    marks = {k: hashlib.sha256(text.encode()).hexdigest()[:6] for k, text in whole.items()}
    if is_hidden:
        return {key: f"#{mark}" for key, mark in marks.items()}
    return {
        k: t if len(t) <= _LONGEST_VALUE else f"{t[: _LONGEST_VALUE - 12]}...#{marks[k]}"
        for k, t in whole.items()
    }


def _partition(texts: list[str]) -> tuple[int, ...]:
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(text, len(numbers)) for text in texts)


def _short_names(names: Sequence[str]) -> dict[str, str]:
    """Return each key without its section, or whole where two keys would look alike."""
    short = {}
    for name in names:
        prefix = next((p for p in _PREFIXES if name.startswith(p)), "")
        short[name] = name[len(prefix) :]
    seen = list(short.values())
    return {name: text if seen.count(text) == 1 else name for name, text in short.items()}


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            # An empty mapping says as little as an absent one.
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return flat


def _text(value: Any) -> str:
    """Return a value as it is typed on a command line, on one line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_text(item)}" for key, item in value.items()) + "}"
    return printable(value if isinstance(value, str) else repr(value), 10_000)
