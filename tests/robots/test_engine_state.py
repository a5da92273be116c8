"""The state of an environment whose engine gives its own: nothing is replayed."""

import re

import numpy as np
import pytest
from continuing import (
    EVERYTHING,
    actions_for,
    cartpole,
    from_json,
    play,
    to_json,
)

from robots.engines import BULLET
from robots.engines.bullet.simulation import BulletSimulation
from robots.state import InexactStateError

ALL = {
    "randomization": EVERYTHING,
    "latency": 2,
    "max_action_rate": 0.4,
    "safety": {"max_action_rate": 0.1, "on_violation": "penalty"},
}


@pytest.fixture
def exact(monkeypatch):
    """Let PyBullet stand for an engine that gives its state: that of the joints of a cart-pole."""

    def joints(self):
        return 0, [joint.index for joint in self.movable_joints(0)]

    def exact_state(self):
        return np.array(self.joint_reader(*joints(self))())

    def load_exact_state(self, state):
        body, indices = joints(self)
        self.reset_joints(body, indices, *np.split(state, 2))

    monkeypatch.setattr(BulletSimulation, "engine", "exact")
    monkeypatch.setattr(BulletSimulation, "exact_state", exact_state)
    monkeypatch.setattr(BulletSimulation, "load_exact_state", load_exact_state)
    monkeypatch.setattr("robots.world.make_simulation", make)


def make(engine, physics, **options):
    """Return PyBullet, whatever the engine is called."""
    del engine
    return BulletSimulation(physics, **options)


def begun(env, steps):
    """Return the state of an environment after some steps."""
    env.reset(seed=5)
    play(env, actions_for(env)[:steps])
    return env.state_dict()


@pytest.mark.parametrize("options", [{}, {"discrete": True}, ALL], ids=["plain", "choice", "all"])
@pytest.mark.parametrize("steps", [0, 1, 17, 39])
def test_an_episode_goes_on_without_replaying_its_actions(exact, options, steps, monkeypatch):
    env, other = cartpole(**options), cartpole(**options)
    other.reset(seed=9)
    play(other, actions_for(other)[:11])
    state = from_json(to_json(begun(env, steps)))
    with monkeypatch.context() as patch:
        patch.setattr(other, "_advance", None)
        other.load_state_dict(state)
    assert to_json(other.state_dict()) == to_json(env.state_dict())
    assert play(other, actions_for(env)) == play(env, actions_for(env))


def test_a_state_from_before_the_first_reset_has_no_physics(exact):
    state = cartpole().state_dict()
    assert (state["engine"], "physics" in state) == ("exact", False)
    cartpole().load_state_dict(state)


def test_a_state_of_another_engine_is_refused_with_both_names(monkeypatch):
    env = cartpole()
    state = begun(env, 3)
    assert not {"engine", "physics", "running"} & state.keys()
    with pytest.raises(ValueError, match=r"engine='mujoco'.*engine='bullet'.*Set the engine"):
        env.load_state_dict({**state, "engine": "mujoco"})
    monkeypatch.setattr(BulletSimulation, "engine", "mujoco")
    with pytest.raises(ValueError, match=rf"engine='{BULLET}'.*engine='mujoco'"):
        env.load_state_dict(state)


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("physics", [1.0], "physics of 1 numbers must be of 4"),
        ("physics", "x", "must be finite numbers with 1 dimensions"),
        ("running", {}, "running lacks ['num_steps', 'terms', 'memory', 'conditions']"),
        ("num_steps", -1, "running.num_steps=-1 must be a whole number"),
        ("terms", {}, "running.terms lacks"),
        ("memory", [], "running.memory=[] must be a mapping"),
        ("conditions", {"arrived": [None]}, "running.conditions.arrived"),
    ],
)
def test_a_wrong_part_is_refused_before_anything_changes(exact, part, value, reason):
    env = cartpole(**ALL)
    state = begun(env, 7)
    before = to_json(state)
    wrong = {**state, part: value}
    if part not in state:
        wrong = {**state, "running": {**state["running"], part: value}}
    with pytest.raises(ValueError, match=re.escape(reason)):
        env.load_state_dict(wrong)
    assert to_json(env.state_dict()) == before


@pytest.mark.parametrize("part", ["under_way", "command", "violations", "steps_to_push", "seen"])
def test_conditions_of_another_shape_are_refused(exact, part):
    env = cartpole(**ALL)
    state = begun(env, 7)
    state["running"]["conditions"][part] = np.zeros((9, 9))
    with pytest.raises(InexactStateError, match="Use the same arguments"):
        env.load_state_dict(state)


def test_readings_that_the_physics_does_not_give_are_refused(exact):
    env = cartpole()
    state = begun(env, 7)
    with pytest.raises(InexactStateError, match="The joints of SimpleRobotEnv read otherwise"):
        env.load_state_dict({**state, "physics": 1.01 * state["physics"]})
