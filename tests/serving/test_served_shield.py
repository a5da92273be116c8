"""A served policy keeps the limits of its environment's shield, as the simulation does."""

import json
from contextlib import closing

import numpy as np
import pytest
from support.serving import Server, say, until, write_policy
from support.shields import HUSKY, LIMITS, changed_policy, facts, made, shield_of_a_car, state

import rlzoo_plus as rz
from rlzoo_plus.commands import dispatch
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.serving.audit_reading import query
from rlzoo_plus.serving.request_checks import Refused
from rlzoo_plus.serving.served_policy import ServedPolicy
from rlzoo_plus.serving.served_shield import ServedShield

INVOKE, INFER = "/invocations", "/v2/models/tiny/infer"
BOX = [[0.05, -0.75, 0.1], [0.8, 0.75, 0.85]]
ROBOTS = {
    "torque": ("robots/CartPoleSwingUp-v0", {"joint_margin": 0.1, "max_torque": 5.0}, {}),
    "mixed wheels": (HUSKY, {}, {"max_action_rate": 0.8}),
    "wheels and steering": ("robots/RacecarDrive-v1", {"joint_margin": 0.05}, {}),
    "relative positions": ("robots/KukaReach-v1", {"joint_margin": 0.1, "workspace": BOX}, {}),
    "choices": ("robots/CartPoleBalance-v0", {"joint_margin": 0.1}, {}),
}


def state_of(env, columns):
    return np.stack([np.asarray(x)[columns] for x in env.state[:2]], axis=-1)


@pytest.mark.parametrize("name", ROBOTS)
def test_commands_are_those_of_the_simulation(name):
    env_id, more, kwargs = ROBOTS[name]
    with closing(made(env_id, more, **kwargs)) as env:
        shield = ServedShield(facts(env, kwargs.get("max_action_rate"))["shield"])
        assert env.state._fields[:2] == ("joint_position", "joint_velocity")
        told, advance = [], env._advance
        env._advance = lambda targets: (told.append(targets), advance(targets))
        chance, changed = np.random.default_rng(0), set()
        for _ in range(3):
            env.reset(seed=int(chance.integers(1000)))
            memory = shield.begin()
            for step in range(60):
                if step % 15 == 0:
                    action = env.action_space.sample()
                    if env.discrete_actions is None:
                        action = np.sign(action)
                state = state_of(env, env.conditions.columns)
                found, changes = shield.commands(memory, action, state)
                *_, terminated, truncated, info = env.step(action)
                flat = [x for kind, own in found.items() for x in own.values()]
                order = [told[-1][at] for at in places(shield)]
                np.testing.assert_allclose(flat, order, rtol=1e-12, atol=1e-12)
                assert changes.keys() == info.get("shield", {}).keys()
                changed |= changes.keys()
                if terminated or truncated:
                    break
        assert "action_rate" in changed
        assert len(changed) >= 2


def places(shield):
    """Return where the simulation's row of targets has what an answer has."""
    kinds = [kind for kind, _ in shield._places]
    return [at for one in shield.outputs for at, kind in enumerate(kinds) if kind == one]


@pytest.mark.parametrize(
    ("env_id", "kwargs", "why"),
    [
        ("robots/FrankaPush-v0", {}, "EndEffectorDrive"),
        ("robots/A1Walk-v1", {}, "TrotDrive"),
        ("robots/A1Walk-v1", {"gait": "none"}, "SmoothedDrive"),
    ],
)
def test_a_shield_that_cannot_be_served_is_named(env_id, kwargs, why, tmp_path, capsys):
    with closing(made(env_id, **kwargs)) as env:
        found = facts(env)
    assert found["shield"] is None
    assert why in found["no_shield_because"]
    folder = changed_policy(tmp_path / "tiny", **found)
    with pytest.raises(ConfigError, match=f"{why}.*--no-shield"):
        ServedPolicy(folder, "tiny", "1")
    assert ServedPolicy(folder, "tiny", "1", is_shielded=False).shield is None
    assert dispatch.run("serve", [str(folder), "--port", "0"]) == 2
    assert "--no-shield" in capsys.readouterr().err


def test_a_folder_from_before_shields_were_written_is_not_served_without_one(tmp_path):
    folder = changed_policy(tmp_path / "tiny", trained_with={"safety": LIMITS})
    with pytest.raises(ConfigError, match="deploy it again"):
        ServedPolicy(folder, "tiny", "1")


@pytest.fixture(scope="module")
def shield():
    return shield_of_a_car()


@pytest.fixture(scope="module")
def server(tmp_path_factory, shield):
    folder = tmp_path_factory.mktemp("shielded")
    words = (changed_policy(folder / "tiny", shield=shield), "--audit", folder / "audit")
    with Server(*words) as made:
        made.audit = folder / "audit"
        yield made
        assert "Traceback" not in made.output
        assert made.end() == 0


