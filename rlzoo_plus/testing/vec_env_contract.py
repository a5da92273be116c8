"""What every vectorised environment keeps to: a run's contract, seeds, last observations, state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.own_vec_env import OwnVecEnv, make_own_vec_env
from rlzoo_plus.testing.run_contract import RunContract

Made = list[OwnVecEnv]


class VecEnvContract(RunContract):
    """The suite for classes of `vec_env`; `overrides` name one, and more than one environment.

    Attributes:
        n_steps: Steps to play; episodes should end in them.
    """

    n_steps: ClassVar[int] = 120

    @pytest.fixture
    def pair(self, config: RunConfig) -> Iterator[Made]:
        """Return two instances with the same seed."""
        made = [
            make_own_vec_env(config.env, config.n_envs, config.vec_env, seed=7) for _ in range(2)
        ]
        yield made
        for venv in made:
            venv.close()

    def test_resets_and_steps_return_what_the_spaces_say(self, pair: Made) -> None:
        pair[0].try_out()

    def test_the_same_seed_gives_the_same_steps(self, pair: Made) -> None:
        for one, other in zip(*(_play(venv, self.n_steps) for venv in pair), strict=True):
            _assert_same(one, other)

    def test_another_seed_gives_other_episodes(self, pair: Made) -> None:
        pair[1].seed(8)
        assert not _is_same(pair[0].reset(), pair[1].reset())

    def test_an_episode_that_ends_tells_its_last_observation_and_its_length(
        self, pair: Made
    ) -> None:
        space, n_ended = pair[0].observation_space, 0
        for _, _, dones, infos in _play(pair[0], self.n_steps):
            for rank in np.flatnonzero(dones):
                last = infos[rank].get("terminal_observation")
                assert last is not None, "an episode's last info needs terminal_observation"
                assert _shapes(last) == _shapes(space.sample())
                n_ended += "episode" in infos[rank]
        assert n_ended, f"no episode ended in {self.n_steps} steps"

    def test_what_was_returned_stays_as_it_was(self, pair: Made) -> None:
        first = pair[0].reset()
        kept = {k: v.copy() for k, v in first.items()} if isinstance(first, dict) else first.copy()
        pair[0].step(_actions(pair[0]))
        assert _is_same(first, kept)

    def test_its_state_decides_how_it_goes_on(self, pair: Made) -> None:
        one, other = pair
        if not one.has_state:
            pytest.skip("it has no state_dict() and load_state_dict(state)")
        _play(one, self.n_steps // 2 + 1)
        other.reset()
        assert other.restore(one.state()) is None
        for _ in range(self.n_steps):
            actions = _actions(one)
            _assert_same(one.step(actions), other.step(actions))


def _play(venv: OwnVecEnv, n_steps: int) -> list[Any]:
    """Return what each step returns, with the same random actions for every instance."""
    venv.action_space.seed(3)
    venv.reset()
    return [venv.step(_actions(venv)) for _ in range(n_steps)]


def _actions(venv: OwnVecEnv) -> np.ndarray:
    return np.stack([venv.action_space.sample() for _ in range(venv.num_envs)])


def _assert_same(one: Any, other: Any) -> None:
    assert _is_same(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])
    np.testing.assert_array_equal(one[2], other[2])


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return all(np.array_equal(one[key], other[key]) for key in one)
    return np.array_equal(one, other)


def _shapes(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: np.shape(value) for key, value in observation.items()}
    return np.shape(observation)
