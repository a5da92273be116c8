"""Unity builds of ML-Agents as vectorised environments: each agent of a behavior is a row.

Their players run in another interpreter, see `unity_server`; this module needs no `mlagents_envs`.
Unity seeds its random numbers when a player starts, and then alone. So the state of a player is its
seed and all actions since its start, which are played again, and players start anew after
`restart_steps`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvObs, VecEnvStepReturn

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.mistakes import as_config_error
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.config.section import Count, Line, Number, PositiveFloat, Section
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.interpreters import env_server
from rlzoo_plus.interpreters.remote_env import Interpreter, path_of, refusal, space_of
from rlzoo_plus.interpreters.unity_rows import MOST_AGENTS, row_type

_SERVER = str(Path(env_server.__file__).with_name("unity_server.py"))
_NEEDS = "It needs mlagents_envs there: pip install mlagents_envs==1.1.0 (Python 3.10)."
# Steps of a message when players are played again.
_REPLAYED = 1000


class UnitySettings(Section):
    """What `env.kwargs` says of a build; conf/env/unity.yaml explains each."""

    executable: Line
    behavior: Line | None = None
    agents: Annotated[Count, Field(le=MOST_AGENTS)] | None = None
    no_graphics: bool = True
    time_scale: PositiveFloat = 20.0
    parameters: dict[Line, Number] = Field(default_factory=dict)
    args: list[int | float | Line] = Field(default_factory=list)
    base_port: Annotated[int, Field(ge=1024, le=65_535)] | None = None
    timeout_s: PositiveFloat = 60.0
    restart_steps: Count = 50_000


class UnityVecEnv(VecEnv):
    """Players of one build, each with the same number of rows for its agents.

    Attributes:
        agents_per_env: Rows of a player.
        idle: Rows that had no agent in the last step, shape (num_envs,).
    """

    def __init__(
        self, env: EnvConfig, n_envs: int, seed: int, render_mode: str | None = None
    ) -> None:
        """Start `n_envs` players of `env.kwargs.executable`, each with an interpreter of its own.

        Raises:
            ConfigError: A key is wrong, or they cannot be started.
        """
        python = _python_of(env)
        if env.kwargs.get("executable") is None:
            text = "is missing. Set it to the build of Unity, e.g. Build.x86_64."
            raise ConfigError(f"env.kwargs.executable {text}")
        with as_config_error({"env": {"kwargs": env.kwargs}}, "env", "kwargs"):
            self._settings = UnitySettings.model_validate(env.kwargs)
        self.render_mode, self.metadata = render_mode, {"render_modes": []}
        self._places: list[Interpreter] = []
        self.seed(seed)
        try:
            self._places = [Interpreter(python, _SERVER) for _ in range(n_envs)]
            facts = self._begin("make", kwargs=self._settings.model_dump())
        except RunError as error:
            self.close()
            hint = f" {_NEEDS}" if "ModuleNotFoundError" in str(error) else ""
            text = f"env.python={printable(env.python)}: {error}{hint}"
            raise refusal(text, error) from error
        counts = sorted({fact["count"] for fact in facts})
        if len(counts) > 1:
            self.close()
            text = "Set env.kwargs.agents to the most that there are."
            raise ConfigError(f"players begin with different numbers of agents, {counts}. {text}")
        n = self.agents_per_env = int(counts[0])
        # The rows of each player.
        self._slices = [slice(start, start + n) for start in range(0, n_envs * n, n)]
        given = facts[0]["observation_space"], facts[0]["action_space"]
        super().__init__(n_envs * n, *map(space_of, given))
        # Since the last step: what each row saw and earned; and all actions since the start.
        self._rows = np.zeros(self.num_envs, row_type(*given))
        self._taken: list[np.ndarray] = []
        self.idle = np.zeros(self.num_envs, bool)

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Decide by a number what the next players are seeded with."""
        self._seed, self._n_begun = 0 if seed is None else seed, 0
        return [seed]

    def reset(self) -> VecEnvObs:
        """Start the players anew, but for those that have just been started."""
        self._read(self._begin("reset", options=None))
        self._n_begun += 1
        self._taken.clear()
        self.idle = np.zeros(self.num_envs, bool)
        return self._seen()

    def step_async(self, actions: np.ndarray) -> None:
        """Let all players act."""
        # A copy, since what was given may be changed later.
        self._taken.append(np.array(actions))
        for place, rows in zip(self._places, self._slices, strict=True):
            place.send({"do": "step", "worlds": [0], "actions": [self._taken[-1][rows]]})

    def step_wait(self) -> VecEnvStepReturn:
        """Return what came of it; after `restart_steps` all agents begin again."""
        self.idle = ~self._rows["there"]
        last = self._read([steps[0] for steps in self._answers()])
        rows, ended = self._rows, self._rows["ended"]
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for at, rank in enumerate(ended.nonzero()[0].tolist()):
            infos[rank] = _end_of(last[at], is_cut=bool(rows["cut"][rank]))
        for rank in self.idle.nonzero()[0].tolist():
            # Over at each step, so that what is learned from it leads nowhere.
            infos[rank] = _end_of(np.zeros_like(rows["seen"][rank]), is_cut=False)
        dones = ended | self.idle
        if len(self._taken) >= self._settings.restart_steps:
            for rank in np.flatnonzero(rows["there"] & ~dones).tolist():
                infos[rank] = _end_of(rows["seen"][rank], is_cut=True)
            idle = self.idle
            self.reset()
            self.idle, dones[:] = idle, True
        return self._seen(), rows["reward"].astype(np.float64), dones, infos

    def _seen(self) -> VecEnvObs:
        seen: VecEnvObs = _observation(self._rows["seen"])
        return seen

    def _read(self, found: Sequence[Any]) -> np.ndarray:
        """Keep the rows of all players; return what those that ended saw last, in their order.

        Raises:
            RunError: They are of another size.
        """
        rows = np.concatenate([player[0] for player in found])
        last = np.concatenate([player[1] for player in found])
        try:
            self._rows, last = rows.view(self._rows.dtype), last.view(self._rows.dtype["seen"])
        except (TypeError, ValueError) as error:
            raise RunError(f"a Unity player sends {rows.size} bytes, no rows") from error
        if len(self._rows) != self.num_envs or len(last) != np.count_nonzero(self._rows["ended"]):
            raise RunError(f"Unity players send {len(self._rows)} rows, not {self.num_envs}")
        return last

    def _begin(self, do: str, **request: Any) -> list[Any]:
        """Ask all players at once for what starts them; a seed for each is drawn."""
        key = [self._seed % 2**32, self._n_begun]
        drawn = np.random.SeedSequence(key).generate_state(len(self._places)) >> 1
        self._send([{"do": do, "seed": seed, **request} for seed in drawn.tolist()])
        return self._answers()

    def _call(self, name: str, args: Sequence[Any] = ()) -> list[Any]:
        """Call a method of each player; `args` has an argument for each, if it takes one."""
        given = [[arg] for arg in args] or [[] for _ in self._places]
        self._send([{"do": "call", "name": name, "args": each, "kwargs": {}} for each in given])
        return self._answers()

    def _send(self, requests: Sequence[dict[str, Any]]) -> None:
        for place, request in zip(self._places, requests, strict=True):
            place.send({"world": 0, **request})

    def _answers(self) -> list[Any]:
        return [place.answer() for place in self._places]

    def state_dict(self) -> dict[str, Any]:
        """Return how the players got to where they are."""
        shape, dtype = self.action_space.shape or (), self.action_space.dtype
        taken = np.array(self._taken, dtype).reshape(-1, self.num_envs, *shape)
        return {
            **{"seed": self._seed, "begun": self._n_begun, "actions": taken},
            **{"idle": self.idle.copy(), "digests": self._call("digest")},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Start the players anew, and play all actions again.

        Raises:
            ValueError: There were other players, or they give other observations.
        """
        actions = np.asarray(state["actions"])
        if len(state["digests"]) != len(self._places) or actions.shape[1] != self.num_envs:
            raise ValueError(f"it has {actions.shape[1]} agents, not {self.num_envs}")
        self._seed, self._n_begun = int(state["seed"]), max(int(state["begun"]) - 1, 0)
        self.reset()
        for start in range(0, len(actions), _REPLAYED):
            some = actions[start : start + _REPLAYED]
            self._read(self._call("replay", [some[:, rows] for rows in self._slices]))
        self._taken, self.idle = list(actions), np.array(state["idle"], bool)
        if self._call("digest") != list(state["digests"]):
            raise ValueError("the Unity player gives other observations when it is played again")

    def close(self) -> None:
        """End the players."""
        alive = [place for place in self._places if place.end.alive]
        for place in alive:
            with contextlib.suppress(RunError):
                place.send({"do": "close", "world": 0})
        for place in alive:
            with contextlib.suppress(RunError):
                place.answer()
            place.end()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of all of them."""
        value = getattr(self, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: a player has none.

        Raises:
            AttributeError: Always.
        """
        raise AttributeError(f"a Unity player has no {attr_name}")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Return what a row may do, or what code runs there.

        Raises:
            AttributeError: It is another method.
        """
        chosen = list(self._get_indices(indices))
        allowed = self._rows["allowed"]
        if method_name == "action_masks" and allowed.size:
            return [allowed[rank] for rank in chosen]
        if method_name == "loaded_code":
            return [self._places[0].ask(do="code", world=0)] * len(chosen)
        raise AttributeError(f"a Unity player has no method {method_name}")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return False: there are no wrappers of single agents."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Refuse: pictures of agents' cameras are observations.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError


def _python_of(env: EnvConfig) -> str:
    """Return the path of the interpreter; refuse keys that reach no player."""
    if env.python is None:
        text = "Set env.python to an interpreter that has it, e.g. /path/to/venv/bin/python."
        raise ConfigError(f"vec_env=unity needs mlagents_envs in another interpreter. {text}")
    if env.worlds_per_process > 1:
        text = "each Unity player has an interpreter of its own. Leave it out."
        raise ConfigError(f"env.worlds_per_process={env.worlds_per_process}: {text}")
    if env.time_limit is not None:
        text = "it does not reach the agents of a Unity build. Set their Max Step in Unity."
        raise ConfigError(f"env.time_limit={env.time_limit}: {text}")
    return path_of(env.python)


def _observation(seen: Any) -> Any:
    """Return what rows see as arrays: a dictionary of them, if there are several parts."""
    parts = {name: np.array(seen[name]) for name in seen.dtype.names}
    return parts if len(parts) > 1 else next(iter(parts.values()))


def _end_of(seen: Any, *, is_cut: bool) -> dict[str, Any]:
    """Return the info of an episode's end."""
    return {"terminal_observation": _observation(seen), "TimeLimit.truncated": is_cut}
