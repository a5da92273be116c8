"""An environment that another interpreter steps; here it is one of Gymnasium like any other."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import time
import weakref
from typing import Any, BinaryIO

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlzoo_plus.artifacts.untrusted import printable, printable_lines
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.interpreters import env_server
from rlzoo_plus.interpreters.remote_batch import RemoteBatch
from rlzoo_plus.processes import how_it_ended

# Time for an interpreter to close its environments, and until its exit code is known [s].
_CLOSING_S, _EXIT_CODE_S = 10.0, 2.0
_OLDEST = "Python 3.8 and NumPy"
# Interpreters of this process with room for more worlds, by what they may be used for.
_with_room: weakref.WeakValueDictionary[Any, Interpreter] = weakref.WeakValueDictionary()
_LONGEST = 300


class Interpreter:
    """A process of another Python interpreter, and the pipes to it.

    Attributes:
        count: How many worlds it has made so far.
        n_open: How many of them are not closed.
    """

    def __init__(self, python: str, server: str = env_server.__file__) -> None:
        """Start it with a path from `path_of`; `server` is the file that answers there.

        Raises:
            ConfigError: There is no such interpreter.
        """
        self.python, self.count, self.n_open = python, 0, 0
        theirs, ours = os.pipe(), os.pipe()
        faults = os.pipe()
        # What would lead it to the libraries of this interpreter.
        ours_alone = ("PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
        fds = (theirs[0], ours[1], faults[1])
        try:
            self.process = subprocess.Popen(
                [python, server, *map(str, fds)],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                env={key: value for key, value in os.environ.items() if key not in ours_alone},
            )
        except OSError as error:
            for fd in (*theirs, *ours, *faults):
                os.close(fd)
            raise ConfigError(
                f"env.python={printable(python)} cannot be started: {error.strerror}. Give the "
                f"path of an interpreter, e.g. /path/to/venv/bin/python; it needs {_OLDEST}."
            ) from error
        for fd in fds:
            os.close(fd)
        self._requests: BinaryIO = os.fdopen(theirs[1], "wb")
        self._faults: BinaryIO = os.fdopen(faults[0], "rb")
        answers: BinaryIO = os.fdopen(ours[0], "rb")
        self._answers = env_server.Reader(answers)
        parts = (self.process, self._requests, answers, self._faults)
        self.end = weakref.finalize(self, _end, *parts)

    def ask(self, **request: Any) -> Any:
        """Send a request and return its answer; see `answer`."""
        self.send(request)
        return self.answer()

    def send(self, request: dict[str, Any]) -> None:
        """Send a request, whose `answer` must be read before the next."""
        try:
            message = env_server.pack(request)
        except env_server.UnsendableError as error:
            raise RunError(f"env.python={self._name}: {request['do']}: {error}.") from error
        try:
            self._requests.write(message)
            self._requests.flush()
        except (OSError, ValueError) as error:
            raise self._death(error) from error

    def answer(self) -> Any:
        """Return the answer to the request that was sent.

        Raises:
            RunError: The environment raised something, or its process has ended.
        """
        try:
            found = self._answers.receive()
            if not isinstance(found, dict) or not found.keys() & {"ok", "error"}:
                raise ValueError("no answer to a request")
        except (EOFError, OSError, ValueError) as error:
            raise self._death(error) from error
        except BaseException:
            # An answer that was read in part leaves the rest in the pipe.
            self.end()
            raise
        if "error" in found:
            what = printable(found["error"]["text"], _LONGEST)
            raised = RunError(f"the environment in {self._name} raises {what}.")
            raised.add_note(printable_lines(found["error"]["trace"]))
            raise raised
        return found["ok"]

    @property
    def _name(self) -> str:
        return f"{printable(self.python)} (pid {self.process.pid})"

    def _death(self, error: Exception) -> RunError:
        """Return what to raise when the pipe has broken, or brings what is no answer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_EXIT_CODE_S)
        where = ""
        if self.process.poll() is None:
            where = printable(f": {error}", _LONGEST) if str(error) else ""
        elif not self._faults.closed:
            lines = self._faults.read().decode(errors="replace").splitlines()
            calls = [line.strip() for line in lines if line.startswith("  File ")]
            own = [call for call in calls if env_server.__file__ not in call][:1]
            if lines:
                where = printable(f": {'; '.join([lines[0], *own])}", _LONGEST)
        code = self.process.poll()
        self.end()
        return RunError(f"the environment's process, {self._name}, {how_it_ended(code)}{where}.")


def _end(process: subprocess.Popen[bytes], *pipes: BinaryIO) -> None:
    """Close the pipes, which ends a process that waits for a request; kill any other."""
    for pipe in pipes:
        with contextlib.suppress(OSError):
            pipe.close()
    until = time.monotonic() + _CLOSING_S
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
        process.wait()


def path_of(python: str) -> str:
    """Return the path of the interpreter that `env.python` names.

    Raises:
        ConfigError: There is none.
    """
    path = shutil.which(os.path.expanduser(python))
    if path is None:
        raise ConfigError(
            f"env.python={printable(python)}: there is no such program. Give the path of an "
            f"interpreter, e.g. /path/to/venv/bin/python; it needs {_OLDEST}."
        )
    return path


