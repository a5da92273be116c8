"""Decision and terminal steps of Unity's agents become rows; what cannot is refused."""

from types import SimpleNamespace

import numpy as np
import pytest

from rlzoo_plus.interpreters.unity_rows import MOST_AGENTS, Rows, row_type


class Steps(SimpleNamespace):
    def __len__(self):
        return len(self.agent_id)


def steps(agents, *obs, rewards=None, group=0.0, cut=(), masks=None):
    n = len(agents)
    return Steps(
        agent_id=np.array(agents, np.int32),
        obs=[np.array(values, np.float32).reshape(n, *shape) for values, shape in obs],
        reward=np.array(rewards or [0.0] * n, np.float32),
        group_reward=np.full(n, group, np.float32),
        interrupted=np.isin(agents, cut),
        action_mask=masks,
    )


def spec(*shapes, size=0, branches=(), names=()):
    names = [*names, *[""] * len(shapes)]
    observations = [
        SimpleNamespace(shape=shape, name=name) for shape, name in zip(shapes, names, strict=False)
    ]
    actions = SimpleNamespace(continuous_size=size, discrete_branches=branches)
    return SimpleNamespace(observation_specs=observations, action_spec=actions)


def vectors(agents, **more):
    return steps(agents, ([[agent, agent] for agent in agents], (2,)), **more)


NOBODY = vectors([])


def arrived(rows):
    """Return the table and what was seen last, from the bytes of a step."""
    kind = row_type(rows.observation_space, rows.action_space)
    table, last = rows.step()
    return table.view(kind), last.view(kind["seen"])


def test_ends_and_beginnings_of_one_message_share_a_row_in_turn():
    rows = Rows("Ball", spec((2,), size=1), 2)
    rows.take(vectors([7, 8], rewards=[5, 5]), NOBODY)
    rows.clear()
    # Agent 7 is interrupted and comes back as 9; an agent that never acted ends, too.
    rows.take(vectors([8, 9], rewards=[1, 5], group=0.5), vectors([7, 6], rewards=[2, 9], cut=[7]))
    found, last = arrived(rows)
    assert found["seen"]["observation"].tolist() == [[9, 9], [8, 8]]
    assert last["observation"].tolist() == [[7, 7]]
    assert found["reward"].tolist() == [2.0, 1.5]
    assert (found["ended"].tolist(), found["cut"].tolist()) == ([True, False], [True, False])
    assert found["there"].all()
    # Actions go out in the order in which the agents asked.
    continuous, discrete = rows.actions(np.array([[0.25], [0.5]], np.float32))
    assert (continuous.tolist(), discrete.shape) == ([[0.5], [0.25]], (2, 0))


def test_a_message_without_questions_adds_to_the_step():
    rows = Rows("Ball", spec((2,), size=1), 2)
    rows.take(vectors([1, 2]), NOBODY)
    rows.clear()
    assert not rows.take(NOBODY, vectors([1], rewards=[3]))
    assert rows.take(vectors([2], rewards=[4]), NOBODY)
    found, last = arrived(rows)
    assert found["reward"].tolist() == [3.0, 4.0]
    assert found["there"].tolist() == [False, True]
    assert found["seen"]["observation"].tolist() == [[0, 0], [2, 2]]
    assert last["observation"].tolist() == [[1, 1]]


def test_observations_are_vectors_images_and_others():
    shapes = [(2,), (3, 2, 2), (2, 3), (1,), (3, 2, 2)]
    names = ["Place", "Eye 1", "", "Speed", "Eye.1"]
    rows = Rows("Ball", spec(*shapes, size=1, names=names), 1)
    space = rows.observation_space
    assert space["keys"] == ["vector", "Eye_1", "observation", "Eye_1_4"]
    kinds = [(box["low"].shape, box["dtype"]) for box in space["parts"]]
    assert kinds == [((3,), "<f4"), ((3, 2, 2), "|u1"), ((2, 3), "<f4"), ((3, 2, 2), "|u1")]
    light = np.full(12, 200 / 255, np.float32)
    values = [[1, 2], light, [4] * 6, [3], light]
    rows.take(steps([0], *zip(values, shapes, strict=True)), Steps(agent_id=np.zeros(0)))
    seen = arrived(rows)[0]["seen"]
    assert seen["vector"].tolist() == [[1, 2, 3]]
    assert seen["Eye_1"].tolist() == np.full((1, 3, 2, 2), 200).tolist()
    values[1] = light * 2
    with pytest.raises(ValueError, match="Eye_1 of behavior Ball has values outside of 0 to 1"):
        rows.take(steps([0], *zip(values, shapes, strict=True)), Steps(agent_id=np.zeros(0)))


@pytest.mark.parametrize(
    ("branches", "space", "given", "sent"),
    [
        ((3,), {"kind": "Discrete", "n": 3, "start": 0}, [2, 0], [[2], [0]]),
        ((3, 2), {"kind": "MultiDiscrete", "nvec": [3, 2]}, [[2, 1], [0, 1]], [[2, 1], [0, 1]]),
    ],
)
def test_discrete_actions_and_their_masks(branches, space, given, sent):
    rows = Rows("Ball", spec((2,), branches=branches), 2)
    assert {key: np.array(value).tolist() for key, value in rows.action_space.items()} == space
    masks = [np.tile(np.arange(n) == n - 1, (2, 1)) for n in branches]
    rows.take(vectors([1, 2], masks=masks), NOBODY)
    allowed = [position < n - 1 for n in branches for position in range(n)]
    assert arrived(rows)[0]["allowed"].tolist() == [allowed, allowed]
    continuous, discrete = rows.actions(np.array(given))
    assert (continuous.shape, discrete.dtype, discrete.tolist()) == ((2, 0), np.int32, sent)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (spec((2,), size=2, branches=(3,)), "hybrid actions, 2 continuous and 1 discrete"),
        (spec((2,)), "behavior Ball has no actions"),
        (spec(size=1), "behavior Ball has no observations"),
    ],
)
def test_a_behavior_that_cannot_be_rows_is_refused(made, told):
    with pytest.raises(ValueError, match=told):
        Rows("Ball", made, 1)


def test_a_behavior_with_too_many_agents_is_refused():
    with pytest.raises(ValueError, match=f"has 10001 agents, and {MOST_AGENTS} are the most"):
        Rows("Ball", spec((2,), size=1), MOST_AGENTS + 1)


def test_an_image_alone_is_no_dictionary():
    rows = Rows("Ball", spec((3, 2, 2), size=1, names=["Eye"]), 1)
    assert rows.observation_space["kind"] == "Box"
    light = np.full(12, 0.2, np.float32)
    rows.take(steps([0], (light, (3, 2, 2))), NOBODY)
    assert arrived(rows)[0]["seen"]["observation"].tolist() == np.full((1, 3, 2, 2), 51).tolist()


def test_names_of_sensors_that_are_alike_are_told_apart():
    shapes = [(2, 2)] * 4
    rows = Rows("Ball", spec(*shapes, size=1, names=["Eye_2", "Eye", "Eye", "Eye_2"]), 1)
    assert rows.observation_space["keys"] == ["Eye_2", "Eye", "Eye_2_2", "Eye_2_3"]


def test_the_digest_tells_steps_apart():
    found = []
    for reward in (1.0, 1.0, 1.5):
        rows = Rows("Ball", spec((2,), size=1), 1)
        rows.take(vectors([1]), NOBODY)
        rows.clear()
        rows.take(vectors([1], rewards=[reward]), NOBODY)
        rows.note()
        found.append(rows.digest())
    assert found[0] == found[1] != found[2]
