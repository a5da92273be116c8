"""The contract of a physics engine: what every `robots.simulation.Simulation` must do."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pytest

from robots.camera import Camera, Colour
from robots.engines import make_simulation
from robots.simulation import Physics, RendererError, RobotFile, Simulation

MakeWorld: TypeAlias = Callable[..., Simulation]
GRAVITY = 9.81
RED: Colour = (0.9, 0.1, 0.1, 1.0)
_UPRIGHT = (0.0, 0.0, 0.0, 1.0)
_LINK = """
<link name="{name}">
  <inertial><origin xyz="{centre}"/><mass value="{mass}"/>
    <inertia ixx="{moment}" iyy="{moment}" izz="{moment}" ixy="0" ixz="0" iyz="0"/></inertial>
  <collision><origin xyz="{centre}"/><geometry><box size="{size}"/></geometry></collision>
</link>
"""


def _urdf(links: list[dict[str, Any]], joints: str) -> str:
    text = "".join(_LINK.format(**{"centre": "0 0 0", "moment": 0.01, **link}) for link in links)
    return f'<robot name="trial">{text}{joints}</robot>'


CART = _urdf(
    [
        {"name": "rail", "mass": 1, "size": "2 0.05 0.05"},
        {"name": "cart", "mass": 2, "size": "0.2 0.2 0.1"},
    ],
    """
<joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/>
  <origin xyz="0 0 0.1"/><axis xyz="1 0 0"/>
  <limit lower="-0.8" upper="0.8" effort="50" velocity="3"/></joint>
""",
)
"""A cart of 2 kg on a rail."""
ARM = _urdf(
    [
        {"name": "base", "mass": 1, "size": "0.1 0.1 0.1"},
        {"name": "upper", "mass": 1, "size": "0.4 0.04 0.04", "centre": "0.2 0 0"},
        {"name": "lower", "mass": 0.5, "size": "0.4 0.04 0.04", "centre": "0.2 0 0"},
        {"name": "tip", "mass": 0.001, "size": "0.01 0.01 0.01", "moment": 1e-6},
    ],
    """
<joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/>
  <origin xyz="0 0 0.5"/><axis xyz="0 1 0"/></joint>
<joint name="elbow" type="revolute"><parent link="upper"/><child link="lower"/>
  <origin xyz="0.4 0 0"/><axis xyz="0 1 0"/>
  <limit lower="-2.5" upper="2.5" effort="30" velocity="5"/></joint>
<joint name="end" type="fixed"><parent link="lower"/><child link="tip"/>
  <origin xyz="0.4 0 0"/></joint>
