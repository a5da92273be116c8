"""Mirror images of what an agent learns from: `algo.symmetry`.

With `augment`, each batch is followed by its mirror image, with the same rewards, advantages and
probabilities, as in Mittal et al., "Symmetry Considerations for Learning Task Symmetric Robot
Policies" (ICRA 2024). For `loss` see `symmetry_loss`. An environment says by its attribute `mirror`
what its mirror image is, see `robots.mirror`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env.base_vec_env import VecEnv
from torch import Tensor

from rlzoo_plus.config.schema import AlgoConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.experience import symmetry_loss
from robots.mirror import Mirror, Reflection

_OBSERVATIONS = ("observations", "next_observations")
_KEY = "algo.symmetry"


def with_mirror_images(kind: Any, mirrored: Mirrored) -> type:
    """Return a subclass of a buffer of Stable-Baselines3 whose batches have mirror images, last.

    What it adds is in the class: a checkpoint has the buffer alone.
    """

    class MirroredBuffer(kind):  # type: ignore[misc]
        def sample(self, batch_size: int, env: Any = None) -> Any:
            """Draw half a batch from a replay buffer: algorithms rely on its size."""
            both = mirrored(super().sample((batch_size + 1) // 2, env))
            return type(both)(*(None if part is None else part[:batch_size] for part in both))

        def get(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
            """Yield the batches of a rollout."""
            yield from map(mirrored, super().get(*args, **kwargs))

    return MirroredBuffer


def attach(agent: Any, algo: AlgoConfig) -> None:
    """Let a new agent learn from mirror images, too, as `algo.symmetry` says.

    Raises:
        ConfigError: Its environments have no mirror, or one of other observations or actions.
    """
    venv = agent.get_env()
    mirrored = Mirrored(require_mirror(venv, agent.observation_space, agent.action_space), agent)
    if algo.symmetry == "loss":
        weight = algo.symmetry_weight or symmetry_loss.WEIGHT
        sides = mirrored.with_images, mirrored.action
        symmetry_loss.attach(agent, symmetry_loss.SymmetryLoss(agent, *sides, weight))
        return
    is_replay = hasattr(agent, "replay_buffer")
    buffer = agent.replay_buffer if is_replay else agent.rollout_buffer
    buffer.__class__ = with_mirror_images(type(buffer), mirrored)


class Mirrored:
    """Returns batches with their mirror images appended."""

    def __init__(self, mirror: Mirror, agent: Any) -> None:
        self._mirror, self._normalizer = mirror, agent.get_vec_normalize_env()
        self._is_choice = isinstance(agent.action_space, spaces.Discrete)

    def __call__(self, batch: Any) -> Any:
        """Return a batch, a named tuple of tensors of shape (n, ...), with 2 n rows."""
        return type(batch)(*map(self._both, batch._fields, batch))

    def with_images(self, observations: Tensor) -> Tensor:
        """Return observations of shape (n, width) and then their mirror images."""
        return torch.cat([observations, self._observation(observations).to(observations.dtype)])

    def action(self, values: Tensor) -> Tensor:
        """Return the mirror images of actions, or of probabilities of choices."""
        return _reflected(values, self._mirror.action)

    def _both(self, name: str, values: Tensor | None) -> Tensor | None:
        if values is None:
            return None
        mirrored = values
        if name in _OBSERVATIONS:
            mirrored = self._observation(values)
        elif name == "actions" and self._is_choice:
            mirrored = torch.tensor(self._mirror.action.places).to(values)[values.long()]
        elif name == "actions":
            mirrored = self.action(values)
        return torch.cat([values, mirrored.to(values.dtype)])

    def _observation(self, values: Tensor) -> Tensor:
        normalizer, part = self._normalizer, self._mirror.observation
        if normalizer is None or not normalizer.norm_obs:
            return _reflected(values, part)
        # Mirrored as the environment means it: statistics need not be symmetric.
        mean = torch.from_numpy(normalizer.obs_rms.mean)
        std = torch.from_numpy(np.sqrt(normalizer.obs_rms.var + normalizer.epsilon))
        mean, std = mean.to(values.device), std.to(values.device)
        meant = _reflected(values.double() * std + mean, part)
        return ((meant - mean) / std).clamp(-normalizer.clip_obs, normalizer.clip_obs)


def _reflected(values: Tensor, part: Reflection) -> Tensor:
    return values[:, list(part.places)] * values.new_tensor(part.signs)


def require_mirror(venv: VecEnv, observations: Any, actions: Any) -> Mirror:
    """Return the mirror of environments, whoever wrote it, for the spaces that an agent has.

    Raises:
        ConfigError: They have none, or one of other observations or actions.
    """
    given = venv.get_attr("mirror", 0)[0] if venv.has_attr("mirror") else None
    if given is None:
        raise ConfigError(
            f"{_KEY}: the environment has no mirror. Use a robot that has one, such as "
            "env=a1_walk, give yours an attribute `mirror`, or leave it out."
        )
    is_row = isinstance(observations, spaces.Box) and len(observations.shape) == 1
    is_choice: bool = isinstance(actions, spaces.Discrete)
    if not is_row or not (is_choice or isinstance(actions, spaces.Box)):
        raise ConfigError(
            f"{_KEY}: a mirror is of a row of numbers that is observed and of a Box or Discrete "
            f"action, and the environment has {observations} and {actions}. Leave it out."
        )
    n_actions = int(actions.n) if is_choice else int(np.prod(actions.shape))
    try:
        mirror = Mirror(*(Reflection(*map(tuple, part)) for part in given))
        sizes = [observations.shape[0], n_actions]
        is_sound = [*map(_gives_back, mirror, sizes)]
        is_sound[1] &= not is_choice or set(mirror.action.signs) == {1.0}
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{_KEY}: mirror={given!r} is not one of robots.mirror.Mirror."
        ) from error
    for what, sound, size in zip(("observation", "action"), is_sound, sizes, strict=True):
        if not sound:
            raise ConfigError(
                f"{_KEY}: the mirror of the {what} is not one of {size} numbers that gives them "
                "back when it is applied twice. Leave out wrappers that change the "
                f"{what}, or correct it."
            )
    if isinstance(actions, spaces.Box):
        ends = [mirror.action.of(end) for end in (actions.low, actions.high)]
        if not np.array_equal(np.sort(ends, axis=0), [actions.low, actions.high]):
            raise ConfigError(f"{_KEY}: the bounds of {actions} are not those of its mirror image.")
    return mirror


def _gives_back(part: Reflection, size: int) -> bool:
    """Return whether a reflection is of so many numbers, and twice gives them back."""
    places: Sequence[int] = part.places
    if sorted(places) != [*range(size)] or len(part.signs) != size:
        return False
    pairs = zip(places, part.signs, strict=True)
    return all(places[p] == k and s * part.signs[p] == 1.0 for k, (p, s) in enumerate(pairs))
