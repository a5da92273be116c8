"""Numbers of one world and arrays of many: their functions, and the states that hold them."""

import math

import numpy as np
import pytest

from robots.elementary import cos, exp, sin
from robots.frames import columns
from robots.sensors import JointState, State, StateOfMany, joint_state

FUNCTIONS = {"sin": (sin, np.sin), "cos": (cos, np.cos), "exp": (exp, np.exp)}


@pytest.mark.parametrize("name", FUNCTIONS)
class TestElementary:
    """``sin``, ``cos`` and ``exp``."""

    def test_one_number_equals_the_entry_of_an_array_bit_for_bit(self, name):
        function, _ = FUNCTIONS[name]
        values = np.random.default_rng(0).uniform(-4, 4, (50, 3))
        together = function(values)
        assert together.shape == values.shape
        singles = [[function(value) for value in row] for row in values.tolist()]
        assert together.tolist() == singles

    def test_it_is_the_function_it_is_named_after(self, name):
        function, of_numpy = FUNCTIONS[name]
        values = np.linspace(-30, 30, 601)
        np.testing.assert_allclose(function(values), of_numpy(values), rtol=1e-14, atol=1e-15)
        assert type(function(0.5)) is float

    @pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e4])
    def test_what_is_not_finite_comes_out_as_numpy_has_it(self, name, value):
        function, of_numpy = FUNCTIONS[name]
        with np.errstate(all="ignore"):
            wanted = float(of_numpy(value))
        assert function(value) == pytest.approx(wanted, nan_ok=True)
        both = function(np.array([value, 0.0]))
        assert both.tolist() == pytest.approx([wanted, function(0.0)], nan_ok=True)

    def test_whole_numbers_and_empty_arrays_will_do(self, name):
        function, _ = FUNCTIONS[name]
        assert float(function(1)) == function(1.0)
        assert function(np.zeros((0, 2))).shape == (0, 2)


class TestJointState:
    """The state of one world whose robot reads its joints alone."""

    def state(self):
        return joint_state([1.0, 2.0], [3.0, 4.0], {"goal": 5}, None)

    def test_it_has_the_fields_of_a_state(self):
        state = self.state()
        assert len(state) == len(State._fields)
        for name in State._fields[2:-2]:
            assert getattr(state, name) is None
        assert state.memory == {"goal": 5}
        assert state.partners == ()

    def test_its_arrays_and_its_numbers_say_the_same(self):
        state = self.state()
        assert state.joint_position.dtype == np.float64
        assert state.joints == (columns(state.joint_position), columns(state.joint_velocity))
        assert state.joints == State(np.array([1.0, 2.0]), np.array([3.0, 4.0])).joints

    def test_it_shares_nothing_with_the_arrays_it_gave(self):
        state = self.state()
        state.joint_position[0] = 7.0
        assert state.joint_position.tolist() == [1.0, 2.0]

    def test_what_is_replaced_keeps_the_rest(self):
        other = self.state()._replace(memory={})
        assert isinstance(other, JointState)
        assert other.joints == ([1.0, 2.0], [3.0, 4.0])

    def test_joints_of_many_worlds_are_arrays_over_the_worlds(self):
        (first, second), velocities = State(np.arange(6.0).reshape(3, 2), np.ones((3, 2))).joints
        assert first.tolist() == [0.0, 2.0, 4.0]
        assert second.tolist() == [1.0, 3.0, 5.0]
        assert len(velocities) == 2

    def test_those_that_were_read_of_many_worlds_are_taken_apart_once(self):
        rows = np.arange(12.0).reshape(3, 4)
        state = StateOfMany(rows[:, :2], rows[:, 2:])
        assert state.joints is state.joints
        other = state._replace(joint_position=np.zeros((3, 2)))
        assert [column.tolist() for column in other.joints[0]] == [[0.0] * 3] * 2
        assert [column.tolist() for column in other.joints[1]] == [
            [2.0, 6.0, 10.0],
            [3.0, 7.0, 11.0],
        ]
