"""Groups of agents with a policy each: routed, apart, exact, loaded and exported one by one."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

pytest.importorskip("pettingzoo")
from stable_baselines3.common.policies import ActorCriticPolicy
from support.chase import SPACES, Chase
from support.training import make_config

import rlzoo_plus as rz
from rlzoo_plus.agents.factory import make_agent, make_policy
from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import dispatch
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.envs.grouped import GroupedActions
from rlzoo_plus.envs.own_vec_env import make_own_vec_env
from rlzoo_plus.envs.spaces import decode_space, encode_space
from rlzoo_plus.errors import ConfigError

GROUPS = "env.groups={bad: [hunter_*], good: [prey]}"
TASK = ("env=pettingzoo", "env.id=support.chase.Chase", GROUPS, "tuned=none",
        "network.net_arch=[8]", "device=cpu", "num_threads=1", "n_envs=2", "n_timesteps=300",
        "eval.every_steps=150", "eval.episodes=6", "log.tensorboard=false", "report.video=false",
        "algo.hyperparams.n_steps=10", "algo.hyperparams.batch_size=20")  # fmt: skip
# The rows of two worlds that are in each group.
ROWS = {"bad": [0, 2, 3, 5], "good": [1, 4]}


def task_of(words):
    """Return the words of the task, whose groups would be merged with others."""
    is_given = any("env.groups" in word for word in words)
    return [word for word in TASK if not (is_given and word == GROUPS)] + list(words)


def worlds(*words, n_envs=2):
    config = make_config(*task_of(words))
    return make_own_vec_env(config.env, n_envs, config.vec_env, 3)


def acts(rng, n_rows):
    return np.where(np.arange(n_rows)[:, None] % 3 == 1, rng.uniform(-3, 3, (n_rows, 2)),
                    rng.integers(0, 3, (n_rows, 1)) * [1, 0]).astype(np.float32)  # fmt: skip


def policy_of(*words):
    torch.manual_seed(0)
    config, venv = make_config(*TASK, *words), worlds(*words)
    return make_policy(config, venv.observation_space, venv.action_space), venv


def tensors(seen):
    return {key: torch.as_tensor(value) for key, value in seen.items()}


@pytest.mark.parametrize("leaves", [2, 100])
def test_rows_see_and_act_as_their_agents(leaves):
    venv, alone = worlds(f"env.kwargs.leaves={leaves}", n_envs=1), Chase(leaves=leaves)
    rng, seen = np.random.default_rng(0), venv.reset()
    world = venv.inner.worlds[0]
    expected = alone.reset(seed=world.seed)[0]
    total = dict.fromkeys(alone.possible_agents, 0.0)
    for _ in range(6):
        for row, agent in enumerate(alone.possible_agents):
            name = "good" if agent == "prey" else "bad"
            other = {"good": "bad", "bad": "good"}[name]
            assert np.array_equal(seen[name][row], expected.get(agent, np.zeros(3)))
            assert not seen[other][row].any()
            assert seen["group"][row].tolist() == [name == "bad", name == "good"]
        actions = acts(rng, 3)
        there = list(alone.agents)
        own = {"hunter_0": int(actions[0, 0]), "prey": np.clip(actions[1], -2, 1),
               "hunter_1": int(actions[2, 0])}  # fmt: skip
        expected, rewards, *_ = alone.step({agent: own[agent] for agent in there})
        for agent in there:
            total[agent] += rewards[agent]
        seen, _, _, infos = venv.step(actions)
        assert all(np.array_equal(world.inner.taken[agent], own[agent]) for agent in there)
        expected = {agent: expected[agent] for agent in alone.agents}
    numbers = infos[1]["episode"]
    assert numbers["return/group/bad"] == pytest.approx(total["hunter_0"] + total["hunter_1"])
    assert numbers["return/group/good"] == numbers["return/prey"] == pytest.approx(total["prey"])
    assert numbers["return/team"] == pytest.approx(sum(total.values()))


def test_a_row_moves_the_parameters_of_its_group_alone():
    policy, venv = policy_of()
    seen, actions = tensors(venv.reset()), torch.as_tensor(acts(np.random.default_rng(1), 6))
    for name, rows in ROWS.items():
        values, log_prob, entropy = policy.evaluate_actions(seen, actions)
        policy.zero_grad()
        (values.flatten() + log_prob + entropy)[rows].sum().backward()
        for key, parameter in policy.named_parameters():
            is_own = key.startswith(f"groups.{name}.")
            assert bool(parameter.grad.any()) == is_own, key


def test_a_group_acts_and_learns_as_a_policy_of_its_own():
    policy, venv = policy_of()
    seen, actions = venv.reset(), acts(np.random.default_rng(1), 6)
    results = policy.evaluate_actions(tensors(seen), torch.as_tensor(actions))
    chosen, values, log_prob = policy(tensors(seen), deterministic=True)
    for (name, rows), key in zip(ROWS.items(), ("hunter", "prey"), strict=True):
        see, act = SPACES[key]
        stock = ActorCriticPolicy(see, act, lambda _: 0.0, net_arch=[8])
        stock.load_state_dict(policy.groups[name].state_dict())
        own = torch.as_tensor(seen[name][rows])
        given = actions[rows, 0] if key == "hunter" else actions[rows]
        expected = stock.evaluate_actions(own, torch.as_tensor(given))
        for one, other in zip(results, expected, strict=True):
            torch.testing.assert_close(one[rows], other)
        for one, other in zip((chosen, values, log_prob), stock(own, True), strict=True):
            one = one[rows, 0] if one.dim() > other.dim() else one[rows]
            torch.testing.assert_close(one, other.to(one.dtype))
        predicted = policy.predict({k: v[rows] for k, v in seen.items()}, deterministic=True)[0]
        alone = stock.predict(seen[name][rows], deterministic=True)[0].reshape(len(rows), -1)
        assert np.allclose(predicted[:, : alone.shape[1]], alone)


def test_statistics_are_of_a_groups_own_rows():
    config = make_config(*TASK, "normalize=true")
    venv = make_train_env(config, 0)
    try:
        venv.reset()
        rng, rows = np.random.default_rng(0), [venv.get_original_obs()]
        for _ in range(4):
            venv.step(acts(rng, 6))
            rows.append(venv.get_original_obs())
        for name, own in ROWS.items():
            seen = np.concatenate([row[name][own] for row in rows])
            assert np.allclose(venv.obs_rms[name].mean, seen.mean(axis=0), atol=1e-3)
            assert np.allclose(venv.obs_rms[name].var, seen.var(axis=0), atol=1e-2)
    finally:
        venv.close()


@pytest.mark.parametrize("is_on", [True, False])
def test_advantages_are_normalised_in_each_group(is_on):
    config = make_config(*TASK, f"algo.hyperparams.normalize_advantage={str(is_on).lower()}")
    venv = make_train_env(config, 0)
    try:
        agent = make_agent(config, venv, 0)
        agent.learn(60)
        found = agent.rollout_buffer
        of_groups = [found.advantages[found.observations["group"][..., k] == 1] for k in (0, 1)]
        means, deviations = np.array([(a.mean(), a.std()) for a in of_groups]).T
        assert np.allclose(means, 0, atol=1e-5) == is_on
        assert np.allclose(deviations, 1, atol=1e-4) == is_on
    finally:
        venv.close()


def test_the_actions_of_groups_are_stored_with_their_spaces():
    venv = worlds()
    again = decode_space(encode_space(venv.action_space))
    assert isinstance(again, GroupedActions)
    assert list(again.groups.items()) == list(venv.action_space.groups.items())
    assert again == venv.action_space
    assert (again.low.tolist(), again.high.tolist()) == ([-2, -2], [2, 1])
    nested = {"type": "groups", "spaces": [["a", encode_space(spaces.Dict({}))]]}
    for forged in (nested, {"type": "groups", "spaces": []}):
        with pytest.raises(ValueError, match="of another kind"):
            decode_space(forged)


@pytest.mark.parametrize(
    ("space", "row", "own"),
    [
        (spaces.Discrete(3), [7, 1], 2),
        (spaces.MultiDiscrete([3, 2]), [1, 5], [1, 1]),
        (spaces.MultiBinary(2), [0, 1], [0, 1]),
        (spaces.Box(-1, 1, (2, 1)), [-3, 0.5], [[-1], [0.5]]),
    ],
)
def test_actions_of_every_kind_come_out_within_their_space(space, row, own):
    actions = GroupedActions({"a": space, "b": spaces.Box(-9, 9, (4,))})
    made = actions.own("a", np.array([*row, 5, 5], np.float32))
    assert np.array_equal(made, own)
    assert space.contains(made)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["env.groups={bad: [hunter_*]}"], "prey is in none of bad"),
        (["env.groups={bad: ['*'], good: [prey]}"], "prey is in bad and good"),
        (["env.groups={all: ['*']}"], "Agents of a group need the same: make more groups"),
        (["env.groups={bad: ['*_?'], good: [prey], c: [x]}"], "c=['x'] has no agent"),
        (["env.id=support.games.Countdown", "env.groups={a: ['*']}"], "has the space Dict"),
    ],
)
def test_wrong_groups_of_a_world_are_told(words, told):
    with pytest.raises(ConfigError) as error:
        worlds(*words)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("algo=trpo", "trpo cannot train several policies"),
        ("vec_env=dummy", "vec_env=dummy has one agent"),
        ("env.kwargs.joint_observation=true", "env.kwargs.joint_observation=True with env.groups"),
        ("algo.hyperparams.use_sde=true", "use_sde=True with env.groups"),
        ("env.groups={group: [a]}", "Name groups by letters"),
        ("env.groups={a.b: [a]}", "Name groups by letters"),
        ("env.groups={a: []}", "at least one agent"),
        ("env.groups=[a]", "must be names of groups with patterns"),
        ("env.frame_stack=2", "env.frame_stack=2 with env.groups"),
        ("export.sb3_zip=true", "export.sb3_zip=True with env.groups"),
    ],
)
def test_what_does_not_go_with_groups_is_refused(word, told, tmp_path, capsys):
    assert dispatch.run("train", [*task_of([word]), f"run_dir={tmp_path / 'run'}"]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_policy_without_groups_has_none():
    config = make_config(*TASK, "env.id=support.meeting.Meeting", "env.groups=null")
    assert "groups" not in config.env.model_dump()
    venv = make_own_vec_env(config.env, 1, config.vec_env, 3)
    policy = rz.Policy(make_policy(config, venv.observation_space, venv.action_space), None,
                       maskable=False)  # fmt: skip
    with pytest.raises(ConfigError, match="all agents have one policy"):
        policy.of_group("bad")


@pytest.mark.training
def test_a_run_is_trained_evaluated_loaded_and_exported_by_group(tmp_path, capsys):
    run = tmp_path / "run"
    assert dispatch.run("train", [*TASK, "normalize=true", f"run_dir={run}"]) == 0
    assert "updates are not recorded" not in capsys.readouterr().err
    metrics = list(read_records(RunDir(run).evaluations_file))[-1]["metrics"]
    assert metrics["return/team"] == pytest.approx(
        metrics["return/group/bad"] + metrics["return/group/good"]
    )
    assert dispatch.run("evaluate", [str(run), "--episodes", "6", "--trust"]) == 0
    assert "return/group/good" in capsys.readouterr().out
    whole = rz.load_policy(run, trust=True)
    prey = whole.of_group("good")
    assert (prey.observation_space, prey.action_space) == SPACES["prey"]
    seen = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    rows = {"bad": np.zeros((4, 3), np.float32), "good": seen, "group": np.tile([0, 1], (4, 1))}
    assert np.allclose(whole.predict(rows)[0], prey.predict(seen)[0], atol=1e-6)
    with pytest.raises(ConfigError, match="Did you mean"):
        whole.of_group("god")
    for words in ([], ["--group", "good"], ["--group", "bad"]):
        command = [str(run), "--format", "torchscript", "--trust", *words]
        assert dispatch.run("export", command) == 0, capsys.readouterr().err
    assert dispatch.run("export", [str(run), "--format", "sb3", "--trust"]) == 2


@pytest.mark.training
@pytest.mark.parametrize("words", [["normalize=true"], ["algo=a2c", "env.kwargs.leaves=3"]])
def test_a_run_is_resumed_exactly(words, capsys):
    task = [w for w in TASK if "batch_size" not in w] if "algo=a2c" in words else TASK
    assert dispatch.run("verify-resume", [*task, *words]) == 0
    assert "identical" in capsys.readouterr().out
