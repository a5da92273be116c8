"""Serves environments to rlzoo_plus from another interpreter; needs Python 3.8 and NumPy alone.

Use: `python env_server.py REQUESTS ANSWERS FAULTS`, numbers of open files. `rlzoo_plus` starts it
for `env.python`, and imports from it how messages are written. A message is two lengths, of a text
and of bytes; the text is JSON, and the bytes are those of its arrays, one after the other.

It makes environments of Gymnasium and of gym from 0.21, and classes with their methods.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import importlib
import inspect
import json
import math
import os
import platform
import random
import re
import signal
import struct
import sys
import threading
import time
import traceback
from typing import Any, BinaryIO

import numpy as np

_LENGTHS = struct.Struct("<II")
_MOST_BYTES = 2**30
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_ARRAY, _NUMBER, _TUPLE = "~array", "~number", "~tuple"
_KINDS = "biufcSU"
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_LIBRARIES = ("gymnasium", "gym")
_ENDS = (".py", ".so", ".pyd")
_LOOK_S = 1.0


class UnsendableError(TypeError):
    """A value is no plain data."""


def pack(value: Any) -> bytes:
    """Return a message: plain data with arrays, numbers of NumPy and tuples.

    Raises:
        UnsendableError: There is something else in it, or more than a GiB.
    """
    parts: list[bytes] = []
    text = _encode(_plain(value, parts)).encode()
    body = b"".join(parts)
    if len(text) + len(body) > _MOST_BYTES:
        raise UnsendableError("a message of " + str(len(text) + len(body)) + " bytes is too large")
    return _LENGTHS.pack(len(text), len(body)) + text + body


class Reader:
    """Reads messages from a pipe."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._body, self._place = stream, b"", 0
        self._decode = json.JSONDecoder(object_hook=self._revived).decode

    def receive(self) -> Any:
        """Return the next message.

        Raises:
            EOFError: The other side has ended.
            ValueError: It is malformed, or larger than a GiB.
        """
        lengths = self._stream.read(_LENGTHS.size)
        if len(lengths) < _LENGTHS.size:
            raise EOFError
        n_text, n_body = _LENGTHS.unpack(lengths)
        if n_text + n_body > _MOST_BYTES:
            raise ValueError("a message of " + str(n_text + n_body) + " bytes")
        both = self._stream.read(n_text + n_body)
        if len(both) < n_text + n_body:
            raise EOFError
        # Arrays come in the order in which their places in the text are closed.
        self._body, self._place = both, n_text
        try:
            return self._decode(both[:n_text].decode())
        except (ArithmeticError, LookupError, RecursionError, TypeError) as error:
            raise ValueError("a malformed message") from error

    def _revived(self, found: dict[str, Any]) -> Any:
        if _ARRAY in found:
            code, shape = found[_ARRAY]
            return self._array(code, math.prod(shape)).reshape(shape).copy()
        if _NUMBER in found:
            return self._array(found[_NUMBER], 1)[0]
        return tuple(found[_TUPLE]) if _TUPLE in found else found

    def _array(self, code: str, count: int) -> np.ndarray:
        kind = np.dtype(code)
        if kind.kind not in _KINDS:
            raise ValueError("an array of " + code)
        array = np.frombuffer(self._body, kind, count, self._place)
        self._place += array.nbytes
        return array


