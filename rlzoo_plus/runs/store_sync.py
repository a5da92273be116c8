"""Keeps a run that is trained here in its store: starts the process that sends it, and ends it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rlzoo_plus.analysis.find_run import Place
from rlzoo_plus.analysis.progress import about_run
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.run_dir import OUTPUTS, RunDir
from rlzoo_plus.artifacts.secrets import redact
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.cache import split_run_url
from rlzoo_plus.store.contract import is_name, open_store
from rlzoo_plus.store.lease import holder
from rlzoo_plus.store.pull import pull_run

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.training.callbacks import StopRequest

_SENDER = (
    "import sys; sys.path.append(sys.argv[1]); "
    "from rlzoo_plus.runs.store_sender import main; main()"
)
_LOOK_S, _QUIET_S = 0.1, 3.0
# The process ends before; this is for one that hangs.
_LONGEST_WAIT_S = 1000.0
# Its studies keep their trials there.
_TRIALS = "trials"


def check_store(config: RunConfig) -> None:
    """Check the store of a run before anything is built; nothing is requested from it.

    Raises:
        ConfigError: It is no store, boto3 is missing, the settings for AWS are not usable, the
            folder cannot be made, or the run cannot have its name there.
    """
    if config.store is None:
        return
    open_store(config.store).check_settings()
    run_dir = config.run_dir or OUTPUTS / str(config.env.name) / config.algo.name / "run"
    name = name_in_store(Path(run_dir), config.sweep)
    if not is_name(name):
        why = f"the name {printable(name)!r} has special characters"
        raise ConfigError(f"store={printable(config.store)}: {why}. Choose another run_dir.")


def name_in_store(path: Path, sweep: str | Path | None = None) -> str:
    """Return the name that a run has in a store: two parts or more.

    Args:
        path: The run directory.
        sweep: The directory of its sweep; ignored if the run is elsewhere.

    Returns:
        `SWEEP/KEY` for a run of a sweep or study, else the path below outputs/, else the last two
        parts of the path.
    """
    path, outputs = path.resolve(), OUTPUTS.resolve()
    folder = None if sweep is None else Path(sweep).resolve()
    roots = [] if folder is None else [folder.parent]
    roots += [outputs / "sweeps", outputs]
    if folder is not None and not path.is_relative_to(folder):
        roots = roots[1:]
    if len(path.parents) > 3 and path.parent.parent.name == _TRIALS:
        roots.append(path.parents[3])
    roots.append(path.parents[min(1, len(path.parents) - 1)])
    root = next(root for root in roots if path.is_relative_to(root))
    return path.relative_to(root).as_posix()


def bring_to_resume(url: str) -> tuple[Path, str]:
    """Bring a run with its newest checkpoint from a store to outputs/; return where it is.

    Args:
        url: `STORE/runs/NAME`.

    Returns:
        The run directory, and the store.

    Raises:
        ConfigError: It is here already, another worker trains it, or it is damaged.
        StoreError: There is no such run, or a request failed.
    """
    if Place(Path(), url=url).is_version:
        raise ConfigError(
            f"{printable(url)}: a version of a model has no checkpoint. Resume the run that it was "
            f"registered from, or start a run from it: init_from={printable(url)}."
        )
    if not url.startswith("s3://"):
        name = printable(url.partition("://")[2])
        raise ConfigError(
            f"{printable(url)}: what is resumed is on this machine. Bring it with `rlzoo-plus hub "
            f"pull {name} --state`, and resume what that prints."
        )
    store_url, name = split_run_url(url)
    path = OUTPUTS / name
    if path.exists():
        raise ConfigError(
            f"{printable(url)} was brought here before, or trained here: rlzoo-plus resume {path} "
            f"store={store_url} goes on with what is here. Move that directory aside to bring it."
        )
    store = open_store(store_url)
    worker = holder(store, name)
    if worker is not None:
        who = f"{printable(worker, 80)} trains this run now, or was killed minutes ago"
        raise ConfigError(f"{printable(url)}: {who}. Wait until that is over.")
    try:
        pull_run(store, name, path)
    except DamagedFolderError as error:
        raise ConfigError(f"{printable(url)} is damaged: {error}.") from error
    return path, store_url


def kept_in_store(
    config: RunConfig,
    run_dir: RunDir,
    stop: StopRequest,
    console: Console,
    *,
    resumes: bool,
    take_ended: bool,
) -> contextlib.AbstractContextManager[StoreSync | None]:
    """Send a run to `config.store` while it trains inside, and the rest at the end.

    Nothing that the store does fails the run or keeps it from training, except that it is asked to
    stop if another worker has it. Without a store, this does nothing.

    Args:
        config: The run.
        run_dir: Its directory, which this process has claimed.
        stop: How it is asked to end.
        console: Where warnings, and at the end the run's URL, are printed.
        resumes: Whether it goes on from a checkpoint.
        take_ended: Whether it may replace or extend an ended run of its name in the store.
    """
    if config.store is None:
        return contextlib.nullcontext()
    about = {"resumes": resumes, "take_ended": take_ended}
    try:
        return StoreSync(config, run_dir, stop, console, about)
    except OSError as error:
        console.print(f"warning: nothing is sent to {config.store}: {error}", markup=False)
        return contextlib.nullcontext()


class StoreSync:
    """The process that sends a run to its store, as the training sees it.

    Attributes:
        url: Of the run in the store.
        is_lost: Whether another worker has the run.
        intervals: Others than the usual ones, of the next runs: `beat_s`, `push_s` and `stall_s`,
            as `Sender` takes them.
    """

    intervals: ClassVar[dict[str, float]] = {}

    def __init__(
        self,
        config: RunConfig,
        run_dir: RunDir,
        stop: StopRequest,
        console: Console,
        about: dict[str, bool],
    ) -> None:
        """Start it; `about` is more of its ticket, see `Sender`."""
        from rlzoo_plus.store.mirror import RUNS

        assert config.store is not None
        self._store, self._path = config.store, run_dir.path
        name = name_in_store(run_dir.path, config.sweep)
        self.url = f"{config.store.rstrip('/')}/{RUNS}/{name}"
        self.is_lost = False
        self._stop, self._console = stop, console
        self._end: dict[str, Any] = {"end": "the process that sends it has ended"}
        ticket = {
            "store": config.store,
            "run": name,
            "path": str(run_dir.path.absolute()),
            "about": about_run(config),
            "parent": os.getpid(),
            **about,
            **self.intervals,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SENDER, str(Path(__file__).parents[2])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # What the terminal sends is for the training.
            start_new_session=True,
        )
        self._write(json.dumps(ticket).encode() + b"\n")
        self._listener = threading.Thread(target=self._listen, name="store", daemon=True)
        self._listener.start()

    def __enter__(self) -> StoreSync:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            # It sends the rest by itself, and ends.
            self.leave()
        else:
            self.finish()

    def finish(self) -> None:
        """Wait until the rest is sent, or given up; print where it is, or what to do."""
        self._write(b"end\n")
        asked, began, is_said = self._stop.signal_number, time.monotonic(), False
        while self._listener.is_alive() and time.monotonic() - began < _LONGEST_WAIT_S:
            self._listener.join(_LOOK_S)
            if self._stop.signal_number != asked:
                self.leave()
                return
            if not is_said and time.monotonic() - began > _QUIET_S:
                is_said = True
                self._print(f"sending the rest to {self.url} (until nothing arrives for 60 s)")
        if self._listener.is_alive():
            self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        problem = self._end["end"]
        if problem is None:
            self._print(f"{'stored':<18}{self.url}")
        elif self.is_lost:
            self._print(f"warning: {problem}. What was not sent before stays in {self._path}.")
        else:
            command = shlex.join(["rlzoo-plus", "push", str(self._path), self._store])
            self._print(
                f"warning: not all of the run is in {self.url}: {problem}. It stays in "
                f"{self._path}. Send it later: {command}"
            )

    def leave(self) -> None:
        """Let the process send the rest, and end, without waiting for it."""
        self._write(b"end\n")
        self._print(f"not waited for: the rest is still being sent to {self.url}")

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        # How it ended early is told at the end.
        with contextlib.suppress(OSError):
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if not isinstance(event, dict):
                # The last line of a traceback.
                self._end = {"end": printable(line.decode(errors="replace").strip())}
            elif "end" in event:
                self._end = event
            elif "warning" in event:
                self._print(f"warning: {event['warning']}")
            elif "stop" in event:
                self.is_lost = self.is_lost or bool(event.get("lost"))
                self._stop.reason = str(event["stop"])
        self._process.stdout.close()
        # Nobody else waits for it after `leave`.
        self._process.wait()

    def _print(self, text: str) -> None:
        self._console.print(redact(text), markup=False)
