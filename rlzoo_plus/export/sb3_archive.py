"""Files of Stable-Baselines3 from an untrusted source, read as data: nothing is executed.

Of a zip only `policy.pth`, and optimizers if asked for, are loaded, with `weights_only=True`, and
only the plain JSON of `data` is read: what SB3 stores there in base64 is pickled code and stays
text. Members are read into memory, within limits; nothing is extracted. The statistics of a
`vecnormalize.pkl` are read without unpickling it.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlzoo_plus.envs.normalization import ObservationNormalizer
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.symbolic_pickle import (
    PickleError,
    array_of,
    number_of,
    read_symbolic,
    state_of,
)

MAX_MEMBERS = 64
MAX_DATA_BYTES = 64 * 2**20
MAX_WEIGHTS_BYTES = 2**30
_MAX_PARTS, _DEEPEST = 10_000, 6
_OPTIMIZER, _LEARNED = "optimizer.pth", "pytorch_variables.pth"
_SERIALIZED = ":serialized:"
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.bool)


@dataclass(frozen=True)
class Sb3Archive:
    """The facts of a zip, read without trusting it."""

    weights: dict[str, torch.Tensor]  # The policy's parameters by name
    facts: dict[str, Any]  # The plain part of `data`: hints, never commands
    optimizers: dict[str, Any] = field(default_factory=dict)  # By name, if asked for
    learned: dict[str, torch.Tensor] = field(default_factory=dict)  # E.g. `log_ent_coef`


def read_archive(path: Path, *, optimizers: bool = False) -> Sb3Archive:
    """Read a zip that Stable-Baselines3, sb3-contrib or the RL Zoo saved.

    Args:
        path: The zip.
        optimizers: Also read the optimizers and what is learned beside the policy.

    Raises:
        ConfigError: It is none, or something in it is not as SB3 writes it.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(names) > MAX_MEMBERS or len(set(names)) != len(names):
                raise ConfigError(
                    f"{path} has {len(names)} members, or two of one name: no SB3 zip."
                )
            for name in names:
                if "/" in name or "\\" in name or name.startswith("."):
                    raise ConfigError(
                        f"{path} names {name!r}, a path: no SB3 zip. Nothing was read."
                    )
            if "policy.pth" not in names:
                raise ConfigError(f"{path} holds no policy.pth: SB3 older than 1.0, or no SB3 zip.")
            members = ["policy.pth"]
            if optimizers:
                members += [n for n in names if n.endswith(_OPTIMIZER) or n == _LEARNED]
            saved = {n: _member(path, archive, n, MAX_WEIGHTS_BYTES) for n in members}
            data = _member(path, archive, "data", MAX_DATA_BYTES) if "data" in names else b"{}"
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file.") from None
    except ConfigError:
        raise
    # Besides its own error, zipfile raises what a crafted header leads it to.
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise ConfigError(f"{path} is no readable zip: {error}.") from error
    loaded = {name: _loaded(path, name, content) for name, content in saved.items()}
    weights, learned = loaded.pop("policy.pth"), loaded.pop(_LEARNED, None) or {}
    if not isinstance(weights, dict) or not weights:
        raise ConfigError(f"{path}: policy.pth holds no parameters.")
    if not isinstance(learned, dict):
        raise ConfigError(f"{path}: {_LEARNED} holds no parameters.")
    for member, part in (("policy.pth", weights), (_LEARNED, learned)):
        for name, value in part.items():
            if not isinstance(name, str) or not isinstance(value, torch.Tensor):
                raise ConfigError(f"{path}: {member} holds {name!r}, which is no plain array.")
    states = {name.removesuffix(".pth"): state for name, state in loaded.items()}
    for name, state in states.items():
        if not isinstance(state, dict) or not {"state", "param_groups"} <= state.keys():
            raise ConfigError(f"{path}: {name}.pth holds no optimizer.")
    return Sb3Archive(weights, _facts(path, data), states, learned)


