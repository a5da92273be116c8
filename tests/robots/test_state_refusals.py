"""States that an environment refuses to load, and environments that refuse to give theirs."""

import copy

import numpy as np
import pytest
from continuing import EPISODE_S, Wander, actions_for, cartpole, play, to_json

from robots.cartpole import SimpleRobotEnv
from robots.env import BaseRobotEnv
from robots.robot import RobotSpec
from robots.state import InexactStateError


def change(path, value):
    """Return a function that sets one entry of a state."""
    *parents, name = path.split("/")

    def apply(state):
        for parent in parents:
            state = state[parent]
        state[name] = value

    return apply


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state.pop("actions"), r"state lacks \['actions'\]"),
        (change("wind", 1.0), r"unknown \['wind'\]"),
        (change("env", "Other"), "env='Other' differs"),
        (change("step_s", 0.01), r"step_s=0\.01 differs"),
        (change("start", 3), "start=3 must be a mapping"),
        (change("start", {"np_random": {}}), r"start lacks \['np_random_seed'\]"),
        (change("start/np_random", 3), r"start\.np_random=3 must be a state of PCG64"),
        (change("start/np_random_seed", None), r"start\.np_random_seed=None must be a whole"),
        (change("actions", None), "actions=None must be finite numbers"),
        (change("actions", [[0.0], 1.0]), "must be finite numbers with 2 dimensions"),
        (change("actions", np.zeros(3)), "must be finite numbers with 2 dimensions"),
        (change("actions", np.zeros((3, 2))), r"actions of shape \(3, 2\)"),
        (change("actions", np.zeros((41, 1))), "at most 40"),
        (change("actions", [["0"]]), "must be finite numbers"),
        (change("actions", np.full((2, 1), np.nan)), "must be finite numbers"),
        (change("readings", np.zeros(3)), "readings of 3 numbers must be of 4"),
        (change("readings", np.full(4, np.inf)), "must be finite numbers"),
        (change("np_random_seed", None), "np_random_seed=None must be a whole number"),
        (change("np_random", 3), "np_random=3 must be a state of PCG64"),
        (change("np_random/bit_generator", "MT19937"), "must be a state of PCG64"),
        (change("np_random/state", {"state": 1}), "must be a state of PCG64"),
        (change("np_random/state/inc", "one"), "must be a state of PCG64"),
    ],
)
def test_a_wrong_state_is_refused_with_a_fix_and_changes_nothing(underway, spoil, message):
    before = underway.state_dict()
    actions = actions_for(underway)
    # Another moment, so that anything taken over would show.
    underway.reset(seed=8)
    wrong = copy.deepcopy(underway.state_dict())
    spoil(wrong)
    underway.load_state_dict(before)

    with pytest.raises(ValueError, match=message) as refusal:
        underway.load_state_dict(wrong)

    assert "Load " in str(refusal.value)
    assert to_json(underway.state_dict()) == to_json(before)
    after = play(underway, actions)
    underway.load_state_dict(before)
    assert play(underway, actions) == after


def test_the_number_of_a_discrete_action_must_exist():
    env = cartpole(discrete=True)
    env.reset(seed=0)
    env.step(1)
    for wrong in ([2], [-1], [0.5]):
        state = {**env.state_dict(), "actions": wrong}
        with pytest.raises(ValueError, match="must be whole numbers below 2"):
            env.load_state_dict(state)


def test_the_state_of_another_robot_is_refused(underway):
    other = BaseRobotEnv(
        RobotSpec("pendulum5.urdf", action_scale=1.0), Wander(5), episode_s=EPISODE_S
    )
    with pytest.raises(ValueError, match="env='BaseRobotEnv' differs"):
        underway.load_state_dict(other.state_dict())


def test_an_episode_that_comes_out_otherwise_is_noticed(underway):
    stronger = cartpole(force_n=10.1)
    with pytest.raises(InexactStateError, match="Use the same arguments"):
        stronger.load_state_dict(underway.state_dict())


class TestWhereTheStateIsNotExact:
    """Environments that may remember more than their episode tells."""

    def check(self, env, reason):
        """Check that an environment says so itself, and close it."""
        assert not env.exact_state
        for call in (env.state_dict, lambda: env.load_state_dict({})):
            with pytest.raises(InexactStateError, match=f"{reason}.*replay the actions"):
                call()

    @pytest.mark.parametrize("method", ["reset", "step"])
    def test_a_subclass_that_may_remember_more(self, method):
        kind = type("Windy", (SimpleRobotEnv,), {method: lambda self, *args, **kwargs: None})
        self.check(kind(), f"{method} is overridden without state_dict")

    def test_a_subclass_that_gives_its_own_state_is_exact(self):
        class Windy(SimpleRobotEnv):
            wind = 0.0

            def step(self, action):
                self.wind += 0.1
                return super().step(action)

            def state_dict(self):
                return {**super().state_dict(), "wind": self.wind}

            def load_state_dict(self, state):
                own = dict(state)
                wind = own.pop("wind")
                super().load_state_dict(own)
                self.wind = wind

        env, other = Windy(), Windy()
        env.reset(seed=0)
        env.step(np.zeros(1))
        assert env.exact_state
        other.load_state_dict(env.state_dict())
        assert other.wind == 0.1
