"""Features extractors for observations of many parts: attention over tokens, and deep sets.

Both read numbers, images and (n, k) boxes, alone or as entries of a dictionary. An entry that
another one masks counts only where its mask is 1; masks are not read as entries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from gymnasium import spaces
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN, create_mlp
from torch import Tensor, nn

from rlzoo_plus.errors import ConfigError

# Name of the only entry of an observation that is not a dictionary.
_ONLY = "observation"
_POOLS = ("mean", "sum", "max")
# Far below any score, and finite: a sum stays a number where everything is masked.
_MASKED = -1e9
Observations = Tensor | dict[str, Tensor]


class AttentionExtractor(BaseFeaturesExtractor):
    """Transformer encoder over the parts of an observation, pooled to one vector.

    Each entry of a dictionary is a token; an (n, k) entry is n of them, as is one of n stacked
    frames. Of a single box of n numbers, without stacked frames, each number is a token. Layers
    are those of Vaswani et al., "Attention Is All You Need" (NeurIPS 2017), normalised before
    instead of after (Xiong et al., ICML 2020), with learned positions.

    It does not use `nn.MultiheadAttention`, whose fused inference path rounds otherwise than its
    training path: here acting, learning and an exported file use the same operations.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        width: int = 64,
        heads: int = 4,
        layers: int = 2,
        feedforward: int = 128,
        pool: str = "mean",
        dropout: float = 0.0,
        sets: Sequence[str] = (),
        masks: Mapping[str, str] | None = None,
        n_frames: int = 1,
    ) -> None:
        """Build the layers.

        Args:
            observation_space: What is observed.
            width: Size of a token, and of the features.
            heads: Attention heads; they divide `width`.
            layers: Encoder layers.
            feedforward: Size of the hidden layer between two attentions.
            pool: How tokens become one vector: mean, sum or max.
            dropout: Probability that a number is left out while learning.
            sets: (n, k) entries whose rows have no order: they get no positions.
            masks: For an entry, the entry of shape (n,) that is 1 where a row counts.
            n_frames: Stacked frames in the observation.

        Raises:
            ConfigError: An option does not fit the others or the observations.
        """
        _check_options(pool, width=width, heads=heads, layers=layers, feedforward=feedforward)
        if width % heads:
            _refuse(f"width={width} is not a multiple of heads={heads}", "Set width=64, heads=4")
        if not 0 <= dropout < 1:
            _refuse(f"dropout={dropout}: must be at least 0 and below 1", "Leave it out for none")
        super().__init__(observation_space, features_dim=width)
        parts = _parts(observation_space)
        self.masks, self.pool = _checked_masks(parts, masks), pool
        _check_known("sets", sets, _tables(parts))
        self.keys = [key for key in parts if key not in self.masks.values()]
        self.tokens = nn.ModuleList(
            _Tokens(parts[key], width, n_frames, is_one=len(parts) == 1, ordered=key not in sets)
            for key in self.keys
        )
        block = (width, heads, feedforward, dropout)
        self.encoder = nn.ModuleList(_EncoderLayer(*block) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, observations: Observations) -> Tensor:
        """Return features, shape (batch, width)."""
        entries = observations if isinstance(observations, dict) else {_ONLY: observations}
        tokens = {k: part(entries[k]) for k, part in zip(self.keys, self.tokens, strict=True)}
        present = None
        if self.masks:
            shown = [_present(entries, self.masks.get(k), t) for k, t in tokens.items()]
            present = torch.cat(shown, dim=1)
        values = torch.cat(list(tokens.values()), dim=1)
        for layer in self.encoder:
            values = layer(values, present)
        return _pooled(self.norm(values), present, self.pool)


