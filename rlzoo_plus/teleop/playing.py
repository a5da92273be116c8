"""Plays a task by hand in real time, and keeps the episodes that the person wants to keep."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.demonstrations.collecting import about, summary_of, writer_of
from rlzoo_plus.demonstrations.dataset import Dataset, Demonstration
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.local_pages import HOST
from rlzoo_plus.policies.entries import one_of, stacked
from rlzoo_plus.policies.recorder import end_of
from rlzoo_plus.teleop.controls import Controls
from rlzoo_plus.teleop.hand import Hand
from rlzoo_plus.teleop.teleop_page import TeleopServer
from rlzoo_plus.training.media import make_rendering_env, rendered, steps_per_second

# Beside those of evaluations, and of the demonstrations of policies, which begin elsewhere.
_SEEDS_BELOW, _STREAM = 2**29, 41_000
_PICTURES_PER_SECOND = 30.0
# Where drawing is slow, pictures are left out, but not for longer than this [s].
_LONGEST_WITHOUT_S = 0.2
_LOOK_S, _LAST_WORD_S = 0.05, 0.3
_AT_START: dict[str, Any] = {"steps": 0, "episode_return": 0.0, "end": None, "success": None}


def collect_by_hand(
    config: RunConfig,
    out: Path,
    *,
    episodes: int,
    seed: int,
    speed: float,
    port: int,
    lerobot: bool,
    tell: Callable[[str], None],
) -> str:
    """Serve the page until so many episodes are kept, or until Ctrl-C; return a summary.

    The dataset is written again with each episode that is kept: a kill loses none of them.

    Args:
        config: Its task is played.
        out: A new folder.
        episodes: How many are kept.
        seed: Chooses where they begin.
        speed: Of the task's time; 0.5 is slow motion.
        port: Of the page, 0 for any free one.
        lerobot: Whether to write LeRobot's format instead of Minari's.
        tell: Prints a line.

    Raises:
        ConfigError: The task cannot be played by hand, the port is taken, no episode was kept, or
            the folder cannot be written.
    """
    for path in _beside(out):
        if path.exists():
            raise ConfigError(
                f"{printable(path)} may hold episodes of a session that was killed as it wrote "
                "them. Rename it to keep them, or delete it."
            )
    write, kept = writer_of(lerobot=lerobot), []
    with contextlib.closing(make_rendering_env(config)) as venv:
        hand, rate_hz = Hand(Controls(venv.action_space)), steps_per_second(venv)
        told = {**about(config, "episodes played by hand"), "algorithm_name": "teleop"}
        told["dataset_id"] = f"{told['dataset_id'].partition('/')[0]}/teleop-v0"
        hand.show(state="starting", kept=0, of=episodes, env=config.env.id, **_AT_START)
        with _served(hand, port) as url, contextlib.suppress(KeyboardInterrupt):
            tell(f"{url}   ({counted(episodes, 'episode')}; Ctrl-C ends it with those kept)")
            for episode in played_by_hand(venv, hand, 1.0 / (rate_hz * speed), seed):
                kept.append(episode)
                dataset = Dataset(venv.observation_space, venv.action_space, kept, told, rate_hz)
                _replace(out, write, dataset)
                hand.show(kept=len(kept))
                tell(f"kept {len(kept)} of {episodes}: return {episode.episode_return:.2f}")
                if len(kept) == episodes:
                    break
        if not kept:
            raise ConfigError("no episode was kept, so nothing was written.")
        return summary_of(dataset)


@contextlib.contextmanager
def _served(hand: Hand, port: int) -> Iterator[str]:
    with TeleopServer(port, hand) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_port}"
        finally:
            hand.show(state="over")
            # A page that is open asks within this time, and shows it.
            time.sleep(_LAST_WORD_S)
            server.shutdown()


def _replace(out: Path, write: Callable[[Path, Dataset], None], dataset: Dataset) -> None:
    """Write a dataset beside an older one, and put it in its place: one is whole at any time."""
    new, old = _beside(out)
    shutil.rmtree(new, ignore_errors=True)
    write(new, dataset)
    try:
        if out.exists():
            out.rename(old)
        new.rename(out)
    except OSError as error:
        where = printable(out)
        raise ConfigError(
            f"{where} cannot be written: {error.strerror}. The episodes are in {printable(new)}."
        ) from error
    shutil.rmtree(old, ignore_errors=True)


def _beside(out: Path) -> tuple[Path, Path]:
    """Return where a dataset is written, and where the older one is put."""
    return out.with_name(f".{out.name}.new"), out.with_name(f".{out.name}.old")


@dataclass
class _Rows:
    """An episode so far."""

    seen: list[Any]
    actions: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    is_done: bool = False
    terminated: bool = False

    def add(self, action: np.ndarray, observation: Any, reward: float) -> None:
        self.actions.append(action)
        self.seen.append(observation)
        self.rewards.append(reward)


def played_by_hand(venv: VecEnv, hand: Hand, period_s: float, seed: int) -> Iterator[Demonstration]:
    """Yield the episodes that are kept, without end.

    Args:
        venv: One environment, which renders images.
        hand: The person.
        period_s: Time of a step [s].
        seed: Chooses where episodes begin.
    """
    rng = np.random.default_rng([_STREAM, seed])
    while True:
        episode_seed = int(rng.integers(_SEEDS_BELOW))
        rows = _play_one(venv, hand, period_s, episode_seed)
        if rows is not None:
            yield Demonstration(
                stacked(rows.seen),
                np.stack(rows.actions),
                np.array(rows.rewards, np.float64),
                rows.terminated,
                episode_seed,
            )


def _play_one(venv: VecEnv, hand: Hand, period_s: float, seed: int) -> _Rows | None:
    """Play an episode from a seed; return what is to be kept, None if it is discarded."""
    venv.env_method("set_episode_seeds", [seed])
    rows = _Rows([one_of(venv.reset(), 0)])
    hand.show_picture(rendered(venv))
    hand.show(state="ready", **_AT_START)
    is_playing, due_s, drawn_s = False, 0.0, 0.0
    while True:
        match hand.next_request(0.0 if is_playing else _LOOK_S):
            case "discard":
                return None
            case "keep" if rows.actions:
                return rows
            case "play" if not rows.is_done:
                is_playing, due_s = True, time.monotonic()
                hand.show(state="playing")
            case "pause" if is_playing:
                is_playing = False
                hand.show(state="paused")
        if not is_playing:
            continue
        values = hand.values()
        if values is None:
            # Nobody is at the controls any more.
            is_playing = False
            hand.show(state="paused")
            continue
        info = _step(venv, rows, hand.controls.action(values))
        hand.show(steps=len(rows.rewards), episode_return=sum(rows.rewards))
        if rows.is_done:
            # The environment has begun another episode, which is not shown.
            is_playing = False
            hand.show(state="ended", end=end_of(info), success=info.get("is_success"))
            continue
        now = time.monotonic()
        is_late, age_s = now > due_s + period_s, now - drawn_s
        if age_s >= (_LONGEST_WITHOUT_S if is_late else 1.0 / _PICTURES_PER_SECOND):
            hand.show_picture(rendered(venv))
            drawn_s = now
        due_s = max(due_s + period_s, now - period_s)
        time.sleep(max(0.0, due_s - time.monotonic()))


def _step(venv: VecEnv, rows: _Rows, action: np.ndarray) -> dict[str, Any]:
    """Act, add what came of it, and return its info."""
    observation, rewards, dones, infos = venv.step(action[None])
    info = infos[0]
    rows.is_done = bool(dones[0])
    seen = info["terminal_observation"] if rows.is_done else one_of(observation, 0)
    rows.terminated = rows.is_done and not info.get("TimeLimit.truncated", False)
    rows.add(action, seen, float(rewards[0]))
    return dict(info)
