"""Runs are exported as they are served, and act as they do."""

import json
from pathlib import Path

import numpy as np
import pytest
from support.serving import Server, say, write_policy

import rlzoo_plus
from rlzoo_plus.deploy.bundle_export import write_deployed
from rlzoo_plus.policies.values import Values
from rlzoo_plus.serving.served_policy import ServedPolicy

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cartpole_bullet", "a1_walk"])
def test_a_served_run_acts_as_load_policy(name):
    triton = pytest.importorskip("tritonclient.http")
    run = ROOT / "trained" / name
    policy = rlzoo_plus.load_policy(run)
    space = policy.network.observation_space
    rows = np.random.default_rng(0).normal(size=(20, *space.shape)).astype(np.float32)
    rows = np.clip(rows, space.low, space.high)
    expected = policy.predict(rows)[0]
    with Server(run) as server:
        socket, hello = server.connect()
        client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
        kind = hello["inputs"][0]["datatype"]
        given = triton.InferInput("observation", list(rows.shape), kind)
        given.set_data_from_numpy(rows.astype(triton.triton_to_np_dtype(kind)))
        made = client.infer(hello["name"], [given]).as_numpy("action")
        said = [say(socket, observation=row.tolist())["action"] for row in rows]
        asked = server.post("/invocations", {"instances": rows.tolist()})[1]["predictions"]
    for other in (made, said, [answer["action"] for answer in asked]):
        np.testing.assert_allclose(other, expected, rtol=0, atol=1e-6)


def test_a_folder_that_decides_otherwise_than_it_did_is_not_served(tmp_path):
    folder = write_policy(tmp_path / "tiny")
    about = json.loads((folder / "deploy.json").read_text())
    about["examples"] = [{"observation": [1.0, 2.0, 3.0], "action": [6.0, 7.0]}]
    (folder / "deploy.json").write_text(json.dumps(about))
    with pytest.raises(rlzoo_plus.ConfigError, match="decides otherwise"):
        ServedPolicy(folder, "tiny", "1")


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "object"},
        {"dtype": "no type"},
        {"shape": [1, 10**9]},
        {"shape": [1, -3]},
        {"shape": [1, "x"]},
        {"shape": 3},
        {"low": [0.0]},
        {"name": None},
    ],
)
def test_a_description_from_elsewhere_is_checked(tmp_path, change):
    folder = write_policy(tmp_path / "tiny")
    about = json.loads((folder / "deploy.json").read_text())
    about["policy"]["inputs"][0] |= change
    (folder / "deploy.json").write_text(json.dumps(about))
    with pytest.raises(rlzoo_plus.ConfigError, match="cannot be served"):
        ServedPolicy(folder, "tiny", "1")


@pytest.mark.slow
def test_the_value_of_the_graph_is_that_of_the_critic(tmp_path):
    run = rlzoo_plus.Run.open(ROOT / "trained" / "kuka_reach_mujoco")
    folder = tmp_path / "kuka"
    write_deployed(run.policy(), run.config, folder, {}, with_value=True)
    served = ServedPolicy(folder, "kuka", "1")
    runtime, values = served.episode(), Values(run.policy())
    for example in served.about["examples"]:
        seen = example["observation"]
        action = served.act(runtime, served.of_json(seen, None))
        rows = {key: np.array([value], np.float32) for key, value in seen.items()}
        assert runtime.value == pytest.approx(values(rows, action[None], np.ones(1, bool))[0], 1e-4)
