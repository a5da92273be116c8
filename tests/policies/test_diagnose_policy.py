"""`diagnose`: planted flaws are found, and a sound policy is not blamed."""

import json

import numpy as np
import pytest
import torch
from gymnasium import spaces
from PIL import Image
from stable_baselines3.common.policies import ActorCriticPolicy
from support.training import tiny_config, train_run

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.policies.attribution import outputs, saliency
from rlzoo_plus.policies.audit import audit
from rlzoo_plus.policies.calibration import calibrate
from rlzoo_plus.policies.episode import Episode
from rlzoo_plus.policies.units import watch_units

HACKABLE = "env.packages=[support.hackable_envs]"


def policy_of(n_entries, activation=torch.nn.Tanh, actions=None):
    torch.manual_seed(0)
    space = spaces.Box(-np.inf, np.inf, (n_entries,), np.float32)
    actions = actions or spaces.Box(-1, 1, (1,), np.float32)
    options = {"net_arch": [16], "activation_fn": activation}
    network = ActorCriticPolicy(space, actions, lambda _: 1e-3, **options)
    return Policy(network, None, maskable=False)


def test_an_entry_that_nothing_depends_on_has_the_lowest_saliency():
    policy = policy_of(4)
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(256, 4)).astype(np.float32)
    inputs = torch.from_numpy(seen)
    wanted = 0.8 * inputs[:, :1] - 0.5 * inputs[:, 1:2] + 0.3 * inputs[:, 3:]
    adam = torch.optim.Adam(policy.network.parameters(), lr=1e-2)
    for _ in range(150):
        adam.zero_grad()
        ((outputs(policy, inputs) - wanted) ** 2).mean().backward()
        adam.step()
    found = saliency(policy, seen)
    shares = found.entries()
    assert shares.sum() == pytest.approx(1.0)
    assert np.argsort(-shares).tolist() == [0, 1, 3, 2]
    # Integrated gradients are complete.
    assert found.residual < 0.02


def test_attributions_of_a_linear_function_are_its_weights_times_the_difference():
    policy = policy_of(3, torch.nn.Identity)
    first, last = policy.network.mlp_extractor.policy_net[0], policy.network.action_net
    with torch.no_grad():
        first.bias.zero_()
        last.bias.zero_()
        weight = last.weight @ first.weight
    seen = np.array([[1, 0, 0], [-1, 0, 2]], np.float32)
    found = saliency(policy, seen)
    expected = np.abs(weight.numpy()[0] * (seen - seen.mean(axis=0))).mean(axis=0)
    np.testing.assert_allclose(found.parts[""], expected, rtol=1e-4, atol=1e-8)


def test_dead_and_saturated_units_are_counted():
    policy = policy_of(3, torch.nn.ReLU)
    with torch.no_grad():
        policy.network.mlp_extractor.policy_net[0].bias[:5] = -100.0
        policy.network.mlp_extractor.policy_net[0].bias[5:7] = 100.0
    inputs = torch.randn(200, 3)
    (layer,) = watch_units(policy.network, lambda: outputs(policy, inputs))
    assert (layer.kind, layer.n_units, layer.n_dead, layer.n_always) == ("ReLU", 16, 5, 2)
    policy = policy_of(3, torch.nn.Tanh)
    with torch.no_grad():
        policy.network.mlp_extractor.policy_net[0].bias[:4] = 50.0
    (layer,) = watch_units(policy.network, lambda: outputs(policy, inputs))
    assert (layer.kind, layer.n_dead) == ("Tanh", 4)


def episode(rewards, values=None, *, terms=None, success=None, terminated=True):
    rewards = np.asarray(rewards, float)
    return Episode(
        seed=0, actions=np.zeros((len(rewards), 1)), rewards=rewards, terms=terms or {},
        values=values, digests=np.zeros(len(rewards), np.uint64), value_kind="V",
        last_observation=None, end_reason="x", terminated=terminated, success=success,
    )  # fmt: skip


def discounted(rewards, gamma, after=0.0):
    found = []
    for reward in rewards[::-1]:
        after = reward + gamma * after
        found.append(after)
    return np.array(found[::-1])


@pytest.mark.parametrize("scale", [1.0, 0.05])
def test_a_critic_that_knows_the_returns_has_no_bias(scale):
    rng = np.random.default_rng(0)
    rewards = [rng.normal(size=20) + 1.0 for _ in range(4)]
    played = [episode(r, scale * discounted(r, 0.9)) for r in rewards[:2]]
    # Cut off by a limit: what would have come is the value of the last observation.
    cut = [episode(r, scale * discounted(r, 0.9, 7.0), terminated=False) for r in rewards[2:]]
    after = [0.0, 0.0, 7.0 * scale, 7.0 * scale]
    found = calibrate([*played, *cut], after, 0.9, is_scaled=scale != 1.0)
    assert found.scale == pytest.approx(scale, rel=1e-3)
    assert found.bias == pytest.approx(0.0, abs=1e-2)
    assert found.correlation == pytest.approx(1.0, abs=1e-6)
    assert found.td_error == pytest.approx(0.0, abs=1e-2)


def test_the_bias_of_a_critic_that_promises_too_much_is_measured():
    rewards = np.ones(10)
    found = calibrate([episode(rewards, discounted(rewards, 0.5) + 3.0)], [0.0], 0.5)
    assert found.bias == pytest.approx(3.0)
    assert found.td_error > 1.0