def _plain(value: Any, parts: list[bytes]) -> Any:
    """Return a value for JSON; the bytes of arrays go to `parts`."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_plain(item, parts) for item in value]
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in _KINDS:
        parts.append(value.tobytes())
        is_array = isinstance(value, np.ndarray)
        return {_ARRAY: [value.dtype.str, value.shape]} if is_array else {_NUMBER: value.dtype.str}
    if isinstance(value, tuple):
        return {_TUPLE: [_plain(item, parts) for item in value]}
    if isinstance(value, dict) and all(type(k) is str and k[:1] != "~" for k in value):
        return {key: _plain(item, parts) for key, item in value.items()}
    raise UnsendableError("a " + kind.__name__ + " is no plain data")


def sendable(info: dict[Any, Any]) -> dict[str, Any]:
    """Return the entries of an info that can be sent, as they are at this moment."""
    kept = {}
    for key, value in info.items():
        with contextlib.suppress(UnsendableError):
            _plain(value, [])
            kept[str(key)] = value
    return kept


def described(space: Any) -> dict[str, Any]:
    """Return a space as plain data.

    Raises:
        ValueError: It is of a kind that is not known.
    """
    kind = type(space).__name__
    if kind == "Box":
        return {"kind": kind, "low": space.low, "high": space.high, "dtype": space.dtype.str}
    if kind == "Discrete":
        return {"kind": kind, "n": int(space.n), "start": int(getattr(space, "start", 0))}
    if kind == "MultiDiscrete":
        return {"kind": kind, "nvec": np.asarray(space.nvec, np.int64)}
    if kind == "MultiBinary":
        return {"kind": kind, "shape": list(space.shape)}
    if kind == "Dict":
        parts = {key: described(part) for key, part in space.spaces.items()}
        return {"kind": kind, "keys": list(parts), "parts": list(parts.values())}
    if kind == "Tuple":
        return {"kind": kind, "parts": [described(part) for part in space.spaces]}
    raise ValueError("a space of kind " + kind + " is not sent to another interpreter")


class World:
    """One environment of whatever library."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.is_alone, self.mode = request["alone"], request["render_mode"]
        for name in request["packages"]:
            importlib.import_module(name)
        self.env, self.library = _made(request["id"], request["kwargs"], self.mode)
        self.bare = getattr(self.env, "unwrapped", self.env)
        self.limit = self._limited(request["time_limit"])
        parameters = inspect.signature(self.bare.reset).parameters
        self.takes_seed, self.takes_options = "seed" in parameters, "options" in parameters

    def _limited(self, most: Any) -> Any:
        """Set the steps after which an episode is cut, if one is given; return what holds."""
        layer, limits = self.env, []
        while layer is not None:
            if isinstance(vars(layer).get("_max_episode_steps"), int):
                layer._max_episode_steps = most or layer._max_episode_steps
                limits.append(layer._max_episode_steps)
            layer = vars(layer).get("env")
        known = getattr(self.bare, "max_episode_steps", None)
        return min([*limits, *([known] if isinstance(known, int) else [])], default=None)

    def facts(self) -> dict[str, Any]:
        """Return what the other side needs to know."""
        metadata = dict(getattr(self.env, "metadata", None) or {})
        modes = metadata.get("render_modes") or metadata.get("render.modes") or []
        known = dir(object), *(dir(vars(m)["Env"]) for m in map(sys.modules.get, _LIBRARIES) if m)
        own = set(dir(type(self.bare))).difference(*known)
        versions = {"Python": platform.python_version(), "numpy": np.__version__}
        if self.library:
            module = sys.modules[self.library]
            versions[self.library] = str(getattr(module, "__version__", "of unknown version"))
        return {
            "observation_space": described(self.env.observation_space),
            "action_space": described(self.env.action_space),
            "render_modes": [str(mode) for mode in modes],
            "limit": self.limit,
            "methods": sorted(n for n in own if n[0] != "_" and callable(getattr(self.bare, n))),
            "versions": versions,
        }

    def reset(self, seed: int, options: Any) -> list[Any]:
        """Return observation and info."""
        if self.is_alone:
            # Nothing else draws from them here, so the seed decides what the episode draws.
            random.seed(seed)
            np.random.seed(seed % 2**32)
            if "torch" in sys.modules:
                sys.modules["torch"].manual_seed(seed)
        if self.takes_seed:
            given = {"options": options} if self.takes_options and options else {}
            found = self.env.reset(seed=seed, **given)
        else:
            if hasattr(self.env, "seed"):
                self.env.seed(seed)
            found = self.env.reset()
        if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict):
            return [found[0], sendable(found[1])]
        return [found, {}]

    def step(self, action: Any) -> list[Any]:
        """Return observation, reward, terminated, truncated and info."""
        found = self.env.step(action)
        if len(found) == 5:
            observation, reward, terminated, truncated, info = found
        else:
            observation, reward, ended, info = found
            truncated = bool(info.get("TimeLimit.truncated", False))
            terminated = ended and not truncated
        kept = sendable(info) if info else {}
        return [observation, float(reward), bool(terminated), bool(truncated), kept]

    def render(self) -> Any:
        """Return an image, or None where a window shows it."""
        takes_mode = "mode" in inspect.signature(self.bare.render).parameters
        return self.env.render(mode=self.mode) if takes_mode else self.env.render()


def _made(env_id: str, kwargs: dict[str, Any], mode: str | None) -> tuple[Any, str]:
    """Return an environment, and the name of the library that made it, if one did."""
    module, colon, name = env_id.partition(":")
    if not colon and _PATH.fullmatch(env_id):
        module, _, name = env_id.rpartition(".")
        colon = ":"
    if colon:
        found = getattr(importlib.import_module(module), name, None)
        if found is not None:
            parameters = inspect.signature(found).parameters.values()
            takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
            takes_mode = takes_any or "render_mode" in [p.name for p in parameters]
            env = found(**kwargs, **({"render_mode": mode} if mode and takes_mode else {}))
            base = {part.__module__.partition(".")[0] for part in type(env).__mro__}
            return env, next((library for library in _LIBRARIES if library in base), "")
    name = name if colon else env_id
    installed = []
    for library in _LIBRARIES:
        with contextlib.suppress(ModuleNotFoundError):
            installed.append(importlib.import_module(library))
    if not installed:
        raise LookupError("it has neither gymnasium nor gym, and " + env_id + " is no class")
    for made_by in installed:
        registry = made_by.envs.registry
        if name in getattr(registry, "env_specs", registry) or made_by is installed[-1]:
            break
    options = dict(kwargs)
    # gym had neither before 0.26.
    if "disable_env_checker" in inspect.signature(made_by.make).parameters:
        options["disable_env_checker"] = True
        options.update({"render_mode": mode} if mode else {})
    return made_by.make(name, **options), made_by.__name__


