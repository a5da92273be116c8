"""The statistics in a `vecnormalize.pkl`, taken out without unpickling it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.agents.normalization import ObservationNormalizer
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.export.symbolic_pickle import Call, Name, PickleError, read_symbolic

MAX_BYTES = 64 * 2**20
_NUMBERS = {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"}
_CONVERT = (
    "If you trust it, load it with Stable-Baselines3 and save it again: "
    "VecNormalize.load(path, venv).save(path)."
)


@dataclass(frozen=True)
class PickledStatistics:
    """What a `vecnormalize.pkl` says.

    Attributes:
        normalizer: Statistics of the observations, None if they are left alone.
        norm_reward: Whether rewards were normalised too.
        clip_reward: Normalised rewards were clipped to +-clip_reward.
    """

    normalizer: ObservationNormalizer | None
    norm_reward: bool
    clip_reward: float


def read_statistics(path: Path) -> PickledStatistics:
    """Read the statistics out of a `vecnormalize.pkl`; nothing that it names is run.

    Raises:
        ConfigError: It cannot be read, or holds something else.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_BYTES // 2**20} MiB: no statistics.")
        return _statistics(read_symbolic(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except PickleError as error:
        raise ConfigError(
            f"{path} was not taken: {error}. Nothing in it was executed. {_CONVERT}"
        ) from error


def _statistics(pickled: Any) -> PickledStatistics:
    state = _state(pickled, "VecNormalize")
    reward = bool(state.get("norm_reward", True))
    clip_reward = _positive(state, "clip_reward")
    if not state.get("norm_obs", True):
        return PickledStatistics(None, reward, clip_reward)
    pickled_rms = state.get("obs_rms")
    parts = pickled_rms if isinstance(pickled_rms, dict) else {"": pickled_rms}
    if not parts or not all(isinstance(key, str) for key in parts):
        raise PickleError("it holds no statistics of observations")
    rms = {key: _state(part, "RunningMeanStd") for key, part in parts.items()}
    normalizer = ObservationNormalizer(
        mean={key: _array(part.get("mean")) for key, part in rms.items()},
        var={key: _array(part.get("var")) for key, part in rms.items()},
        count={key: _number(part.get("count")) for key, part in rms.items()},
        clip=_positive(state, "clip_obs"),
        epsilon=_positive(state, "epsilon"),
    )
    for key, mean in normalizer.mean.items():
        var = normalizer.var[key]
        is_sound = mean.shape == var.shape and np.isfinite(mean).all() and np.isfinite(var).all()
        if not is_sound or (var < 0).any():
            raise PickleError("its means and variances are no statistics")
    return PickledStatistics(normalizer, reward, clip_reward)


def _state(value: Any, class_name: str) -> dict[str, Any]:
    """Return the attributes of an object of Stable-Baselines3 that would have been built."""
    function = value.function if isinstance(value, Call) else None
    if isinstance(function, Name) and function.name == "_reconstructor":
        function = value.arguments[0]
    is_it = isinstance(function, Name) and function.name == class_name
    if not is_it or not isinstance(value.state, dict):
        raise PickleError(f"it holds no {class_name}")
    return value.state


def _positive(state: dict[str, Any], name: str) -> float:
    value = _number(state.get(name))
    if not (math.isfinite(value) and value > 0):
        raise PickleError(f"its {name} is {value}")
    return value


def _number(value: Any) -> float:
    if isinstance(value, (int, float)):
        return float(value)
    array = _array(value)
    if array.size != 1:
        raise PickleError("an array stands where a number belongs")
    return float(array.reshape(()))


def _array(value: Any) -> np.ndarray:
    """Return an array or number of NumPy that would have been built, in double precision."""
    if not isinstance(value, Call) or not isinstance(value.function, Name):
        raise PickleError("something stands where an array belongs")
    name, arguments = value.function.name, value.arguments
    if name == "_reconstruct" and isinstance(value.state, tuple) and len(value.state) == 5:
        _, shape, dtype, is_fortran, content = value.state
        return _decode(content, dtype, shape, "F" if is_fortran else "C")
    if name == "_frombuffer" and isinstance(arguments, tuple) and len(arguments) == 4:
        content, dtype, shape, order = arguments
        return _decode(content, dtype, shape, order)
    if name == "scalar" and isinstance(arguments, tuple) and len(arguments) == 2:
        return _decode(arguments[1], arguments[0], (), "C")
    raise PickleError(f"{name} stands where an array belongs")


def _decode(content: Any, pickled_dtype: Any, shape: Any, order: Any) -> np.ndarray:
    dtype = _dtype(pickled_dtype)
    data = _bytes(content)
    is_shape = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or order not in ("C", "F"):
        raise PickleError("an array has no shape")
    # Compared as whole numbers before anything of that size is made.
    if math.prod(shape) * dtype.itemsize != len(data):
        raise PickleError(f"an array declares shape {shape}, which its content does not fill")
    return np.frombuffer(data, dtype).reshape(shape, order=order).astype(np.float64)


def _dtype(value: Any) -> np.dtype:
    is_call = isinstance(value, Call) and isinstance(value.function, Name)
    if not is_call or value.function.name != "dtype" or not isinstance(value.arguments, tuple):
        raise PickleError("an array is of no known type")
    code = value.arguments[0] if value.arguments else None
    order = value.state[1] if isinstance(value.state, tuple) and len(value.state) > 1 else "|"
    if code not in _NUMBERS or order not in ("<", ">", "|", "="):
        raise PickleError("an array is of no known type")
    return np.dtype(code).newbyteorder(order)


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    # Protocol 2 writes bytes as the encoding of a text.
    if isinstance(value, Call) and value.function == Name("_codecs", "encode"):
        text = value.arguments[0] if isinstance(value.arguments, tuple) else None
        if isinstance(text, str):
            try:
                return text.encode("latin1")
            except UnicodeEncodeError:
                pass
    raise PickleError("an array has no content")