def _member(path: Path, archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    if archive.getinfo(name).file_size <= limit:
        with archive.open(name) as member:
            # The file states its size itself: read no more than the limit.
            content = member.read(limit + 1)
        if len(content) <= limit:
            return content
    raise ConfigError(
        f"{path}: {name} unpacks to more than {limit // 2**20} MiB. Nothing was read."
    )


def _loaded(path: Path, member: str, content: bytes) -> Any:
    """Return what a member holds, as far as it is plain data and tensors on the CPU."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            infos = parts.infolist()
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise ConfigError(
            f"{path}: {member} is not of torch 1.6 or newer. Load it once with "
            "Stable-Baselines3 and save it again."
        ) from error
    # torch stores its parts unpacked.
    unpacked = sum(info.file_size for info in infos)
    is_packed = any(info.compress_type != zipfile.ZIP_STORED for info in infos)
    if is_packed or unpacked > len(content) or len(infos) > _MAX_PARTS:
        raise ConfigError(f"{path}: {member} unpacks to more than it is. It was not loaded.")
    try:
        loaded = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    # Damaged and crafted files make torch raise almost anything.
    except Exception as error:
        raise ConfigError(
            f"{path}: {member} holds more than weights, or is damaged; it was not executed."
        ) from error
    return _plain(f"{path}: {member}", "", loaded)


def _plain(where: str, name: Any, value: Any, depth: int = 0) -> Any:
    """Return a copy of nested data with tensors, after a check that it is no more than that."""
    if isinstance(value, (dict, list, tuple)) and depth < _DEEPEST:
        if isinstance(value, dict):
            return {key: _plain(where, key, part, depth + 1) for key, part in value.items()}
        return type(value)([_plain(where, name, part, depth + 1) for part in value])
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    is_tensor = isinstance(value, torch.Tensor)
    if not is_tensor or value.layout is not torch.strided or value.device.type != "cpu":
        raise ConfigError(f"{where} holds {name!r}, which is no plain array.")
    if value.dtype not in _DTYPES:
        raise ConfigError(f"{where}: {name} is of type {value.dtype}, not one that SB3 uses.")
    # A view may declare a shape far beyond the numbers behind it.
    if value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise ConfigError(f"{where}: {name} declares shape {tuple(value.shape)}, but is smaller.")
    return value.detach().clone()


def _facts(path: Path, content: bytes) -> dict[str, Any]:
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: data is not JSON.") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: data is no JSON object.")
    for value in data.values():
        if isinstance(value, dict):
            value.pop(_SERIALIZED, None)
    return data


MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class PickledStatistics:
    """The content of a `vecnormalize.pkl`."""

    normalizer: ObservationNormalizer | None  # None if observations are not normalised
    norm_reward: bool  # Whether rewards were normalised too
    clip_reward: float  # Normalised rewards were clipped to +-clip_reward


def read_statistics(path: Path) -> PickledStatistics:
    """Read the statistics out of a `vecnormalize.pkl`; nothing that it names is run.

    Raises:
        ConfigError: It cannot be read, or holds something else.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PickleError(f"it is larger than {MAX_BYTES // 2**20} MiB")
        return parse_statistics(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{path} was refused: {error}. Nothing in it was executed. If you trust it, load it "
            "with Stable-Baselines3 and save it again: VecNormalize.load(path, venv).save(path)."
        ) from error


def parse_statistics(pickled: bytes) -> PickledStatistics:
    """Read the statistics out of a pickled `VecNormalize`; nothing that it names is run.

    Raises:
        ValueError: It holds something else.
        OverflowError: It holds a number beyond all floats.
    """
    state = state_of(read_symbolic(pickled), "VecNormalize")
    reward = bool(state.get("norm_reward", True))
    clip_reward = _positive(state, "clip_reward")
    if not state.get("norm_obs", True):
        return PickledStatistics(None, reward, clip_reward)
    obs_rms = state.get("obs_rms")
    parts = obs_rms if isinstance(obs_rms, dict) else {"": obs_rms}
    if not parts or not all(isinstance(key, str) for key in parts):
        raise PickleError("it holds no statistics of observations")
    rms = {key: state_of(part, "RunningMeanStd") for key, part in parts.items()}
    normalizer = ObservationNormalizer(
        mean={key: array_of(part.get("mean")).astype(float) for key, part in rms.items()},
        var={key: array_of(part.get("var")).astype(float) for key, part in rms.items()},
        count={key: number_of(part.get("count")) for key, part in rms.items()},
        clip=_positive(state, "clip_obs"),
        epsilon=_positive(state, "epsilon"),
    )
    for key, mean in normalizer.mean.items():
        var = normalizer.var[key]
        is_sound = mean.shape == var.shape and np.isfinite(mean).all() and np.isfinite(var).all()
        if not is_sound or (var < 0).any():
            raise PickleError("its means and variances are not valid")
    return PickledStatistics(normalizer, reward, clip_reward)


def _positive(state: dict[str, Any], name: str) -> float:
    value = number_of(state.get(name))
    if not (math.isfinite(value) and value > 0):
        raise PickleError(f"its {name} is {value}")
    return value