class DeepSetsExtractor(BaseFeaturesExtractor):
    """Permutation-invariant features of sets, such as obstacles or joints.

    Every row of an (n, k) entry goes through one MLP, and the results are pooled (Zaheer et al.,
    "Deep Sets", NeurIPS 2017); the policy's own layers follow. Other entries are appended
    unchanged, images through convolutions (Mnih et al. 2015).
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        element_arch: Sequence[int] = (64, 64),
        pool: str = "mean",
        masks: Mapping[str, str] | None = None,
        cnn_output_dim: int = 256,
    ) -> None:
        """Build the layers.

        Args:
            observation_space: What is observed; at least one part has the shape (n, k).
            element_arch: Sizes of the layers that every element goes through.
            pool: How elements become one vector: mean, sum or max.
            masks: For an entry, the entry of shape (n,) that is 1 where an element exists.
            cnn_output_dim: Features of each image.

        Raises:
            ConfigError: An option does not fit the observations, or there is no set in them.
        """
        layers = {f"element_arch[{i}]": size for i, size in enumerate(element_arch)}
        _check_options(pool, **(layers or {"element_arch": 0}), cnn_output_dim=cnn_output_dim)
        parts = _parts(observation_space)
        arch, sets = list(element_arch), _tables(parts)
        if not sets:
            shapes = ", ".join(f"{key} {space.shape}" for key, space in parts.items())
            _refuse(
                f"deep_sets reads sets, parts of shape (n, k), and the observation has {shapes}",
                "Use network.features_extractor=attention, or null",
            )
        masked = _checked_masks(parts, masks)
        others = {
            key: space for key, space in parts.items() if key not in (*sets, *masked.values())
        }
        plain_dim = sum(
            cnn_output_dim if is_image_space(space) else get_flattened_obs_dim(space)
            for space in others.values()
        )
        super().__init__(observation_space, features_dim=len(sets) * arch[-1] + plain_dim)
        self.masks, self.pool = masked, pool
        self.sets, self.others = sets, list(others)
        widths = (get_flattened_obs_dim(parts[key]) // _rows(parts[key]) for key in sets)
        self.elements = nn.ModuleList(nn.Sequential(*create_mlp(k, -1, arch)) for k in widths)
        self.plain = nn.ModuleList(
            NatureCNN(space, cnn_output_dim) if is_image_space(space) else nn.Flatten()
            for space in others.values()
        )

    def forward(self, observations: Observations) -> Tensor:
        """Return features, shape (batch, features_dim)."""
        entries = observations if isinstance(observations, dict) else {_ONLY: observations}
        found = []
        for key, element in zip(self.sets, self.elements, strict=True):
            values, mask = element(entries[key]), self.masks.get(key)
            present = None if mask is None else _present(entries, mask, values)
            found.append(_pooled(values, present, self.pool))
        rest = [part(entries[k]) for k, part in zip(self.others, self.plain, strict=True)]
        return torch.cat([*found, *rest], dim=1)


class _Tokens(nn.Module):
    """The tokens of one entry plus its positions, which also distinguish entries."""

    def __init__(
        self, space: spaces.Space[Any], width: int, n_frames: int, *, is_one: bool, ordered: bool
    ) -> None:
        super().__init__()
        size, frames = (
            get_flattened_obs_dim(space),
            n_frames if isinstance(space, spaces.Box) else 1,
        )
        if size % frames:
            _refuse(
                f"n_frames={frames} does not divide an observation of {size} numbers",
                "Leave it out: it is env.frame_stack",
            )
        self.embed: nn.Module
        if is_image_space(space):
            channels, *rest = space.shape  # type: ignore[misc]
            self.count, self.shape = frames, (channels // frames, *rest)
            self.embed = NatureCNN(spaces.Box(0, 255, self.shape, space.dtype), width)  # type: ignore[arg-type]
        else:
            self.count = _rows(space) or (size if is_one and frames == 1 else frames)
            self.shape = (size // self.count,)
            self.embed = nn.Linear(size // self.count, width)
        self.position = nn.Parameter(torch.empty(self.count if ordered else 1, width))
        nn.init.normal_(self.position, std=0.02)

    def forward(self, values: Tensor) -> Tensor:
        tokens = self.embed(values.reshape(-1, *self.shape))
        placed: Tensor = tokens.reshape(-1, self.count, tokens.shape[-1]) + self.position
        return placed


class _EncoderLayer(nn.Module):
    """Self-attention and a small network for each token, each added to what came in."""

    def __init__(self, width: int, heads: int, feedforward: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = 1.0 / math.sqrt(width // heads)
        self.norm_attention, self.norm_tokens = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.each = nn.Sequential(
            nn.Linear(width, feedforward), nn.ReLU(), nn.Linear(feedforward, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, present: Tensor | None) -> Tensor:
        parts = self.project(self.norm_attention(tokens)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = torch.matmul(query, key.transpose(-2, -1)) * self.scale
        if present is not None:
            scores = scores + (1.0 - present)[:, None, None, :] * _MASKED
        mixed = torch.matmul(torch.softmax(scores, dim=-1), value)
        tokens = tokens + self.dropout(self.join(mixed.transpose(1, 2).flatten(2)))
        result: Tensor = tokens + self.dropout(self.each(self.norm_tokens(tokens)))
        return result


def _pooled(values: Tensor, present: Tensor | None, pool: str) -> Tensor:
    """Reduce (batch, n, width) to (batch, width), over what is present; 0 where nothing is."""
    if present is None:
        whole: Tensor = getattr(values, "amax" if pool == "max" else pool)(dim=1)
        return whole
    weights = present[..., None]
    if pool == "max":
        largest = (values + (1.0 - weights) * _MASKED).amax(dim=1)
        return largest * weights.amax(dim=1)
    total: Tensor = (values * weights).sum(dim=1)
    if pool == "mean":
        total = total / weights.sum(dim=1).clamp(min=1.0)
    return total


def _present(entries: dict[str, Tensor], mask: str | None, values: Tensor) -> Tensor:
    """Return 1.0 where a row of (batch, n, width) counts and 0.0 elsewhere, shape (batch, n)."""
    if mask is None:
        return torch.ones_like(values[..., 0])
    return (entries[mask] > 0.5).to(values.dtype)


def _parts(space: spaces.Space[Any]) -> dict[str, spaces.Space[Any]]:
    return dict(space.spaces) if isinstance(space, spaces.Dict) else {_ONLY: space}


def _rows(space: spaces.Space[Any]) -> int:
    """Return the number of rows of an (n, k) box; 0 for any other space."""
    return space.shape[0] if isinstance(space, spaces.Box) and len(space.shape) == 2 else 0


def _tables(parts: Mapping[str, spaces.Space[Any]]) -> list[str]:
    return [key for key, space in parts.items() if _rows(space)]


def _checked_masks(
    parts: Mapping[str, spaces.Space[Any]], masks: Mapping[str, str] | None
) -> dict[str, str]:
    masks = dict(masks or {})
    _check_known("masks", masks, _tables(parts))
    _check_known("masks", masks.values(), list(parts))
    for key, mask in masks.items():
        if parts[mask].shape != (_rows(parts[key]),):
            _refuse(
                f"masks: {mask} has the shape {parts[mask].shape}, and {key} {parts[key].shape}",
                f"A mask has one number for each of the {_rows(parts[key])} rows",
            )
    return masks


def _check_known(option: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in [name for name in names if name not in known]:
        has = ", ".join(known) or "none"
        _refuse(f"{option}: the observation has no such entry {name}", f"There are: {has}")


def _check_options(pool: str, **sizes: int) -> None:
    if pool not in _POOLS:
        _refuse(f"pool={pool}: must be one of {', '.join(_POOLS)}", "The default is mean")
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            _refuse(f"{name}={value}: must be a whole number of at least 1", "Change it")


def _refuse(problem: str, fix: str) -> NoReturn:
    raise ConfigError(f"network.features_extractor_kwargs: {problem}. {fix}.")
