"""Which code of the user's a run executes, from its first step on, for its checkpoints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.user_code import code_changes, user_code, user_models
from rlzoo_plus.config.schema import RunConfig

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

_DOTTED = re.compile(r"([A-Za-z_]\w*)(?:[.:][A-Za-z_]\w*)+(?:-v\d+)?")


class RunCode:
    """The user's modules, models and packages of a run, hashed when each is first seen."""

    def __init__(self, config: RunConfig) -> None:
        self._is_apart = config.vec_env == "subproc"
        texts = list(_texts(config.model_dump(include={"env", "algo", "network", "callbacks"})))
        named = {match[1] for text in texts if (match := _DOTTED.fullmatch(text))}
        named |= {name.partition(".")[0] for name in (*config.env.packages, *config.algo.packages)}
        self._packages = sorted(named)
        self._files = [text for text in texts if "/" in text or "." in text]
        self._seen: dict[str, str] = {}

    def look(self, venv: VecEnv) -> dict[str, str]:
        """Return all that was seen so far; what changed on the disk since has no effect here.

        Args:
            venv: The training environments; those in other processes are asked, too.
        """
        now = user_code(self._packages)
        if not self._seen:
            now |= user_models(self._files)
            if self._is_apart:
                (there,) = venv.env_method("loaded_code", self._packages, self._files, indices=[0])
                now = there | now
        self._seen = now | self._seen
        return dict(self._seen)

    def changes_since(self, stored: Any, venv: VecEnv) -> list[str]:
        """Return what a checkpoint's process ran otherwise, a text for each.

        Raises:
            ValueError: What the checkpoint says of it is nothing of the kind.
        """
        if not isinstance(stored, Mapping) or not all(type(v) is str for v in stored.values()):
            raise ValueError("its list of code is none")
        return code_changes(stored, self.look(venv))


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in nested plain data, keys among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