""",
)
"""Two links of 0.4 m that hang from a base 0.5 m up, along x where both joints are at 0."""
BODY = _urdf([{"name": "body", "mass": 2, "size": "0.2 0.1 0.1", "centre": "0.05 0 0"}], "")
"""A body whose centre of mass is not its origin."""


class EngineContract:
    """The suite for an engine in `robots.engines.ENGINES`.

    Attributes:
        engine: Its name there.
    """

    engine: ClassVar[str]

    @pytest.fixture
    def make_world(self) -> Iterator[MakeWorld]:
        """Return a function that makes an empty world; all are closed after the test."""
        made: list[Simulation] = []

        def make(**options: Any) -> Simulation:
            physics = Physics(time_step_s=1 / 200, substeps=1, gravity_m_s2=GRAVITY)
            options = {"physics": physics, "draws": False, **options}
            made.append(make_simulation(self.engine, **options))
            return made[-1]

        yield make
        for world in made:
            world.close()

    @pytest.fixture
    def load(self, tmp_path: Path) -> Callable[..., int]:
        """Return a function that loads a robot from the text of its URDF."""

        def load(world: Simulation, text: str, **options: Any) -> int:
            path = tmp_path / f"{abs(hash(text))}.urdf"
            path.write_text(text, encoding="utf-8")
            return world.load_robot(RobotFile(str(path), inertia_from_file=True, **options))

        return load

    # Bodies -------------------------------------------------------------------------------------

    def test_a_box_falls_and_comes_to_rest(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.load_ground("plane.urdf")
        box = _box(world, (0.0, 0.0, 1.0))
        where = world.pose_reader(box)
        run(world, 60)
        assert where()[0][2] == pytest.approx(1.0 - 0.5 * GRAVITY * 0.3**2, abs=0.02)
        run(world, 400)
        assert where()[0] == pytest.approx([0.0, 0.0, 0.1], abs=2e-3)
        assert world.velocity_reader(box)()[0] == pytest.approx([0.0] * 3, abs=1e-3)

    @pytest.mark.parametrize(("of_box", "of_ground"), [(0.5, 1.0), (0.5, 0.4), (1.0, 0.6)])
    def test_friction_is_the_product_of_both_coefficients(
        self, make_world: MakeWorld, of_box: float, of_ground: float
    ) -> None:
        world = make_world()
        ground = world.load_ground("plane.urdf")
        world.set_friction(ground, -1, of_ground)
        box = _box(world, (0.0, 0.0, 0.1), friction=of_box)
        run(world, 50)
        speed = 2.0
        world.set_base_velocity(box, (speed, 0.0, 0.0), (0.0, 0.0, 0.0))
        start = world.pose_reader(box)()[0][0]
        run(world, 400)
        way = world.pose_reader(box)()[0][0] - start
        assert way == pytest.approx(speed**2 / (2.0 * of_box * of_ground * GRAVITY), rel=0.1)

    def test_friction_that_is_set_later_holds(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.load_ground("plane.urdf")
        box = _box(world, (0.0, 0.0, 0.1), friction=1.0)
        run(world, 50)
        world.set_friction(box, -1, 0.0)
        world.set_base_velocity(box, (1.0, 0.0, 0.0), (0.0, 0.0, 0.0))
        run(world, 100)
        assert world.velocity_reader(box)()[0][0] == pytest.approx(1.0, abs=0.02)

    def test_gravity_can_be_changed(self, make_world: MakeWorld) -> None:
        world = make_world()
        box = _box(world, (0.0, 0.0, 1.0))
        world.set_gravity(2.0)
        run(world, 100)
        assert world.velocity_reader(box)()[0][2] == pytest.approx(-2.0 * 0.5, rel=0.01)

    def test_a_body_without_mass_stays_when_it_is_hit(self, make_world: MakeWorld) -> None:
        world = make_world()
        wall = _box(world, (0.0, 0.0, 0.1), mass_kg=0.0)
        ball = world.add_object(
            "sphere", (0.05, 0.0, 0.0), mass_kg=1.0, position=(0.0, 0.0, 0.5), friction=0.5,
            orientation=_UPRIGHT, colour=RED,
        )  # fmt: skip
        run(world, 200)
        assert world.pose_reader(wall)()[0] == pytest.approx((0.0, 0.0, 0.1))
        assert world.pose_reader(ball)()[0][2] == pytest.approx(0.25, abs=5e-3)
        world.reset_base(wall, (2.0, 0.0, 0.1), _UPRIGHT)
        assert world.pose_reader(wall)()[0] == pytest.approx((2.0, 0.0, 0.1))
        run(world, 20)
        assert world.pose_reader(ball)()[0][2] < 0.25

    def test_base_is_placed_by_its_centre_of_mass(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        body = load(world, BODY, fixed_base=False)
        half = float(np.sqrt(0.5))
        placed = ((1.0, 2.0, 3.0), (0.0, 0.0, half, half), (0.1, 0.2, 0.3), (0.4, -0.5, 0.6))
        world.reset_base(body, *placed)
        position, orientation = world.pose_reader(body)()
        assert position == pytest.approx(placed[0])
        assert np.abs(orientation) == pytest.approx(np.abs(placed[1]))
        velocity, turning = world.velocity_reader(body)()
        assert velocity == pytest.approx(placed[2], abs=1e-6)
        assert turning == pytest.approx(placed[3], abs=1e-6)

    def test_a_body_turns_about_its_centre_of_mass(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        world.set_gravity(0.0)
        body = load(world, BODY, fixed_base=False)
        world.reset_base(body, (0.0, 0.0, 1.0), _UPRIGHT, (0.2, 0.0, 0.0), (0.0, 0.0, 2.0))
        run(world, 200)
        assert world.pose_reader(body)()[0] == pytest.approx((0.2, 0.0, 1.0), abs=5e-3)

    def test_uneven_ground_bears_a_ball_at_its_height(self, make_world: MakeWorld) -> None:
        world = make_world()
        heights = np.zeros((41, 41))
        heights[:, 25:] = 0.3  # From x = 0.5 m on.
        ground = world.add_heights(heights, 0.1, RED)
        world.reset_base(ground, (0.0, 0.0, 0.15), _UPRIGHT)
        for x, height in ((-1.0, 0.0), (1.2, 0.3)):
            ball = world.add_object(
                "sphere", (0.1, 0.0, 0.0), mass_kg=1.0, position=(x, 0.03, height + 0.2),
                friction=1.0, orientation=_UPRIGHT, colour=RED,
            )  # fmt: skip
            run(world, 150)
            assert world.pose_reader(ball)()[0][2] == pytest.approx(height + 0.1, abs=0.01)

    def test_missing_file_is_named(self, make_world: MakeWorld) -> None:
        with pytest.raises(FileNotFoundError, match=r"nowhere\.urdf"):
            make_world().load_robot(RobotFile("nowhere.urdf"))

    # Robots -------------------------------------------------------------------------------------

    def test_joints_and_links_have_the_numbers_of_the_file(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        arm = load(world, ARM)
        assert world.links(arm) == {"base": -1, "upper": 0, "lower": 1, "tip": 2}
        shoulder, elbow = world.movable_joints(arm)
        assert (shoulder.name, shoulder.index, elbow.name, elbow.index) == (
            *("shoulder", 0, "elbow", 1),
        )
        assert shoulder.lower > shoulder.upper
        limits = elbow.lower, elbow.upper, elbow.max_force, elbow.max_velocity
        assert limits == pytest.approx((-2.5, 2.5, 30.0, 5.0))
        dynamics = world.link_dynamics(arm)
        assert [dynamics[link].mass_kg for link in (0, 1)] == [1.0, 0.5]
        assert dynamics[0].inertia == pytest.approx((0.01,) * 3)

    def test_joint_stays_within_its_limits(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        cart = load(world, CART)
        world.reset_joints(cart, [0], [0.5], [2.0])
        run(world, 300)
        assert world.joint_reader(cart, [0])()[0] <= 0.81

    def test_force_accelerates_by_the_mass(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        for substeps, options in ((1, {}), (4, {"hold_torques": True})):
            world = make_world(physics=Physics(1 / 200, substeps), **options)
            cart = load(world, CART)
            push = world.torque_motors(cart, [0])
            for _ in range(40 // substeps):
                push([3.0])
                world.step()
            velocity = world.joint_reader(cart, [0])()[1]
            assert velocity == pytest.approx(3.0 / 2.0 * 40 / 200, rel=0.02)
        world.set_mass(cart, 0, 6.0, (0.03,) * 3)
        world.reset_joints(cart, [0], [0.0], [0.0])
        for _ in range(10):
            push([3.0])
            world.step()
        assert world.joint_reader(cart, [0])()[1] == pytest.approx(3.0 / 6.0 * 0.2, rel=0.02)

    def test_velocity_motor_reaches_its_velocity(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        cart = load(world, CART)
        drive, read = world.velocity_motors(cart, [0]), world.joint_reader(cart, [0])
        drive([0.5], [40.0])
        run(world, 20)
        assert read()[1] == pytest.approx(0.5, rel=0.01)
        drive([-0.5], [2.0])  # 1 m/s^2 at most.
        run(world, 100)
        assert read()[1] == pytest.approx(0.0, abs=0.03)

    def test_position_motor_holds_a_load_and_tells_its_torque(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        arm = load(world, ARM)
        drive = world.position_motors(arm, [0, 1], [0.1, 0.1], [1.0, 1.0])
        world.reset_joints(arm, [0, 1], [0.0, 0.0], [0.0, 0.0])
        read = world.joint_reader(arm, [0, 1], efforts=True)
        for _ in range(200):
            drive([0.0, 0.0], [50.0, 50.0])
            world.step()
        shoulder, elbow, _, _, *torques = read()
        assert (shoulder, elbow) == pytest.approx((0.0, 0.0), abs=0.02)
        expected = -GRAVITY * np.array([1.0 * 0.2 + 0.5 * 0.6 + 0.001 * 0.8, 0.5 * 0.2])
        assert torques == pytest.approx(expected, rel=0.05)

    def test_weak_motor_lets_go(self, make_world: MakeWorld, load: Callable[..., int]) -> None:
        world = make_world()
        arm = load(world, ARM)
        drive = world.position_motors(arm, [0, 1])
        drive([0.0, 0.0], [1.0, 50.0])
        run(world, 100)
        assert world.joint_reader(arm, [0])()[0] > 0.5

    def test_position_motor_keeps_to_its_highest_velocity(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        cart = load(world, CART)
        drive = world.position_motors(cart, [0], [0.2], [1.0], [0.25])
        drive([0.7], [100.0])
        run(world, 100)
        position, velocity = world.joint_reader(cart, [0])()
        assert velocity == pytest.approx(0.25, rel=0.02)
        assert position == pytest.approx(0.125, rel=0.05)

    def test_joint_damping_slows_down(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        cart = load(world, CART)
        world.set_joint_damping(cart, 0, 4.0)
        world.reset_joints(cart, [0], [-0.5], [1.0])
        run(world, 100)
        expected = np.exp(-4.0 / 2.0 * 0.5)
        assert world.joint_reader(cart, [0])()[1] == pytest.approx(expected, rel=0.1)

    def test_joint_can_be_pushed(self, make_world: MakeWorld, load: Callable[..., int]) -> None:
        world = make_world()
        cart = load(world, CART)
        world.reset_joints(cart, [0], [0.1], [0.2])
        world.add_joint_velocity(cart, 0, 0.3)
        assert world.joint_reader(cart, [0])() == pytest.approx([0.1, 0.5])

    def test_link_velocities_are_those_of_its_motion(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        world.set_gravity(0.0)
        arm = load(world, ARM)
        world.reset_joints(arm, [0, 1], [0.3, -0.7], [1.0, 0.5])
        read = world.link_reader(arm, [0, 1, 2])
        positions, orientations, velocities, turning = read()
        tip = [
            0.4 * np.cos(0.3) + 0.4 * np.cos(-0.4),
            0.0,
            0.5 - 0.4 * np.sin(0.3) - 0.4 * np.sin(-0.4),
        ]
        assert positions[6:] == pytest.approx(tip, abs=1e-6)
        assert positions[:3] == pytest.approx([0.0, 0.0, 0.5], abs=1e-6)
        assert np.abs(orientations[8:]) == pytest.approx([0, np.sin(0.2), 0, np.cos(0.2)], abs=1e-6)
        assert turning[3:6] == pytest.approx([0.0, 1.5, 0.0], abs=1e-6)
        # The middle of the upper link, 0.2 m from its joint.
        middle = [-0.2 * np.sin(0.3), 0.0, -0.2 * np.cos(0.3)]
        assert velocities[:3] == pytest.approx(middle, abs=1e-6)

    def test_coupled_joints_move_alike(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        world.set_gravity(0.0)
        arm = load(world, ARM)
        world.couple(arm, 1, 0, ratio=-0.5, max_force=1e4)
        drive = world.velocity_motors(arm, [0])
        drive([1.0], [100.0])
        run(world, 100)
        shoulder, elbow, *_ = world.joint_reader(arm, [0, 1])()
        assert shoulder == pytest.approx(0.5, rel=0.05)
        assert elbow == pytest.approx(-0.25, rel=0.1)

    def test_inverse_kinematics_bring_a_link_to_a_point(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        arm = load(world, ARM)
        world.reset_joints(arm, [0, 1], [0.3, 0.4], [0.0, 0.0])
        solver = world.inverse_kinematics(arm, 2, [0, 1])
        x, y, z = solver.pose()[0]
        goal = [x - 0.05, y, z + 0.03]
        for _ in range(10):  # An engine may go a part of the way.
            world.reset_joints(arm, [0, 1], solver.solve(goal, None), [0.0, 0.0])
        assert solver.pose()[0] == pytest.approx(goal, abs=2e-3)

    # Sensors ------------------------------------------------------------------------------------

    def test_contacts_are_of_the_links_that_touch(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        world.load_ground("plane.urdf")
        arm = load(world, ARM, fixed_base=False, position=(0.0, 0.0, 0.05))
        touched = world.contact_reader(arm, [-1, 0, 2])
        hold = world.position_motors(arm, [0, 1])
        hold([0.0, 0.0], [100.0, 100.0])
        run(world, 2)
        assert touched()[1:] == [0.0, 0.0]
        hold([1.0, 0.5], [0.0, 0.0])
        run(world, 400)
        assert touched()[0] == 1.0
        world.reset_base(arm, (0.0, 0.0, 3.0), _UPRIGHT)
        run(world, 1)
        assert touched() == [0.0] * 3

    def test_rays_end_where_they_meet_a_body(self, make_world: MakeWorld) -> None:
        world = make_world()
        _box(world, (2.0, 0.0, 0.5), mass_kg=0.0)
        world.add_marker("box", (0.2, 0.2, 0.2), (1.0, 0.0, 0.5), RED)
        cast = world.ray_caster()
        starts = [[0.0, 0.0, 0.5]] * 3
        stops = [[4.0, 0.0, 0.5], [0.0, 4.0, 0.5], [1.0, 0.0, 0.5]]
        assert cast(starts, stops) == pytest.approx([1.9 / 4.0, 1.0, 1.0])

    # State --------------------------------------------------------------------------------------

    def test_restored_world_goes_on_as_the_first_time(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        world.load_ground("plane.urdf")
        arm = load(world, ARM, fixed_base=False, position=(0.0, 0.0, 0.3))
        hold = world.position_motors(arm, [0, 1])
        world.save()
        ways = []
        for _ in range(3):
            world.restore()
            world.forget_contacts()
            hold([0.3, -0.3], [20.0, 20.0])
            ways.append(_way(world, arm, 100))
        assert ways[0] == ways[1] == ways[2]

    def test_exact_state_goes_on_bit_for_bit(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        worlds = []
        for _ in range(2):
            world = make_world()
            world.load_ground("plane.urdf")
            box = _box(world, (0.4, 0.0, 0.1))
            arm = load(world, ARM, fixed_base=False, position=(0.0, 0.0, 0.6))
            hold = world.position_motors(arm, [0, 1])
            hold([0.3, -0.3], [20.0, 20.0])
            worlds.append((world, box, arm))
        (world, _, arm), (other, _, other_arm) = worlds
        run(world, 70)
        state = world.exact_state()
        if state is None:
            pytest.skip("only a replay of the episode gives the state of this engine")
        run(other, 5)
        other.load_exact_state(state.copy())
        assert _way(other, other_arm, 300) == _way(world, arm, 300)
        with pytest.raises(ValueError, match="shape"):
            other.load_exact_state(state[:-1])

    def test_world_cannot_be_copied(self, make_world: MakeWorld) -> None:
        with pytest.raises(TypeError, match="second environment"):
            pickle.dumps(make_world())

    def test_closing_twice_does_nothing(self, make_world: MakeWorld) -> None:
        world = make_world()
        world.close()
        world.close()

    # Pictures -----------------------------------------------------------------------------------

    def test_what_is_only_seen_changes_no_number(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        ways = []
        for draws in (False, True):
            world = make_world(draws=draws)
            world.load_ground("plane.urdf")
            arm = load(world, ARM, fixed_base=False, position=(0.0, 0.0, 0.3))
            if draws:
                marker = world.add_marker("sphere", (0.1, 0.0, 0.0), (0.0, 0.0, 0.2), RED)
                world.paint(arm, 0, RED)
                world.place_marker(marker, (0.1, 0.0, 0.1))
                _picture(world)
            ways.append(_way(world, arm, 100))
        assert ways[0] == ways[1]

    def test_picture_shows_a_marker_in_its_colour(self, make_world: MakeWorld) -> None:
        world = make_world(draws=True)
        world.add_marker("box", (0.3, 0.3, 0.3), (0.0, 0.0, 0.0), RED)
        picture = _picture(world)
        assert picture.shape == (48, 64, 3)
        assert picture.dtype == np.uint8
        red, green, blue = picture[24, 32].astype(int)
        assert red > 100 > max(green, blue)
        assert picture[1, 1].min() > 200  # The background is white.

    def test_links_are_placed_as_their_joints_say(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        arm = load(world, ARM)
        world.reset_joints(arm, [0, 1], [np.pi / 2, 0.0], [0.0, 0.0])
        world.forget_contacts()
        places = world.link_places(arm)
        assert [place[:4] for place in places[1:]] == [
            ("upper", -1, "shoulder", "revolute"),
            ("lower", 0, "elbow", "revolute"),
            ("tip", 1, "end", "fixed"),
        ]
        base, _, lower, _ = places
        assert (base.name, base.parent, base.kind) == ("base", -2, "fixed")
        assert lower.origin == pytest.approx((0.0, 0.0, 0.1), abs=1e-6)
        assert lower.axis == pytest.approx((0.0, 1.0, 0.0), abs=1e-6)
        assert lower.centre == pytest.approx((0.0, 0.0, -0.1), abs=1e-6)
        assert lower.box is not None
        assert np.allclose(lower.box, ((-0.02, -0.02, -0.3), (0.02, 0.02, 0.1)), atol=0.05)

    def test_body_that_collides_has_a_lowest_point(
        self, make_world: MakeWorld, load: Callable[..., int]
    ) -> None:
        world = make_world()
        arm = load(world, ARM)
        world.reset_joints(arm, [0, 1], [np.pi / 2, 0.0], [0.0, 0.0])
        run(world, 1)
        assert world.lowest_m(arm) == pytest.approx(-0.3, abs=0.02)


def run(world: Simulation, steps: int) -> None:
    """Take steps."""
    for _ in range(steps):
        world.step()


def _box(
    world: Simulation,
    position: tuple[float, float, float],
    *,
    mass_kg: float = 1.0,
    friction: float = 0.5,
) -> int:
    size = (0.1, 0.1, 0.1)
    return world.add_object(
        "box", size, mass_kg=mass_kg, position=position, orientation=_UPRIGHT,
        friction=friction, colour=RED,
    )  # fmt: skip


def _way(world: Simulation, body: int, steps: int) -> bytes:
    """Return all that is read of a body in steps."""
    readers: list[Callable[[], Any]] = [
        world.pose_reader(body),
        world.velocity_reader(body),
        world.joint_reader(body, [0, 1], efforts=True),
        world.contact_reader(body, [-1, 0, 1]),
    ]
    read = []
    for _ in range(steps):
        world.step()
        for reader in readers:
            read.append(np.concatenate([np.ravel(part) for part in _parts(reader())]))
    return np.concatenate(read).tobytes()


def _parts(values: Any) -> list[Any]:
    return list(values) if isinstance(values, tuple) else [values]


def _picture(world: Simulation) -> Any:
    try:
        return world.picture(Camera(target=(0.0, 0.0, 0.0), distance_m=2.0, width=64, height=48))
    except RendererError as error:
        pytest.skip(str(error))