def tensor(shield, rows=1, **more):
    n = len(shield["joints"])
    given = {"observation": np.ones((rows, 3)), "joint_state": np.zeros((rows, n, 2))}
    inputs = [
        {"name": k, "shape": list(v.shape), "datatype": "FP64", "data": v.ravel().tolist()}
        for k, v in given.items()
    ]
    return {"inputs": inputs, "parameters": {"sequence_id": 7, "sequence_start": True}, **more}


def test_an_answer_has_the_commands_and_what_was_changed(server, shield):
    socket, hello = server.connect()
    assert hello["parameters"]["joints"] == shield["joints"]
    assert set(hello["parameters"]["shield"]) == {"velocity", "action_rate"}
    # Half of full speed ahead at first, since the action may change by half a step.
    first = say(socket, observation=[1, 1, 1], state=state(shield), reset=True)
    assert (first["source"], first["reason"]) == ("shield", "action_rate, velocity")
    assert set(first["shield"]) == {"action_rate", "velocity"}
    wheels = first["commands"]["joint_velocity"]
    assert list(wheels) == shield["drive"]["names"]
    assert 0.0 < max(wheels.values()) <= 1.0
    calm = say(socket, observation=[-1, 0, 0], state=state(shield), reset=True)
    assert calm["action"] == [-1, 1]
    assert calm["source"] == "shield"
    assert server.post("/v1/override", {"word": "action", "action": [1, 0]})[0] == 200
    # What people say is done as they say it.
    by_hand = say(socket, observation=[1, 1, 1], state=state(shield))
    assert (by_hand["source"], by_hand["shield"]) == ("override", {})
    assert min(by_hand["commands"]["joint_velocity"].values()) > 1.0
    server.post("/v1/override", {"word": "release"})
    assert 'decisions_total{version="' in server.metrics()
    assert 'source="shield"' in server.metrics()
    assert 'rlzoo_plus_shielded_total{limit="velocity"}' in server.metrics()
    until(lambda: len(list(query(server.audit, {"source": "override"}, 0, np.inf))) == 1)
    line = next(iter(query(server.audit, {"source": "shield"}, 0, np.inf)))
    assert line["shield"] == first["shield"]
    assert line["commands"] == first["commands"]


def test_every_way_to_ask_is_shielded(server, shield):
    asked = {"observation": [1, 1, 1], "state": state(shield), "session": "a", "reset": True}
    by_json = server.post(INVOKE, asked)[1]
    status, by_tensor = server.post(INFER, tensor(shield))
    assert status == 200, by_tensor
    outputs = {one["name"]: one["data"] for one in by_tensor["outputs"]}
    assert list(outputs) == ["action", "joint_velocity"]
    assert outputs["joint_velocity"] == list(by_json["commands"]["joint_velocity"].values())
    assert by_tensor["parameters"]["shield_velocity"] == by_json["shield"]["velocity"]
    wanted = [{"name": "joint_velocity", "parameters": {"binary_data": True}}]
    code, headers, data = server.ask("POST", INFER, tensor(shield, outputs=wanted))
    size = int(headers["inference-header-content-length"])
    assert code == 200
    assert np.frombuffer(data[size:], "<f8").tolist() == outputs["joint_velocity"]


def test_tritonclient_sends_the_state_of_the_joints(server, shield):
    triton = pytest.importorskip("tritonclient.http")
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    about = client.get_model_metadata("tiny")
    assert [one["name"] for one in about["inputs"]] == ["observation", "joint_state"]
    given = []
    for one, array in zip(
        about["inputs"],
        (np.ones((1, 3), np.float32), np.zeros((1, len(shield["joints"]), 2))),
        strict=True,
    ):
        given.append(triton.InferInput(one["name"], list(array.shape), one["datatype"]))
        given[-1].set_data_from_numpy(array)
    made = client.infer("tiny", given, sequence_id=3, sequence_start=True)
    assert made.as_numpy("joint_velocity").shape == (1, 4)
    assert np.abs(made.as_numpy("joint_velocity")).max() <= 1.0


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (None, "state"),
        (5, "state"),
        ([], "state"),
        ({}, "state."),
        ({"no such joint": [0, 0]}, "state.no such joint"),
        ({"\x1b[31m": [0, 0]}, "state.\\x1b[31m"),
        ([0, 0, 0], "wheel"),
        ([0], "wheel"),
        (0.0, "wheel"),
        ([0, "1"], "wheel"),
        ([0, True], "wheel"),
        ([0, None], "wheel"),
        ([0, float("nan")], "wheel"),
        ([float("inf"), 0], "wheel"),
        ([0, 1e300], "wheel"),
        ([0, 10**400], "wheel"),
        ([[0], [0]], "wheel"),
    ],
)
def test_a_state_that_is_wrong_is_refused_with_field_rule_and_fix(server, shield, wrong, field):
    told = wrong
    if field == "wheel":
        joint = shield["joints"][1]
        told, field = {**state(shield), joint: wrong}, f"state.{joint}"
    elif isinstance(wrong, dict) and wrong:
        told = {**state(shield), **wrong}
    asked = {"observation": [0, 0, 0], "session": "wrong", "state": told}
    status, answer = server.post(INVOKE, asked)
    assert status == 400
    assert answer["field"].startswith(field)
    assert answer["rule"]
    assert "position, velocity" in answer["fix"] or "Send" in answer["fix"]
    socket, _ = server.connect()
    assert say(socket, observation=[0, 0, 0], state=told)["status"] == 400
    assert say(socket, observation=[0, 0, 0], state=state(shield))["step"] == 0


