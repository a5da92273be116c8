"""The exported zip opens in stock Stable-Baselines3 and predicts the same."""

import io
import json
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from support.policies import VARIANTS, random_policy
from support.training import tiny_config

from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.export.parity import compare, made_up
from rlzoo_plus.export.sb3_format import sb3_runner, write_sb3
from rlzoo_plus.export.signature import make_signature

NAMES = [n for n in VARIANTS if n in ALGORITHMS or n.partition("-")[2] in ("normalized", "gsde")]


@pytest.mark.parametrize("name", [*NAMES, "ppo-image", "ppo-dict", "ars-linear"])
def test_a_zip_opens_in_the_stock_class_and_predicts_the_same(name):
    torch.set_num_threads(1)
    policy, config = random_policy(name)
    signature = make_signature(policy)
    data, statistics = write_sb3(policy, config, 7)
    assert (statistics is None) == (policy.normalizer is None)
    run = sb3_runner(data, statistics, config, policy, signature)
    assert compare(policy, signature, run, made_up(policy, signature)).difference < 1e-5


def test_a_zip_needs_nothing_of_this_package(tmp_path):
    policy, _ = random_policy("ppo-normalized")
    config = tiny_config("ppo", "tests/TinyReach-v0", "algo.hyperparams.learning_rate=lin_3e-4")
    data, statistics = write_sb3(policy, config, 7)
    (tmp_path / "model.zip").write_bytes(data)
    (tmp_path / "vecnormalize.pkl").write_bytes(statistics)
    code = (
        "import sys, pickle\n"
        "sys.modules['rlzoo_plus'] = None\n"
        "from stable_baselines3 import PPO\n"
        "model = PPO.load('model.zip', device='cpu')\n"
        "normalize = pickle.load(open('vecnormalize.pkl', 'rb'))\n"
        "assert type(model) is PPO and model.num_timesteps == 7\n"
        "assert type(normalize).__name__ == 'VecNormalize' and normalize.clip_obs == 5.0\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)


def test_the_rewards_of_exported_statistics_are_left_alone():
    policy, config = random_policy("ppo-normalized")
    normalize = pickle.loads(write_sb3(policy, config, 7)[1])  # noqa: S301 - our own bytes
    assert not normalize.training
    assert not normalize.norm_reward
    np.testing.assert_array_equal(normalize.obs_rms.mean, policy.normalizer.mean[""])


def test_the_size_of_a_replay_buffer_is_recorded_but_not_allocated():
    policy, _ = random_policy("sac")
    size = "algo.hyperparams.buffer_size=1000000000"
    data, _ = write_sb3(policy, tiny_config("sac", "tests/TinyReach-v0", size), 7)
    recorded = json.loads(zipfile.ZipFile(io.BytesIO(data)).read("data"))
    assert recorded["buffer_size"] == 1_000_000_000
