"""A policy in C decides as the policy itself, for every algorithm and kind of space."""

import re
import subprocess
from functools import cache

import numpy as np
import pytest
import torch
from support.policies import ARM, EXPORTED, FLAT, VARIANTS, random_policy

from rlzoo_plus.deploy import c_operators
from rlzoo_plus.deploy.c_export import build, c_runner, decisions, export_c, find_compiler
from rlzoo_plus.deploy.c_source import write_c
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.graph import PolicyGraph, write_onnx
from rlzoo_plus.export.parity import compare, made_up
from rlzoo_plus.export.signature import make_signature

pytest.importorskip("onnxscript")
COMPILER = find_compiler()
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
FAST = ("ppo-normalized", "recurrent_ppo-gsde", "her-normalized")
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic")
OTHERS = sorted(VARIANTS.keys() - {*FAST})
FRAMES = [
    ("ppo-normalized", 3),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (("sac-attention-numbers", 3), ("ppo-attention-frames", 2), ("ppo-image", 3))
    ),
]
ACTIVATIONS = ("elu", "leaky_relu", "gelu", "silu", "selu", "mish")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


@cache
def exported(name):
    """Return a policy, its signature and its ONNX file of one observation."""
    policy, _ = random_policy(name)
    signature = make_signature(policy)
    return policy, signature, write_onnx(PolicyGraph(policy, signature), {}, batch=1)


def in_c(name, folder, frames=1, **facts):
    """Return the file of a policy, what runs it, and how it compares with the policy."""
    policy, signature, data = exported(name)
    recording = made_up(policy, signature)
    cases = decisions(policy, signature, recording, frames)
    source = write_c(data, signature, frames, facts, cases)
    file = folder / "policy.c"
    file.write_text(source.text)
    library = build(COMPILER, file, *STRICT, "-shared", "-fPIC")
    run = c_runner(source, signature, frames, library)
    return file, run, compare(policy, signature, run, recording)


def own_test(file):
    """Return the largest difference that the file itself finds, in a program without Python."""
    program = build(COMPILER, file, "-DPOLICY_TEST", "-fsanitize=address,undefined")
    out = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    return float(re.search(r"difference (\S+)", out)[1])


@needs_compiler
@pytest.mark.parametrize(
    "name",
    [*FAST, *(pytest.param(n, marks=pytest.mark.slow) for n in sorted({*VARIANTS} - {*FAST}))],
)
def test_the_file_decides_as_the_policy(name, tmp_path):
    file, _, parity = in_c(name, tmp_path)
    assert parity.holds, f"{name}: {parity}"
    assert own_test(file) < 1e-4


def test_every_algorithm_is_tried():
    assert {algo for algo, *_ in VARIANTS.values()} == set(EXPORTED)


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_each_activation_is_known(activation, tmp_path, monkeypatch):
    asked = (f"network.activation={activation}",)
    monkeypatch.setitem(VARIANTS, activation, ("ppo", FLAT, ARM, True, asked))
    assert in_c(activation, tmp_path)[2].holds


@needs_compiler
@pytest.mark.parametrize(("name", "frames"), FRAMES)
def test_frames_are_stacked_inside(name, frames, tmp_path):
    file, _, parity = in_c(name, tmp_path, frames)
    assert parity.holds, parity
    assert own_test(file) < 1e-4


@needs_compiler
def test_two_policies_side_by_side_keep_their_own_state(tmp_path):
    """A `policy` is all that a decision changes: nothing else is kept."""
    file, *_ = in_c("recurrent_ppo-gsde", tmp_path)
    listed = subprocess.run(["nm", file.with_suffix(".so")], capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("there is no nm")
    changeable = re.findall(r" [bBdD] (?!_|completed)(\w+)", listed.stdout)
    assert changeable == []


@needs_compiler
def test_a_comment_cannot_be_ended_by_what_the_run_says(tmp_path):
    text = "*/ int main(void) { return 1; } /* ??/ \\"
    file, _, parity = in_c(
        "ppo-normalized", tmp_path, algorithm=text, environment=text, wrappers=text
    )
    assert parity.holds
    assert own_test(file) < 1e-4


@needs_compiler
def test_actions_that_are_not_a_number_stay_so(tmp_path):
    policy, signature, _ = exported("ppo-normalized")
    _, run, _ = in_c("ppo-normalized", tmp_path)
    inputs = made_up(policy, signature).part(0, 1)
    inputs["observation"][:] = np.nan
    assert np.isnan(run(**inputs)[0]).any()


def test_an_operator_without_a_translation_is_named(monkeypatch):
    monkeypatch.delitem(c_operators._OPERATORS, "Tanh")
    _, signature, data = exported("ppo-normalized")
    with pytest.raises(ConfigError, match="its operator Tanh has no translation"):
        write_c(data, signature, 1, {})


@needs_compiler
def test_a_policy_of_64_by_64_is_small_and_timed(tmp_path, monkeypatch):
    monkeypatch.setitem(VARIANTS, "usual", ("ppo", FLAT, ARM, True, ("network.net_arch=[64, 64]",)))
    policy, config = random_policy("usual")
    made = export_c(policy, config, tmp_path / "policy.c", {"step": "0"})
    assert made.parity.holds
    assert made.bytes < 50_000
    assert made.slowest_us > 0