def refusal(text: str, error: RunError) -> ConfigError:
    """Return an error for the user, with the traceback of the other interpreter as its note."""
    refused = ConfigError(text)
    for note in getattr(error, "__notes__", ()):
        refused.add_note(note)
    return refused


class RemoteEnv(gym.Env[Any, Any]):
    """An environment in another interpreter.

    Attributes:
        versions: Versions of Python, NumPy and the library that made it.
        max_episode_steps: After so many steps an episode is cut there, None if never.
        mark: Another object after each step and reset.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"]}  # noqa: RUF012
    batches = RemoteBatch

    def __init__(
        self,
        *,
        python: str,
        env_id: str,
        packages: list[str],
        time_limit: int | None,
        arguments: dict[str, Any],
        worlds_per_process: int,
        render_mode: str | None = None,
    ) -> None:
        """Make it there.

        Args:
            python: Path of the interpreter, or a name that the shell would find.
            env_id: An id that is registered there, `module:Class` or the dotted path of a class.
            packages: Modules to import there first.
            time_limit: Steps per episode, None for those it is registered with.
            arguments: Arguments of the environment, plain data.
            worlds_per_process: How many environments of this process share one of the interpreter.
            render_mode: How to draw, if at all.

        Raises:
            ConfigError: The interpreter cannot be started, or refuses the environment.
        """
        path = path_of(python)
        key = (path, worlds_per_process, os.getpid(), os.getcwd())
        place = _with_room.pop(key, None)
        if place is None or not place.end.alive:
            place = Interpreter(path)
        self._there = place
        self._number = self._there.count
        self._there.count += 1
        self._there.n_open += 1
        if self._there.count < worlds_per_process:
            _with_room[key] = self._there
        is_alone = worlds_per_process == 1
        try:
            facts = self._ask(
                "make",
                **{"id": env_id, "packages": packages, "kwargs": arguments, "alone": is_alone},
                **{"time_limit": time_limit, "render_mode": render_mode},
            )
        except RunError as error:
            self.close()
            raise refusal(
                f"env.id={env_id} cannot be made by env.python={printable(python)}: {error} "
                f"env.packages names modules to import there; it needs {_OLDEST}.",
                error,
            ) from error
        self.observation_space = space_of(facts["observation_space"])
        self.action_space = space_of(facts["action_space"])
        self.metadata = {"render_modes": facts["render_modes"]}
        self.render_mode = render_mode
        self.max_episode_steps: int | None = facts["limit"]
        self.versions: dict[str, str] = facts["versions"]
        self.mark = object()
        self._methods = frozenset(facts["methods"])
        if self._methods >= {"state_dict", "load_state_dict"}:
            # What has a state is known by its class.
            self.__class__ = StatefulRemoteEnv

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; without a seed of the caller with one drawn here."""
        super().reset(seed=seed)
        if seed is None:
            seed = int(self.np_random.integers(2**31))
        self.mark = object()
        observation, info = self._ask("reset", seed=seed, options=options)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act."""
        self.mark = object()
        (found,) = self._there.ask(do="step", worlds=[self._number], actions=[action])
        observation, reward, terminated, truncated, info = found
        return observation, reward, terminated, truncated, info

    def render(self) -> Any:
        """Return an image, if the render mode asks for one."""
        return self._ask("render")

    def close(self) -> None:
        """Close it; with the last one, its process ends."""
        there = self.__dict__.pop("_there", None)
        if there is None:
            return
        there.n_open -= 1
        if there.end.alive and "_methods" in self.__dict__:
            with contextlib.suppress(RunError):
                there.ask(do="close", world=self._number)
        if not there.n_open:
            there.end()

    def interpreters_code(self) -> dict[str, str]:
        """Return versions and hashes of what runs there."""
        code: dict[str, str] = self._ask("code")
        return code

    def place(self) -> tuple[Any, int]:
        """Return the interpreter and the number of this environment in it."""
        return self._there, self._number

    def __getattr__(self, name: str) -> Any:
        """Return a method that the environment's class has there."""
        if name.startswith("_") or name not in self.__dict__.get("_methods", ()):
            raise AttributeError(f"{type(self).__name__} has no {name}")
        return functools.partial(self._call, name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        self.mark = object()
        return self._ask("call", name=name, args=list(args), kwargs=kwargs)

    def _ask(self, do: str, **request: Any) -> Any:
        return self._there.ask(do=do, world=self._number, **request)


class StatefulRemoteEnv(RemoteEnv):
    """One that gives what it keeps from one episode to the next."""

    def state_dict(self) -> dict[str, Any]:
        """Return its state."""
        state: dict[str, Any] = self._call("state_dict")
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Return to a state."""
        self._call("load_state_dict", state)


def space_of(facts: dict[str, Any]) -> spaces.Space[Any]:
    """Return the space that `env_server.described` has described."""
    match facts["kind"]:
        case "Box":
            return spaces.Box(facts["low"], facts["high"], dtype=np.dtype(facts["dtype"]).type)
        case "Discrete":
            return spaces.Discrete(facts["n"], start=facts["start"])
        case "MultiDiscrete":
            return spaces.MultiDiscrete(facts["nvec"])
        case "MultiBinary":
            return spaces.MultiBinary(facts["shape"])
        case "Dict":
            parts = map(space_of, facts["parts"])
            return spaces.Dict(dict(zip(facts["keys"], parts, strict=True)))
    return spaces.Tuple([space_of(part) for part in facts["parts"]])