def paid(total, success, **terms):
    return episode([total], terms={k: np.array([v]) for k, v in terms.items()}, success=success)


def texts(findings, *, warnings):
    return [f.text for f in findings if f.is_warning or not warnings]


def test_a_reward_that_pays_for_doing_nothing_is_named_with_its_term():
    policy = [paid(10.0, True, idle=4.0, progress=6.0)] * 3
    others = {
        "nothing": [paid(9.0, False, idle=9.0, progress=0.0)] * 3,
        "random": [paid(2.0, False, idle=1.0, progress=1.0)] * 3,
    }
    found = texts(audit(policy, others), warnings=True)
    assert any("doing nothing earns 9" in t and "the term idle" in t for t in found)
    assert any("the term idle correlates" not in t for t in found)
    assert not any("random" in text for text in found)


def test_a_high_return_without_success_is_named():
    policy = [paid(10.0, True, hop=1.0, goal=9.0), paid(30.0, False, hop=30.0, goal=0.0)]
    found = texts(audit(policy, {"random": [paid(0.0, False, hop=0.0, goal=0.0)]}), warnings=True)
    assert any("1 of 2 episodes without success" in t and "the term hop" in t for t in found)


def test_a_sound_reward_is_not_blamed():
    policy = [paid(10.0 + k, True, goal=10.0 + k) for k in range(4)]
    others = {"nothing": [paid(1.0, False, goal=1.0)], "random": [paid(2.0, False, goal=2.0)]}
    assert texts(audit(policy, others), warnings=True) == []


def test_without_success_the_audit_says_so():
    found = texts(audit([episode([1.0])], {"random": [episode([0.0])]}), warnings=False)
    assert any("reports no success" in text for text in found)


@pytest.mark.training
def test_the_planted_hack_of_an_environment_is_named(tmp_path, answer):
    config = tiny_config("ppo", "tests/PaysForIdling-v0", HACKABLE)
    path = str(train_run(tmp_path / "run", config)[0].path)
    words = ("--trust", "--episodes", "4")
    code, text = answer("diagnose", path, *words, "--picture", "bars.png")
    assert code == 0, text
    warnings = [line for line in text.splitlines() if line.startswith("!")]
    assert any("doing nothing earns 20" in w and "the term idle" in w for w in warnings), text
    assert any("idle correlates -" in line for line in warnings), text
    with Image.open("bars.png") as image:
        assert image.size[0] > 500
    code, text = answer("diagnose", path, *words, "--json")
    topics = {row["topic"] for row in json.loads(text)["findings"]}
    assert topics == {"value", "actions", "units", "saliency", "reward"}


@pytest.mark.training
@pytest.mark.slow
def test_a_trained_policy_depends_least_on_the_useless_entry(tmp_path, answer):
    words = ("n_timesteps=8192", "algo.hyperparams.learning_rate=3e-3")
    steps = ("algo.hyperparams.n_steps=256", "algo.hyperparams.batch_size=64")
    config = tiny_config("ppo", "tests/HasAUselessEntry-v0", HACKABLE, *words, *steps)
    path = str(train_run(tmp_path / "run", config)[0].path)
    code, text = answer("diagnose", path, "--trust", "--json")
    assert code == 0, text
    rows = json.loads(text)["findings"]
    least = next(row for row in rows if "least" in row["text"])
    assert least["data"]["entry"] == "noise"
    assert least["data"]["share"] < 0.15


ALGORITHMS = [
    ("recurrent_ppo", "tests/TinyMemory-v0"), ("recurrent_sac", "tests/TinyReach-v0"),
    ("maskable_ppo", "tests/TinyMasked-v0"),
    ("maskable_ppo", "tests/TinyLevers-v0"), ("a2c", "tests/TinyDict-v0"),
    ("trpo", "tests/TinyImage-v0"), ("sac", "tests/TinyReach-v0"), ("td3", "tests/TinyReach-v0"),
    ("ddpg", "tests/TinyReach-v0"), ("tqc", "tests/TinyReach-v0"), ("her", "tests/TinyGoal-v0"),
    ("crossq", "tests/TinyReach-v0"), ("ars", "tests/TinyReach-v0"),
    ("dqn", "tests/TinyReach-v0"), ("qrdqn", "tests/TinyReach-v0"),
    ("sac_discrete", "tests/TinyReach-v0"),
]  # fmt: skip


@pytest.mark.training
@pytest.mark.slow
@pytest.mark.parametrize(("algo", "env"), ALGORITHMS)
def test_every_algorithm_is_diagnosed(tmp_path, answer, algo, env):
    is_discrete = algo in ("dqn", "qrdqn", "sac_discrete")
    config = tiny_config(algo, env, *["env.kwargs.discrete=true"] * is_discrete)
    path = str(train_run(tmp_path / "run", config)[0].path)
    code, text = answer("diagnose", path, "--trust", "--episodes", "2", "--json")
    assert code == 0, text
    found = json.loads(text)["findings"]
    complete = [row for row in found if "residual" in row["data"]]
    assert complete
    assert complete[0]["data"]["residual"] < 0.2
    if is_discrete:
        assert "Q correlates" in text
        assert "always 2 earns" in text
    if env == "tests/TinyImage-v0":
        words = ("--trust", "--episodes", "1", "--picture", "heat.png")
        assert answer("diagnose", path, *words)[0] == 0