def loaded_code() -> dict[str, str]:
    """Return the version of Python, and hashes of the modules that are not installed."""
    roots = {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    found = {"package python of env.python": platform.python_version()}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        path = os.path.realpath(file) if isinstance(file, str) else ""
        is_installed = "site-packages" in path or any(path.startswith(r + os.sep) for r in roots)
        is_this = os.path.dirname(path) == os.path.dirname(os.path.realpath(__file__))
        if path.endswith(_ENDS) and not is_installed and not is_this:
            with open(path, "rb") as stream:
                found["env.python: module " + name] = hashlib.sha256(stream.read()).hexdigest()[:16]
    for name in ("numpy", "mlagents_envs", *_LIBRARIES):
        if name in sys.modules:
            version = str(getattr(sys.modules[name], "__version__", "unknown"))
            found["package " + name + " of env.python"] = version
    return found


def fault(error: BaseException) -> dict[str, str]:
    """Return an error in one line with the lines of code that led to it, and its traceback."""
    here = os.path.dirname(__file__)
    frames = list(traceback.extract_tb(error.__traceback__))
    is_ours = os.path.dirname(frames[-1].filename) == here if frames else True
    frames = [f for f in frames if os.path.dirname(f.filename) != here]
    own = [f for f in frames if "site-packages" not in f.filename]
    own = own if own or is_ours else frames[-1:]
    places = [f"{os.path.basename(f.filename)}, line {f.lineno}, in {f.name}" for f in own[-3:]]
    text = type(error).__name__ + "".join(": " + line for line in str(error).splitlines()[:1])
    if places:
        text += " (" + " > ".join(places) + ")"
    trace = traceback.format_exception(type(error), error, error.__traceback__)
    return {"text": text, "trace": "".join(trace)}


def answered(request: dict[str, Any], worlds: dict[int, Any], kind: Any) -> Any:
    """Do what a request asks for, with worlds of a kind; return what comes of it."""
    do = request["do"]
    if do == "step":
        chosen = zip(request["worlds"], request["actions"])  # noqa: B905 (Python 3.8 has no strict)
        return [worlds[number].step(action) for number, action in chosen]
    number = request["world"]
    if do == "make":
        worlds[number] = kind(request)
        return worlds[number].facts()
    if do == "reset":
        return worlds[number].reset(request["seed"], request["options"])
    if do == "render":
        return worlds[number].render()
    if do == "call":
        method = getattr(worlds[number].bare, request["name"])
        return method(*request["args"], **request["kwargs"])
    if do == "code":
        return loaded_code()
    if do == "close":
        return worlds.pop(number).env.close()
    raise ValueError("nothing is called " + str(do))


def main(
    requests: int, answers: int, faults: int, kind: Any = World, at_end: Any = lambda: None
) -> None:
    """Answer requests until their pipe ends.

    Args:
        requests: Number of the file to read from.
        answers: Number of the file to write to.
        faults: Number of the file for what crashes the interpreter.
        kind: What is made, a class like `World`.
        at_end: Called before this process ends with the one that started it.
    """
    _set_apart(requests, answers, faults)
    # What environments print must not come between the answers' parts, nor into the run's output.
    os.dup2(2, 1)
    faulthandler.enable(file=faults, all_threads=False)
    threading.Thread(target=_end_with_parent, args=(os.getppid(), at_end), daemon=True).start()
    # Not the folder of this file, but the one that the command was started in.
    sys.path.pop(0)
    sys.path.append(os.getcwd())
    worlds: dict[int, Any] = {}
    with open(requests, "rb") as stream, open(answers, "wb") as out:
        reader = Reader(stream)
        while True:
            try:
                request = reader.receive()
            except EOFError:
                return
            try:
                answer = pack({"ok": answered(request, worlds, kind)})
            # Whatever the environment raises.
            except (Exception, SystemExit) as error:
                answer = pack({"error": fault(error)})
            try:
                out.write(answer)
                out.flush()
            except BrokenPipeError:
                # Nobody listens any more.
                os._exit(1)


def _set_apart(*pipes: int) -> None:
    # A terminal and a cluster send these to every process; the run decides how to end.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    # A process that an environment starts must not keep them open.
    for fd in pipes:
        os.set_inheritable(fd, False)


def _end_with_parent(parent: int, at_end: Any) -> None:
    """End when the run has ended, even in the middle of an endless step."""
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    at_end()
    os._exit(1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
