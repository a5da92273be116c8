"""Loads folders under an audit hook: what loading must not do is noted, for any code in it.

A process of its own, for a hook cannot be removed:
`python guard.py ROOT < cases.json`, where a case is a mapping of name, verb and path.
"""

import contextlib
import importlib
import io
import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

FORBIDDEN = (
    *("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn"),
    *("subprocess.Popen", "pickle.find_class", "marshal.loads", "code.__new__"),
    *("socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request"),
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod"),
    *("os.truncate", "os.utime", "shutil.rmtree", "shutil.copyfile", "shutil.move"),
    *("ctypes.dlopen", "os.putenv", "os.chdir", "os.kill", "sys.addaudithook"),
)
# TensorBoard imports boto3, and urllib3 binds a socket to see if there is IPv6.
MODULES = (
    "urllib3",
    "omegaconf",
    "optuna.importance",
    "sb3_contrib",
    "stable_baselines3",
    "yaml",
    "rlzoo_plus.commands.enjoy",
    "rlzoo_plus.commands.diagnose",
    "rlzoo_plus.commands.inspect",
    "rlzoo_plus.commands.robustness",
    "rlzoo_plus.policies.degradation",
    "rlzoo_plus.policies.diagnosis",
    "rlzoo_plus.policies.robustness",
    "rlzoo_plus.policies.stepping",
    "robots.randomization",
)
VERBS = ("record", "runs", "plot", "resume", "verify_resume", "checkpoint", "export", "train")
VERBS += ("typed",)
MODULES += (*(f"rlzoo_plus.commands.{verb}" for verb in VERBS), "rlzoo_plus.export.writing")
MODULES += tuple(f"rlzoo_plus.runs.{name}" for name in ("plan", "train_job", "printing", "run"))
MODULES += (
    "rlzoo_plus.deploy.bundle_export",
    "rlzoo_plus.deploy.c_export",
    "rlzoo_plus.export.sb3_format",
    "rlzoo_plus.training.callbacks",
    "rlzoo_plus.analysis.curves",
    "rlzoo_plus.training.media",
    "rlzoo_plus.training.warm_start",
    "rlzoo_plus.tuning.experiment_file",
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LIMIT_S = 60
ROOM_BYTES = 3 * 2**30


class HangsError(BaseException):
    """A case took too long; not an Exception, so that no handler of ours swallows it."""


# What the watch must see, to prove that it would.
CONTROLS = {
    "pickle": lambda path: pickle.loads(b"cos\nsystem\n."),  # noqa: S301
    "torch": lambda path: importlib.import_module("torch").load(path, weights_only=False),
    "system": lambda path: os.system("true"),
    "process": lambda path: subprocess.run(["true"], check=False),
    "write": lambda path: Path(path).write_text("x"),
    "delete": lambda path: Path(path).unlink(),
    "import": lambda path: importlib.import_module("evil_package"),
    "compile": lambda path: compile("1", "<evil>", "eval"),
    "eval": lambda path: eval("1"),  # noqa: S307
}


class Watch:
    """Notes forbidden events while it is on."""

    def __init__(self):
        self.on, self.seen = False, []
        own = [*filter(None, sys.path), sys.prefix, sys.base_prefix]
        self.trusted = (*(str(Path(p).resolve()) for p in own), "<frozen")

    def __call__(self, event, args):
        if not self.on:
            return
        if event in FORBIDDEN:
            self.seen.append(f"{event} {args!r:.80}")
        elif event == "open" and isinstance(args[2], int) and args[2] & WRITING:
            if args[0] != os.devnull:
                self.seen.append(f"write {args[0]!r}")
        elif event == "import":
            if args[0].split(".")[0] not in self.known:
                self.seen.append(f"import {args[0]}")
        elif event == "exec":
            if not args[0].co_filename.startswith(self.trusted):
                self.seen.append(f"exec {args[0].co_filename}")
        elif event == "compile":
            self.seen.append(f"compile {args[1]!r}")

    def start(self):
        self.known = {name.split(".")[0] for name in sys.modules}
        self.on = True


def hang(*_):
    raise HangsError


def load(case):
    """Load, as a user would; return the exit code and what was shown."""
    if case["verb"] == "control":
        CONTROLS[case["name"]](case["path"])
        return 0, ""
    if case["verb"] == "begin":
        return begin(case["path"])
    if case["verb"] != "load":
        from rlzoo_plus.commands import dispatch

        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
            code = dispatch.run(case["verb"], [case["path"], *case.get("arguments", [])])
        return code, shown.getvalue().removeprefix("error: ").removesuffix("\n")
    import rlzoo_plus

    try:
        rlzoo_plus.load_policy(case["path"])
    except rlzoo_plus.ConfigError as error:
        return 2, str(error)
    return 0, ""


def begin(path):
    """Read what a warm start takes, and compare it as with an agent's own; as `load`."""
    from rlzoo_plus.agents.policy import misfits
    from rlzoo_plus.config.schema import InitConfig
    from rlzoo_plus.errors import ConfigError
    from rlzoo_plus.training.warm_start import read_source

    try:
        source = read_source(path, InitConfig())
        source.sha256(["policy", "normalization"])
        misfits(source.weights, source.weights)
    except ConfigError as error:
        return 2, str(error)
    return 0, ""


def run(case, watch):
    """Return what a case did: exit code, text, seconds, bytes of memory more, events."""
    watch.seen.clear()
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    signal.alarm(LIMIT_S)
    try:
        code, text = load(case)
    except BaseException as error:
        code, text = -1, f"{type(error).__name__}: {error!s:.500}"
    finally:
        signal.alarm(0)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "code": code,
        "text": text,
        "seconds": time.monotonic() - began,
        "more_kib": after - before,
        "events": list(watch.seen),
    }


def main():
    """Warm up with the good ones, then run the cases of standard input."""
    cases = json.load(sys.stdin)
    signal.signal(signal.SIGALRM, hang)
    watch = Watch()
    sys.addaudithook(watch)
    results = {}
    # First used by an evil case, their import would look like one of its own.
    for module in MODULES:
        importlib.import_module(module)
    for case in cases["good"]:
        results[case["name"]] = run(case, watch)
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + ROOM_BYTES,) * 2)
    watch.start()
    for case in [*cases["good"], *cases["evil"]]:
        results[case["name"]] = run(case, watch)
    watch.on = False
    print(json.dumps(results))


if __name__ == "__main__":
    main()
