"""The command line: finds the verb, and turns a user's mistake into one message and exit code 2."""

from __future__ import annotations

import errno
import os
import select
import sys
from importlib import import_module
from typing import Any

from rlzoo_plus.commands.typed import as_typed, tell, throw_away_output
from rlzoo_plus.errors import RUN_ERROR, USER_ERROR, ConfigError, RunError, unknown_name

VERBS: dict[str, tuple[str, str]] = {
    "train": ("rlzoo_plus.commands.train", "train an agent: train algo=ppo env=cartpole_bullet"),
    "evaluate": ("rlzoo_plus.commands.evaluate", "measure a trained policy over fresh episodes"),
    "enjoy": ("rlzoo_plus.commands.enjoy", "watch a trained policy in a window"),
    "record": ("rlzoo_plus.commands.record", "film a trained policy"),
    "resume": ("rlzoo_plus.commands.resume", "let an unfinished run go on, bit for bit"),
    "doctor": ("rlzoo_plus.commands.doctor", "find mistakes before training, and measure speed"),
    "new-robot": ("rlzoo_plus.commands.new_robot", "write an environment for a URDF of your own"),
    "inspect": ("rlzoo_plus.commands.inspect", "look at a robot: joints, rewards, speed, picture"),
    "sweep": ("rlzoo_plus.commands.sweep", "look after the jobs of train -m: status, resume, ..."),
    "study": ("rlzoo_plus.commands.study", "look at a search for values: show, plot, best, ..."),
    "checkpoint": ("rlzoo_plus.commands.checkpoint", "ask a running training for a checkpoint"),
    "verify-resume": (
        "rlzoo_plus.commands.verify_resume",
        "prove that a killed and resumed run is the same, bit for bit",
    ),
    "plot": ("rlzoo_plus.commands.plot", "draw learning curves of one or more runs"),
    "runs": ("rlzoo_plus.commands.runs", "list runs: state, algorithm, environment, best return"),
    "import-zoo": (
        "rlzoo_plus.commands.import_zoo",
        "convert rl_zoo3 hyperparameter files to conf/tuned",
    ),
    "export": ("rlzoo_plus.commands.export", "write a policy as ONNX, TorchScript or an SB3 zip"),
    "import-sb3": ("rlzoo_plus.commands.import_sb3", "take a Stable-Baselines3 zip into a run"),
}
# Verbs that take the overrides of `train`.
WITH_OVERRIDES = ("train", "doctor", "inspect", "verify-resume")
INTERRUPTED = 130
_LONGEST_SHOWN = 300
# What the system says of a path that the user chose; anything else is a defect.
_ABOUT_PATHS = {
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
}


def usage() -> str:
    """Return the overview of verbs."""
    verbs = "\n".join(f"  {verb:<15}{text}" for verb, (_, text) in VERBS.items())
    return (
        "Usage: rlzoo-plus VERB [ARGUMENTS]\n\n"
        f"{verbs}\n\n"
        "`rlzoo-plus VERB --help` tells more of each.\n"
        'Shell completion: eval "$(rlzoo-plus -sc install=bash)"'
    )


def run(verb: str, arguments: list[str]) -> int:
    """Run a verb and return its exit code.

    A `ConfigError` and a `RunError` are printed without a traceback, and what the system says of
    the user's paths; anything else is a defect and keeps it.
    """
    try:
        if verb not in VERBS:
            raise ConfigError(unknown_name("verb", verb, VERBS, "rlzoo-plus --help"))
        return int(import_module(VERBS[verb][0]).main(arguments) or 0)
    except (ConfigError, RunError, OSError) as error:
        text = _about_path(error) if isinstance(error, OSError) else str(error)
        from rlzoo_plus.artifacts.secrets import redact
        from rlzoo_plus.artifacts.untrusted import printable_lines

        # It may quote what a stranger wrote, or the user: it often ends in a log.
        print(f"error: {as_typed(printable_lines(redact(text)))}", file=sys.stderr)
        return RUN_ERROR if isinstance(error, RunError) else USER_ERROR
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def entry_point(verb: str | None = None) -> None:
    """Start from the command line: with a fixed verb, or with the first argument as the verb."""
    try:
        code: Any = _start(verb, sys.argv[1:])
    except SystemExit as stop:
        code = stop.code
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        code = 0
    # Python would write the rest as it ends, and print a traceback if nobody reads any more.
    if _reader_is_gone():
        throw_away_output()
    sys.exit(code)


def _about_path(error: OSError) -> str:
    """Say what is wrong with a path that the user chose.

    Checks come first; this is for a path that changes, or is only tried when it is used.
    """
    if error.filename is None or error.errno not in _ABOUT_PATHS:
        raise error
    name = str(error.filename)
    shown = name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
    return f"{shown}: {error.strerror}. Choose another path, or change this one."


def _reader_is_gone() -> bool:
    """Tell whether it is our own output that nobody reads, as in `rlzoo-plus runs | head`."""
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


def _start(verb: str | None, arguments: list[str]) -> int:
    if verb is not None:
        return run(verb, arguments)
    if arguments and arguments[0] == "-sc":
        return _complete(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        tell(usage())
        return 0
    if arguments[0] == "--version":
        from rlzoo_plus import __version__

        print(f"rlzoo-plus {__version__}")
        return 0
    return run(arguments[0], arguments[1:])


def _complete(arguments: list[str]) -> int:
    """Complete verbs, and what may follow each: overrides are known to Hydra, which knows no verbs.

    Args:
        arguments: `-sc`, and what is asked for: `install=SHELL` or `query=SHELL`.
    """
    program, _, rest = os.environ.get("COMP_LINE", "").partition(" ")
    verb, space, after = rest.lstrip().partition(" ")
    if arguments[1:] and arguments[1].startswith("query"):
        from rlzoo_plus.commands.completion import choices_of

        separator = "\n" if arguments[1].endswith("fish") else " "
        if not space:
            print(separator.join(name for name in VERBS if name.startswith(verb)))
            return 0
        choices = choices_of(verb, after) if verb in VERBS else []
        if choices:
            print(separator.join(choices))
        if verb not in WITH_OVERRIDES or choices:
            return 0
    os.environ["COMP_LINE"] = f"{program} {after}"
    return run("train", arguments)
