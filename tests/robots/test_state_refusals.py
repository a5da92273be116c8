"""States that an environment refuses to load, and environments that refuse to give theirs."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pybullet
import pytest
from continuing import EPISODE_S, KUKA, Wander, actions_for, arm, play, to_json

from robots.cartpole import SimpleRobotEnv
from robots.env import BaseRobotEnv
from robots.robot import RobotSpec
from robots.state import InexactStateError


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return a function that sets one entry of a state."""
    *parents, name = path.split("/")

    def apply(state: dict[str, Any]) -> None:
        for parent in parents:
            state = state[parent]
        state[name] = value

    return apply


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda state: state.pop("num_steps"), r"state lacks \['num_steps'\]"),
        (change("wind", 1.0), r"unknown \['wind'\]"),
        (change("step_s", 0.01), r"step_s=0\.01 differs"),
        (change("robot", None), "robot=None must be a mapping"),
        (change("robot/urdf", "model.urdf"), r"'model\.urdf' differs .* 'cartpole\.urdf'"),
        (change("robot/joints", ["slider_to_cart"]), r"robot\.joints=.* differs"),
        (change("robot/position", np.zeros(3)), r"robot\.position=.* shape \(2,\)"),
        (change("robot/position", np.zeros((1, 2))), r"robot\.position=.* shape \(2,\)"),
        (change("robot/position", [[0.0], 1.0]), r"robot\.position=.* shape \(2,\)"),
        (change("robot/velocity", np.array([0.0, np.nan])), r"robot\.velocity=.* finite"),
        (change("robot/velocity", np.zeros(2, np.float32)), r"robot\.velocity=.* float64"),
        (change("robot/velocity", ["0", "1"]), r"robot\.velocity=.* float64"),
        (change("task/name", "Wander"), r"task\.name='Wander' differs"),
        (change("task/state", {"goal": 1}), "must be empty"),
        (change("num_steps", -1), "num_steps=-1 must be a whole number"),
        (change("num_steps", 1.0), r"num_steps=1\.0 must be a whole number"),
        (change("num_steps", True), "num_steps=True must be a whole number"),
        (change("np_random_seed", None), "np_random_seed=None must be a whole number"),
        (change("episode_terms", {"alive": 1.0}), r"episode_terms lacks \['centred', 'effort'\]"),
        (change("episode_terms/alive", "1"), r"episode_terms\.alive='1' must be a number"),
        (change("np_random", 3), "np_random=3 must be a state of PCG64"),
        (change("np_random/bit_generator", "MT19937"), "must be a state of PCG64"),
        (change("np_random/state", {"state": 1}), "must be a state of PCG64"),
        (change("np_random/state/inc", "one"), "must be a state of PCG64"),
    ],
)
def test_a_wrong_state_is_refused_with_a_mend_and_changes_nothing(
    underway: SimpleRobotEnv, spoil: Callable[[dict[str, Any]], None], message: str
) -> None:
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


def test_the_state_of_another_robot_is_refused(underway: SimpleRobotEnv) -> None:
    other = BaseRobotEnv(
        RobotSpec("pendulum5.urdf", action_scale=1.0), Wander(5), episode_s=EPISODE_S
    )
    with pytest.raises(ValueError, match=r"robot\.urdf='pendulum5\.urdf'"):
        underway.load_state_dict(other.state_dict())
    other.close()


class TestWhereTheStateIsNotExact:
    """Environments of which the joints may not be the whole state."""

    def check(self, env: BaseRobotEnv, reason: str) -> None:
        """Check that an environment says so itself, and close it."""
        assert not env.exact_state
        for call in (env.state_dict, lambda: env.load_state_dict({})):
            with pytest.raises(InexactStateError, match=f"{reason}.*replay the actions"):
                call()
        env.close()

    def test_a_robot_with_wheels_on_a_floor(self) -> None:
        spec = RobotSpec("r2d2.urdf", action_scale=1.0, actuated=".*wheel.*", fixed_base=False)
        env = BaseRobotEnv(spec, Wander(8), episode_s=EPISODE_S)
        env.simulation.load_urdf("plane.urdf")
        self.check(env, "base of body 0 is free")

    @pytest.mark.parametrize("fixed_base", [False, True])
    def test_an_arm_with_something_to_touch(self, fixed_base: bool) -> None:
        env = arm()
        env.simulation.load_urdf("cube_small.urdf", fixed_base=fixed_base)
        self.check(env, "body 1")

    def test_an_arm_beside_another(self) -> None:
        env = arm()
        env.simulation.load_urdf("cartpole.urdf")
        self.check(env, "body 1 can move or be touched")

    def test_a_robot_that_touches_itself(self) -> None:
        env = arm()
        env.simulation.load_urdf(KUKA, flags=pybullet.URDF_USE_SELF_COLLISION)
        self.check(env, "may touch itself")

    def test_a_constraint(self) -> None:
        env = arm()
        ends = [0, 0, 0], [0, 0, 0], [0, 0, 0]
        body, client = env.robot.body, env.simulation.client
        pybullet.createConstraint(
            body, 6, -1, -1, pybullet.JOINT_POINT2POINT, *ends, physicsClientId=client
        )
        self.check(env, "has constraints")

    @pytest.mark.parametrize("method", ["reset", "step"])
    def test_a_subclass_that_may_remember_more(self, method: str) -> None:
        kind = type("Windy", (SimpleRobotEnv,), {method: lambda self, *args, **kwargs: None})
        self.check(kind(), f"{method} is overridden without state_dict")

    def test_a_subclass_that_gives_its_own_state_is_exact(self) -> None:
        class Windy(SimpleRobotEnv):
            wind = 0.0

            def step(self, action: Any) -> Any:
                self.wind += 0.1
                return super().step(action)

            def state_dict(self) -> dict[str, Any]:
                return {**super().state_dict(), "wind": self.wind}

            def load_state_dict(self, state: Mapping[str, Any]) -> None:
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
        env.close()
        other.close()
