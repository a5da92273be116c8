"""Every algorithm's policy is served, and decides as `load_policy` does; JAX ones are refused."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from support.libraries import is_of_sbx
from support.policies import ARM, CHOICE, DISCRETE, FLAT, GOAL, VARIANTS, random_policy

import rlzoo_plus as rz
from rlzoo_plus.agents.policy import save_weights
from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.deploy.bundle_export import write_deployed
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.parity import made_up
from rlzoo_plus.export.signature import make_signature
from rlzoo_plus.export.writing import check_backend
from rlzoo_plus.serving.served_policy import ServedPolicy

pytest.importorskip("onnxscript")
ROWS = 20
TEAM = spaces.Dict(
    observation=FLAT, team=spaces.Box(-1, 1, (2, 3), np.float32), present=spaces.MultiBinary(2)
)
FAST = ("ppo", "recurrent_ppo", "bc_dqn")
TORCH = [algo for algo in ALGORITHMS if not is_of_sbx(algo)]


@pytest.mark.parametrize(
    "algo", [pytest.param(a, marks=() if a in FAST else pytest.mark.slow) for a in TORCH]
)
def test_a_served_policy_decides_as_load_policy(algo, tmp_path, monkeypatch):
    torch.set_num_threads(1)
    spec = ALGORITHMS[algo]
    data = ("teacher=x" if spec.is_taught else "data=x",) if spec.clones else ()
    data = ("vec_env=pettingzoo",) if algo == "mappo" else data
    seen = {"her": GOAL, "mappo": TEAM}.get(algo, FLAT)
    does = CHOICE if (spec.clones or algo) in DISCRETE else ARM
    monkeypatch.setitem(VARIANTS, algo, (algo, seen, does, True, data))
    policy, config = random_policy(algo)
    weights = {name: value.numpy().copy() for name, value in policy.network.state_dict().items()}
    save_weights(tmp_path / "best", policy.network, config, {"step": 0}, weights, policy.normalizer)
    loaded = rz.load_policy(tmp_path / "best")
    write_deployed(loaded, config, tmp_path / "robot", {})
    served = ServedPolicy(tmp_path / "robot", algo, "1")
    # Made up, and not always within the bounds.
    served.observations = [replace(port, low=None, high=None) for port in served.observations]
    recorded = made_up(loaded, make_signature(loaded)).inputs
    runtime, state, made, expected = served.episode(), None, [], []
    for row in range(ROWS):
        given = {port.key: recorded[port.name][row] for port in served.observations}
        is_dict = None not in given
        told = {key: value.tolist() for key, value in given.items()}
        masks = recorded["action_masks"][row] if served.masks is not None else None
        arrays = served.of_json(
            told if is_dict else told[None], None if masks is None else masks.tolist()
        )
        made.append(served.act(runtime, arrays))
        batch = {key: value[None] for key, value in given.items()}
        mask = None if masks is None else masks[None]
        starts = np.array([row == 0])
        action, state = loaded.predict(batch if is_dict else batch[None], state, starts, True, mask)
        expected.append(action[0])
    np.testing.assert_allclose(made, expected, rtol=1e-6, atol=1e-6)
    assert len(np.unique(np.reshape(made, (ROWS, -1)), axis=0)) > 1


def test_every_algorithm_that_has_a_file_is_tried_or_refused():
    files = (Path(__file__).parents[2] / "conf" / "algo").glob("*.yaml")
    assert {file.stem for file in files} == {*ALGORITHMS}
    for algo in ALGORITHMS.keys() - {*TORCH}:
        config = SimpleNamespace(algo=SimpleNamespace(name=algo))
        with pytest.raises(ConfigError, match="computes with JAX"):
            check_backend(config, "leapp")
