"""Whether the episodes of an environment can be put back is found out before training."""

import random

import numpy as np
import pytest
from support.tiny_envs import TinyReach
from support.training import make_config, tiny_config

from rlzoo_plus.envs import exactness
from rlzoo_plus.envs.episodes import RecordedEpisodes
from rlzoo_plus.envs.exactness import replay_problem
from rlzoo_plus.errors import ConfigError

PACKAGE = "env.packages=[support.forgetful_envs]"


NAMES = ("Reach", "Masked", "Levers", "Memory", "Image", "Dict", "Goal", "Endless")
TINY = [(f"tests/Tiny{name}-v0",) for name in NAMES]
CLASSIC = [(f"{name}-v1",) for name in ("CartPole", "Pendulum", "Acrobot", "FrozenLake")]
STICKY = "env.wrappers=[{sticky_action: {repeat_action_probability: 0.5}}]"
OTHERS = [
    *(("MountainCar-v0",), ("MountainCarContinuous-v0",), ("Taxi-v4",)),
    ("Pendulum-v1", "env.time_limit=8", "env.wrappers=[time_feature]"),
    ("Pendulum-v1", "env.time_limit=8", STICKY),
    # It counts its episodes, and gives the count.
    ("tests/Remembering-v0", PACKAGE),
]


def problem_of(env_id, *overrides):
    return replay_problem(tiny_config("ppo", env_id, *overrides).env)


@pytest.mark.parametrize("words", [*TINY, *CLASSIC, *OTHERS], ids=" ".join)
def test_an_environment_decided_by_its_seed_has_no_problem(words):
    assert problem_of(*words) is None


@pytest.mark.parametrize("discrete", ["true", "false"])
def test_our_robot_has_no_problem_and_need_not_be_played(discrete, monkeypatch):
    monkeypatch.setattr(exactness, "_play", lambda *_: pytest.fail("it was played"))
    config = make_config("env=cartpole_bullet", f"env.kwargs.discrete={discrete}")
    assert replay_problem(config.env) is None


def test_our_robot_under_a_wrapper_of_a_user_is_played_and_has_no_problem():
    config = make_config("env=cartpole_bullet", "env.wrappers=[support.tiny_envs.Doubled]")
    assert replay_problem(config.env) is None


NORMALIZED = "env.wrappers=[gymnasium.wrappers.NormalizeObservation]"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("tests/TinyClock-v0",), "the observation after"),
        (("tests/TinyGlobal-v0",), "the reward of step 1"),
        (("tests/TinyHidden-v0",), "the observation after"),
        (("tests/TinyLate-v0",), "the reward of step"),
        (("tests/Widening-v0", PACKAGE), "Widening.episodes was 5, is 1 where the episode is repl"),
        # Its statistics are of all episodes.
        (("tests/TinyReach-v0", NORMALIZED), "observation"),
    ],
)
def test_what_no_seed_decides_is_told(words, told):
    assert told in problem_of(*words)


def test_a_worker_of_its_own_seeds_the_global_generators_with_each_episode():
    config = tiny_config("ppo", "tests/TinyGlobal-v0")
    before = random.getstate(), np.random.get_state()[1].copy()
    assert replay_problem(config.env, in_worker=True) is None
    assert random.getstate() == before[0]
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])


class _Late(TinyReach):
    """Differs only in the step after those that are replayed; `first` is the played one."""

    def __init__(self, what, first):
        super().__init__()
        self.what, self.first = what, first

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.first:
            reward += self.what == "reward"
            observation[0] += self.what == "observation"
            terminated = self.what == "end"
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize("what", ["reward", "observation", "end"])
def test_a_difference_in_the_next_step_is_told(what, monkeypatch):
    # The played one is made first, and begins to differ after what it is asked to play.
    made = []

    def make(spec, *, recorded):
        made.append(RecordedEpisodes(_Late(what, first=False)))
        return made[-1]

    def next_differs(played, fresh):
        played.unwrapped.first = True
        return real(played, fresh)

    real = exactness._next_differs
    monkeypatch.setattr(exactness, "make_env", make)
    monkeypatch.setattr(exactness, "_next_differs", next_differs)
    assert what in exactness.replay_problem(None)
    assert len(made) == 2


def test_an_environment_that_draws_at_its_reset_from_elsewhere_is_told(monkeypatch):
    class Elsewhere(TinyReach):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=None if seed is None else np.random.randint(2**31))

    monkeypatch.setattr(exactness, "make_env", lambda *_, **__: RecordedEpisodes(Elsewhere()))
    assert "the episode differs" in exactness.replay_problem(None)


@pytest.mark.parametrize("env_id", ["tests/TinyReach-v0", "tests/TinyClock-v0", "Pendulum-v1"])
def test_the_trial_leaves_the_global_generators_as_they_were(env_id):
    before = random.getstate(), np.random.get_state()
    problem_of(env_id)
    assert random.getstate() == before[0]
    for now, then in zip(np.random.get_state(), before[1], strict=True):
        np.testing.assert_array_equal(now, then)


def test_both_environments_are_closed_also_after_an_error(monkeypatch):
    closed = []

    class Fragile(TinyReach):
        def step(self, action):
            raise RuntimeError("the gearbox broke")

        def close(self):
            closed.append(self)

    monkeypatch.setattr(exactness, "make_env", lambda *_, **__: RecordedEpisodes(Fragile()))
    with pytest.raises(ConfigError, match="RuntimeError: the gearbox broke"):
        exactness.replay_problem(None)
    assert len(closed) == 2
