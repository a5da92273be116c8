"""The command line: runs a verb, and turns a user's mistake into one message and exit code 2."""

from __future__ import annotations

import errno
import logging
import select
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from rlzoo_plus.commands.typed import as_typed, drop_output, tell
from rlzoo_plus.errors import RUN_ERROR, USER_ERROR, ConfigError, RunError, unknown_name
from rlzoo_plus.processes import pause_gc, resume_gc

# The module of each is `rlzoo_plus.commands.VERB`.
VERBS = {
    "train": "train an agent: train algo=ppo env=cartpole_bullet",
    "evaluate": "evaluate a trained policy on held-out episodes",
    "replay": "play saved episodes again, and check each step",
    "diagnose": "look into a trained policy, and at its reward",
    "robustness": "measure a policy in changed worlds: mass, latency, noise",
    "enjoy": "watch a trained policy in a window",
    "record": "record a video of a trained policy",
    "resume": "resume an unfinished run, bit for bit",
    "doctor": "check a configuration before training, and measure its speed",
    "new-robot": "write an environment for your own URDF",
    "inspect": "show an environment; or a policy's episode, step by step",
    "sweep": "manage the jobs of train -m: status, resume, ...",
    "worker": "train runs of a sweep that is in a store",
    "cloud": "make, show or remove your project in AWS: deploy, status, ...",
    "study": "show a hyperparameter study: show, plot, best, ...",
    "checkpoint": "ask a training process for a checkpoint",
    "verify-resume": "verify that a killed and resumed run is the same, bit for bit",
    "plot": "plot learning curves of one or more runs",
    "compare": "compare variants: difference, interval, test, gate",
    "benchmark": "train a fixed suite over several seeds, as a table",
    "report": "write an HTML report of runs, a sweep or a study",
    "runs": "list runs: state, algorithm, environment, best return",
    "dashboard": "show runs in the browser",
    "ls": "list the sweeps in S3 or in a shared folder",
    "push": "send a run to S3 or to a shared folder",
    "pull": "bring a run from S3 or a shared folder, or the best one",
    "trust": "trust packages of your own once, for all runs",
    "import-zoo": "convert rl_zoo3 hyperparameter files to conf/tuned",
    "export": "export a policy as ONNX, TorchScript or an SB3 zip",
    "import-sb3": "import a Stable-Baselines3 zip as a run",
}
# What machines in a cloud call; nobody types it.
OF_MACHINES = ("leave-fleet",)
# Verbs that import libraries to the end before collections begin.
_TRAINING = ("train", "resume")
# Verbs that take the overrides of `train`.
WITH_OVERRIDES = ("train", "doctor", "inspect", "verify-resume")
_LONGEST_SHOWN = 300
# Errors of the system about a path that the user chose; any other OSError is a bug.
_ABOUT_PATHS = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR),
    *(errno.ENAMETOOLONG, errno.ELOOP),
}


def usage() -> str:
    """Return the overview of verbs."""
    verbs = "\n".join(f"  {verb:<15}{text}" for verb, text in VERBS.items())
    return (
        "Usage: rlzoo-plus VERB [ARGUMENTS]\n\n"
        f"{verbs}\n\n"
        "`rlzoo-plus VERB --help` shows the arguments of each.\n"
        'Shell completion: eval "$(rlzoo-plus -sc install=bash)"'
    )


def main_of(verb: str) -> Callable[[list[str]], int | None]:
    """Return the function that runs a verb; its module is imported here."""
    return import_module(f"rlzoo_plus.commands.{verb.replace('-', '_')}").main


def run(verb: str, arguments: list[str]) -> int:
    """Run a verb and return its exit code.

    A `ConfigError`, a `RunError` and a system error about the user's path are printed without a
    traceback; anything else is a bug and keeps it.
    """
    try:
        if verb not in VERBS and verb not in OF_MACHINES:
            raise ConfigError(unknown_name("verb", verb, VERBS, "rlzoo-plus --help"))
        main = main_of(verb)
        if verb not in _TRAINING:
            resume_gc()
        return int(main(arguments) or 0)
    except (ConfigError, RunError, OSError) as error:
        text = _about_path(error) if isinstance(error, OSError) else str(error)
        from rlzoo_plus.artifacts.secrets import redact
        from rlzoo_plus.artifacts.untrusted import printable_lines

        if logging.getLogger("rlzoo_plus").isEnabledFor(logging.DEBUG):
            from rlzoo_plus.runs.printing import print_traceback

            print_traceback(error)
        # It may quote an untrusted source, or a secret of the user: it often ends in a log.
        print(f"error: {as_typed(printable_lines(redact(text)))}", file=sys.stderr)
        return RUN_ERROR if isinstance(error, RunError) else USER_ERROR
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


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
            from rlzoo_plus import __version__

            print(f"rlzoo-plus {__version__}")
        elif arguments[0] == "-sc":
            from rlzoo_plus.commands.completion import complete

            code = complete(arguments)
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
