"""An exported policy acts as the policy itself, for every algorithm and kind of space."""

import json

import numpy as np
import pytest
import torch
from support.policies import EXPORTED, VARIANTS, random_policy

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.graph import (
    PolicyGraph,
    onnx_runner,
    torchscript_runner,
    write_onnx,
    write_torchscript,
)
from rlzoo_plus.export.parity import compare, made_up
from rlzoo_plus.export.signature import make_signature, metadata

LIMIT = 1e-5
FAST = ("ppo-normalized", "recurrent_ppo-gsde", "sac-dict", "maskable_ppo-choices")
# Each algorithm as it is after normalisation, too.
OTHERS = sorted(VARIANTS.keys() - {*FAST, *EXPORTED})


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def _onnx(policy):
    signature = make_signature(policy)
    facts = metadata(signature, policy, {"step": "3"})
    return signature, write_onnx(PolicyGraph(policy, signature), facts)


def _torchscript(policy):
    signature = make_signature(policy)
    data = write_torchscript(PolicyGraph(policy, signature), "{}")
    return signature, torchscript_runner(data, signature)


def _check(policy, signature, run, name):
    recording = made_up(policy, signature)
    parity = compare(policy, signature, run, recording)
    print(f"PARITY {name} {parity.difference:.1e}")
    assert parity.difference < LIMIT
    assert parity.count == 256
    actions = run(**recording.inputs)[0]
    assert len(np.unique(actions.reshape(256, -1), axis=0)) > 1, "it always does the same"


@pytest.mark.parametrize("name", VARIANTS)
def test_a_torchscript_file_acts_as_the_policy(name):
    policy, _ = random_policy(name)
    _check(policy, *_torchscript(policy), name)


@pytest.mark.parametrize(
    "name", [*FAST, *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)]
)
def test_an_onnx_file_acts_as_the_policy(name):
    pytest.importorskip("onnxscript")
    policy, _ = random_policy(name)
    signature, data = _onnx(policy)
    _check(policy, signature, onnx_runner(data), name)


def test_every_algorithm_is_tried_with_and_without_normalisation():
    tried = {(algo, normalized) for algo, _, _, normalized, _ in VARIANTS.values()}
    assert tried == {(algo, normalized) for algo in EXPORTED for normalized in (True, False)}


def test_an_onnx_file_says_what_goes_in_and_out():
    onnx = pytest.importorskip("onnx")
    policy, _ = random_policy("ppo-normalized")
    model = onnx.load_from_string(_onnx(policy)[1])
    facts = {item.key: item.value for item in model.metadata_props}
    assert json.loads(facts["inputs"])[0]["name"] == "observation"
    assert json.loads(facts["action"])["high"] == [1.0, 5.0]
    assert json.loads(facts["normalization"])["applied_inside"] is True
    assert [value.name for value in model.graph.output] == ["action"]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_actions_beyond_the_bounds_are_clipped_inside_the_file():
    policy, _ = random_policy("ppo-normalized")
    with torch.no_grad():
        policy.network.action_net.bias.add_(100.0)
    signature, run = _torchscript(policy)
    np.testing.assert_array_equal(run(**made_up(policy, signature).part(0, 2))[0], [[1, 5], [1, 5]])


def test_a_key_that_is_called_as_an_input_of_ours_is_renamed():
    policy, _ = random_policy("maskable_ppo-dict")
    names = [port.name for port in make_signature(policy).inputs]
    assert names == [
        "zeta", "kind", "observation_action_masks", "switches", "picture", "action_masks"
    ]  # fmt: skip


def test_other_weights_and_outputs_that_are_no_numbers_are_noticed():
    policy, _ = random_policy("ppo-normalized")
    signature, other = _torchscript(random_policy("ppo-normalized", seed=1)[0])

    def broken(**inputs):
        return [np.full((len(inputs["observation"]), 2), np.nan, np.float32)]

    for run in (other, broken):
        assert not compare(policy, signature, run, made_up(policy, signature)).holds


def test_a_policy_whose_layers_are_not_known_cannot_be_exported():
    policy, _ = random_policy("ppo")
    signature = make_signature(policy)
    stranger = torch.nn.Linear(3, 2)
    stranger.observation_space = policy.network.observation_space
    stranger.normalize_images = True
    stranger.features_extractor = torch.nn.Identity()
    policy.network = stranger
    with pytest.raises(ConfigError, match="--format sb3"):
        PolicyGraph(policy, signature)