def test_a_request_that_is_nobodys_is_refused(server, shield):
    asked = {"observation": [0, 0, 0], "state": state(shield)}
    assert server.post(INVOKE, asked)[1]["field"] == "session"
    assert server.post(INVOKE, {"instances": [[0, 0, 0]]})[1]["field"] == "session"
    body = tensor(shield)
    del body["parameters"]
    assert server.post(INFER, body)[1]["field"] == "parameters.sequence_id"
    body = tensor(shield)
    del body["inputs"][1]
    assert server.post(INFER, body)[1]["field"] == "inputs.joint_state"
    assert server.post(INFER, tensor(shield, rows=2))[0] == 400


def test_a_policy_without_a_shield_takes_no_state(tmp_path, shield):
    plain = ServedPolicy(write_policy(tmp_path / "plain"), "tiny", "1")
    with pytest.raises(Refused, match="no shield"):
        plain.of_json([0, 0, 0], None, state(shield))
    shielded = ServedPolicy(changed_policy(tmp_path / "tiny", shield=shield), "tiny", "2")
    # A version without it does not take its place, nor the other way round.
    assert not shielded.takes_the_same(plain)
    assert not plain.takes_the_same(shielded)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.pop("limits"),
        lambda s: s.update(joints=[]),
        lambda s: s.update(joints=s["joints"][:2]),
        lambda s: s["drive"].update(shares=[[1.0]]),
        lambda s: s["drive"].update(kinds=["joint_dance"] * 4),
        lambda s: s["drive"].update(scale=[float("nan")] * 4),
        lambda s: s["drive"].update(max_action_rate=-1),
        lambda s: s["limits"].update(step_s=0),
        lambda s: s["limits"].update(step_s=None),
        lambda s: s["limits"].update(max_velocity=[-1] * 4),
        lambda s: s["limits"]["joints"].update(force=[]),
        lambda s: s["limits"]["joints"].update(inertia=[0.0] * 4),
        lambda s: s["limits"]["joints"].update(force=[[1.0]] * 4),
        lambda s: s["limits"].update(workspace=[[0, 0, 0], [1, 1, 1]]),
    ],
)
def test_a_shield_from_elsewhere_is_checked(tmp_path, shield, change):
    wrong = json.loads(json.dumps(shield))
    change(wrong)
    with pytest.raises(ConfigError, match="cannot be served"):
        ServedPolicy(changed_policy(tmp_path / "tiny", shield=wrong), "tiny", "1")


@pytest.mark.training
def test_a_run_with_a_shield_is_served_with_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rz.train(
        *("algo=ppo", "env=cartpole_swingup", "tuned=none", "n_envs=1", "n_timesteps=64"),
        *("algo.hyperparams.n_steps=64", "eval.every_steps=null", "report.video=false"),
        *("report.plot=false", "log.tensorboard=false", "env.kwargs.engine=mujoco"),
        "env.kwargs.safety={max_velocity: 0.5, on_violation: shield}",
        run_dir="run",
        quiet=True,
    )
    assert dispatch.run("deploy", ["run", "--out", "robot"]) == 0
    with Server("robot") as server:
        socket, hello = server.connect()
        (joint,) = hello["parameters"]["joints"]
        seen = [0.0] * hello["inputs"][0]["shape"][1]
        assert say(socket, observation=seen)["field"] == "state"
        told = say(socket, observation=seen, state={joint: [0.0, 0.6]})
        assert told["source"] == "shield"
        assert told["commands"]["joint_torque"][joint] < 0.0
    with Server("robot", "--no-shield") as server:
        socket, hello = server.connect()
        assert "commands" not in say(socket, observation=seen)
