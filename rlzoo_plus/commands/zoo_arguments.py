"""rl_zoo3's flags on our command lines: said once in the form that is used here, then run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.commands.typed import as_typed
from rlzoo_plus.config.zoo_flags import translated
from rlzoo_plus.policies.zoo_play import translated_play, translated_plot

_TRANSLATED = {"enjoy": translated_play, "record": translated_play, "plot": translated_plot}


def in_our_form(verb: str, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a verb with rl_zoo3's flags translated, and print the translation.

    It is printed to stderr, since the output may be JSON or YAML.
    """
    found = _TRANSLATED.get(verb, translated)(arguments)
    if found is None:
        return list(arguments)
    print(as_typed(f"= {command_line(['rlzoo-plus', verb, *found.arguments])}"), file=sys.stderr)
    for note in found.notes:
        print(as_typed(f"note: {note}"), file=sys.stderr)
    return found.arguments
