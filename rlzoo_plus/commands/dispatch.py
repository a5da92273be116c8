"""The command line: runs a verb, and turns a user's mistake into one message and exit code 2."""

from __future__ import annotations

import errno
import logging
import select
import signal
import sys
from typing import Any

from rlzoo_plus import __version__
from rlzoo_plus.artifacts.secrets import redact
from rlzoo_plus.artifacts.untrusted import printable_lines
from rlzoo_plus.commands.completion import complete
from rlzoo_plus.commands.typed import as_typed, drop_output, tell
from rlzoo_plus.commands.verbs import OF_MACHINES, OTHER_NAMES, VERBS, main_of, usage
from rlzoo_plus.errors import RUN_ERROR, USER_ERROR, ConfigError, RunError, unknown_name
from rlzoo_plus.processes import pause_gc, resume_gc

# Verbs that import libraries to the end before collections begin.
_TRAINING = ("train", "resume")
_LONGEST_SHOWN = 300
# Errors of the system about a path that the user chose; any other OSError is a bug.
_ABOUT_PATHS = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR),
    *(errno.ENAMETOOLONG, errno.ELOOP),
}


def run(verb: str, arguments: list[str]) -> int:
    """Run a verb and return its exit code.

    A `ConfigError`, a `RunError` and a system error about the user's path are printed without a
    traceback; anything else is a bug and keeps it.
    """
    try:
        if verb not in VERBS and verb not in OF_MACHINES:
            raise ConfigError(_unknown(verb))
        main = main_of(verb)
        if verb not in _TRAINING:
            resume_gc()
        return int(main(arguments) or 0)
    except (ConfigError, RunError, OSError) as error:
        text = _about_path(error) if isinstance(error, OSError) else str(error)
        if logging.getLogger("rlzoo_plus").isEnabledFor(logging.DEBUG):
            from rlzoo_plus.runs.printing import print_traceback

            print_traceback(error)
        # It may quote an untrusted source, or a secret of the user: it often ends in a log.
        print(f"error: {as_typed(printable_lines(redact(text)))}", file=sys.stderr)
        return RUN_ERROR if isinstance(error, RunError) else USER_ERROR
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


def _unknown(verb: str) -> str:
    if verb not in OTHER_NAMES:
        return unknown_name("verb", verb, VERBS, "rlzoo-plus --help")
    return (
        f"unknown verb {verb!r}. Did you mean {OTHER_NAMES[verb]!r}? All {len(VERBS)}: "
        "`rlzoo-plus --help`."
    )


def entry_point(verb: str | None = None) -> None:
    """Start from the command line: with a fixed verb, or with the first argument as the verb."""
    arguments = sys.argv[1:]
    code: Any = 0
    pause_gc()
    try:
        if verb is not None:
            code = run(verb, arguments)
        elif not arguments or arguments[0] in ("-h", "--help", "help"):
            tell(usage())
        elif arguments[0] == "--version":
            print(f"rlzoo-plus {__version__}")
        elif arguments[0] == "-sc":
            # Hydra knows the overrides, and writes the function of the shell.
            code = 0 if complete(arguments) else run("train", arguments)
        else:
            code = run(arguments[0], arguments[1:])
    except SystemExit as stop:
        code = stop.code
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        code = 0
    # Python writes the rest at exit, and would print a traceback if nobody reads any more.
    if _reader_is_gone():
        drop_output()
    sys.exit(code)


def _about_path(error: OSError) -> str:
    """Return what is wrong with a path of the user's that no check has found wrong before."""
    if error.filename is None or error.errno not in _ABOUT_PATHS:
        raise error
    name = str(error.filename)
    shown = name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
    return f"{shown}: {error.strerror}. Choose another path, or change this one."


def _reader_is_gone() -> bool:
    """Return whether nobody reads our output any more, as in `rlzoo-plus runs | head`."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return True
    try:
        number = sys.stdout.fileno()
    except OSError:
        return False
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(number, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
