"""Environments in processes of their own: one that ends stops the run with an error, not a hang."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import connection, forkserver, resource_tracker
from pathlib import Path
from typing import Any

import gymnasium as gym
from stable_baselines3.common.vec_env import SubprocVecEnv
from stable_baselines3.common.vec_env.base_vec_env import CloudpickleWrapper, VecEnv
from stable_baselines3.common.vec_env.subproc_vec_env import _worker

from rlzoo_plus.config.socket_paths import keep_socket_paths_short
from rlzoo_plus.envs.infos import why_not_shared
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.processes import how_it_ended, without_main

# A terminal and a cluster send these to every process; only the run itself decides how to end.
_FOR_THE_RUN = {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}
# Time for environments to close: at the end of a run, and after an error [s].
_CLOSING_S, _CLOSING_AFTER_FAULT_S = 30.0, 2.0
# Time until the exit code of a process is known whose pipe has broken [s].
_EXIT_CODE_S = 2.0


class ProcessVecEnv(SubprocVecEnv):
    """A `SubprocVecEnv` that notices when a process has ended.

    Every method then raises `RunError`, which names the process and the cause. `close` ends all
    processes, and kills those that do not answer.
    """

    def __init__(self, makers: Sequence[Callable[[], gym.Env]]) -> None:
        """Start a process for each environment.

        Raises:
            ConfigError: An environment cannot be made.
            RunError: A process ended.
        """
        self.waiting = self.closed = self._is_broken = False
        self.remotes: list[_Link] = []
        self.processes: list[Any] = []
        try:
            _start_server()
            for rank, maker in enumerate(makers):
                self.remotes.append(_Link(rank, maker))
                self.processes.append(self.remotes[-1].process)
            self.remotes[0].send(("get_spaces", None))
            VecEnv.__init__(self, len(makers), *self.remotes[0].recv())
        except BaseException as error:
            self._is_broken = True
            self.close()
            if isinstance(error, (OSError, EOFError)):
                raise RunError(f"no process for an environment can be started: {error}") from error
            raise

    def close(self) -> None:
        """Close the environments and end their processes."""
        if self.closed:
            return
        self.closed = True
        has_fault = self._is_broken or self.waiting or any(link.is_dead for link in self.remotes)
        until = time.monotonic() + (_CLOSING_AFTER_FAULT_S if has_fault else _CLOSING_S)
        try:
            for link in self.remotes:
                link.ask_to_close()
            left = [link for link in self.remotes if link.process.exitcode is None]
            while left and (timeout := until - time.monotonic()) > 0:
                connection.wait([part for link in left for part in link.waitables()], timeout)
                for link in left:
                    link.discard_answers()
                left = [link for link in left if link.process.exitcode is None]
        finally:
            for link in self.remotes:
                link.end()


class _Link:
    """A process and the pipe to it, as `SubprocVecEnv` uses it."""

    def __init__(self, rank: int, maker: Callable[[], gym.Env]) -> None:
        context = multiprocessing.get_context("forkserver")
        self._pipe, theirs = context.Pipe()
        self.rank, self.is_dead = rank, False
        arguments = (theirs, self._pipe, CloudpickleWrapper(maker), rank)
        self.process: Any = context.Process(target=_work, args=arguments, daemon=True)
        with _main_left_out():
            self.process.start()
        theirs.close()

    def send(self, message: Any) -> None:
        try:
            self._pipe.send(message)
        except OSError as error:
            raise self._death() from error

    def recv(self) -> Any:
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise self._death() from error
        if isinstance(answer, (ConfigError, RunError)):
            self.is_dead = True
            raise answer
        return answer

    def waitables(self) -> list[Any]:
        """Return what becomes ready when the process answers or ends."""
        return [self.process.sentinel] + ([] if self.is_dead else [self._pipe])

    def ask_to_close(self) -> None:
        try:
            self._pipe.send(("close", None))
        except OSError:
            self.is_dead = True

    def discard_answers(self) -> None:
        """Discard unread answers: a full pipe would keep its process from ending."""
        try:
            while not self.is_dead and self._pipe.poll():
                self._pipe.recv_bytes()
        except (EOFError, OSError):
            self.is_dead = True

    def end(self) -> None:
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()
        self._pipe.close()

    def _death(self) -> Exception:
        """Return what to raise when the pipe has broken."""
        self.is_dead = True
        with contextlib.suppress(EOFError, OSError):
            # An error that was sent comes before the end of the pipe.
            while self._pipe.poll():
                answer = self._pipe.recv()
                if isinstance(answer, (ConfigError, RunError)):
                    return answer
        self.process.join(_EXIT_CODE_S)
        how = how_it_ended(self.process.exitcode)
        return RunError(f"{_name(self.rank, self.process.pid)} {how}.")


def _name(rank: int, pid: int) -> str:
    return f"the process of environment {rank} (pid {pid})"


def _start_server() -> None:
    """Start the server that the processes are forked from, unless it runs."""
    keep_socket_paths_short()
    context = multiprocessing.get_context("forkserver")
    # Imported once for all of them: torch alone takes a second.
    context.set_forkserver_preload(["__main__", __name__])
    # It would unblock the signals.
    resource_tracker.ensure_running()
    # Signals that are meant for the run must not reach the server.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_THE_RUN)
    try:
        with _main_left_out():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _main_left_out() -> contextlib.AbstractContextManager[None]:
    """Keep a process that starts inside from running a script again that would train once more.

    A script with `if __name__ == "__main__"` is imported as usual: it may register environments.
    """
    file = getattr(sys.modules["__main__"], "__file__", None)
    try:
        is_guarded = file is None or b"__main__" in Path(file).read_bytes()
    except OSError:
        is_guarded = True
    return contextlib.nullcontext() if is_guarded else without_main()


def _work(pipe: Any, parents_pipe: Any, maker: CloudpickleWrapper, rank: int) -> None:
    for number in _FOR_THE_RUN:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FOR_THE_RUN)
    threading.Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()
    try:
        _worker(_Answers(pipe), parents_pipe, maker)  # type: ignore[arg-type]
    except BaseException as error:
        # Without a run that listens, the error need not be reported.
        with contextlib.suppress(OSError):
            reported = _reported(error, rank)
            # For log.level=debug: an error that crosses a pipe loses its traceback.
            reported.add_note("".join(traceback.format_exception(error)))
            pipe.send(reported)
            if not isinstance(error, (ConfigError, RunError, SystemExit)):
                traceback.print_exc()
        raise SystemExit(1) from None


class _Answers:
    """The pipe to the run; names what cannot be pickled."""

    def __init__(self, pipe: Any) -> None:
        self._pipe, self.recv, self.close = pipe, pipe.recv, pipe.close

    def send(self, answer: Any) -> None:
        try:
            self._pipe.send(answer)
        except OSError:
            raise
        # What an environment returns may raise anything.
        except Exception as error:
            parts = answer if isinstance(answer, tuple) else ()
            infos = [part for part in parts if isinstance(part, dict)]
            found = [text for info in infos if (text := why_not_shared(info, is_sent=True))]
            raise RunError((found or [f"it cannot send {answer!r:.80}: {error}"])[0]) from error


def _reported(error: BaseException, rank: int) -> ConfigError | RunError:
    """Return the error that the run raises for one of this process."""
    if isinstance(error, ConfigError):
        return ConfigError(str(error))
    if isinstance(error, SystemExit):
        what = f"called sys.exit({error.code!r})"
    elif isinstance(error, RunError):
        what = f"broke off: {str(error).removesuffix('.')}"
    else:
        what = f"broke off with {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    return RunError(f"{_name(rank, os.getpid())} {what}.")


def _end_with_parent() -> None:
    """End when the run has ended, even in the middle of an endless step."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
