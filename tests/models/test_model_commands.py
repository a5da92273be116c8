"""What a user does with a registry: register, promote past a gate, roll back, look, verify."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.registered import put

import rlzoo_plus as rz
from rlzoo_plus.commands import dispatch
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.models import gate as gates
from rlzoo_plus.models.gate import Gate, read_gate, run_gate
from rlzoo_plus.models.model_copies import resolve
from rlzoo_plus.models.model_history import roll_back
from rlzoo_plus.models.model_store import ModelStore
from rlzoo_plus.models.registering import split_run

RUN = "trained/cartpole_bullet"
QUICK = {"episodes": 2, "not_worse": None, "exact": None}


@pytest.fixture
def here(tmp_path, monkeypatch, cache):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLZOO_MODELS", raising=False)
    return tmp_path


def call(*words):
    return dispatch.run("model", [str(word) for word in words])


def refused(capsys, *words):
    """Return the one line that a command refuses with."""
    capsys.readouterr()
    assert call(*words) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    return line


def write_gate(**checks):
    Path("gate.yaml").write_text(yaml.safe_dump({**QUICK, **checks}))
    return "gate.yaml"


def put_two(files):
    """Register two versions in the usual place, the second with worse weights by its record."""
    store = ModelStore()
    other = Path("other")
    shutil.copytree(files, other)
    (other / "command.txt").write_text("another\n")
    return store, put(store, files), put(store, other)


@pytest.mark.slow
def test_a_run_is_registered_promoted_and_played(here, capsys):
    assert call("register", RUN, "--name", "cart", "--episodes", 10, "--why", "the first") == 0
    assert "cart@1: " in capsys.readouterr().out
    found = resolve("cart@1")
    assert {"best/policy.json", "deploy/deploy.json"} <= set(found.version.files)
    assert found.onnx == found.path / "policy.onnx"
    assert found.version.evaluation["mean_return"] == pytest.approx(500, rel=0.05)
    # The same files again are the same version.
    assert call("register", RUN, "--name", "cart", "--episodes", 10, "--why", "again") == 0
    assert "cart@1 has these very files already" in capsys.readouterr().out
    gate = write_gate(exact=True, min_return=400, min_success=0.9, not_worse=0.05, reward_audit=3)
    assert call("promote", "cart", 1, "--to", "production", "--gate", gate) == 0
    out = capsys.readouterr().out
    assert out.count("passed") == 6
    assert "verified" in out
    assert "cart@production: 1. promote to 1" in out
    assert rz.Run.open("cart@production").evaluate(2)["mean_return"] > 400
    assert rz.load_policy("cart@production").step == found.version.step
    assert dispatch.run("verify", ["cart@production", "--first", "10"]) == 0


@pytest.mark.training
def test_any_policy_of_a_run_can_be_registered(here, capsys):
    rz.train(
        *("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "n_timesteps=128"),
        *("algo.hyperparams.n_steps=64", "eval.every_steps=64", "eval.episodes=1"),
        *("report.video=false", "report.plot=false", "log.tensorboard=false"),
        *("normalize=true", "checkpoint.every_steps=64"),
        run_dir="run",
        quiet=True,
    )
    store = ModelStore()
    steps = rz.Run.open("run").run_dir.checkpoints().steps()
    for number, which in enumerate(["best", "final", steps[0]], start=1):
        words = ["--name", "cart", "--episodes", 10, "--no-onnx"]
        assert call("register", f"run@{which}", *words) == 0
        record = store.version("cart", number)
        assert record.which == str(which)
        own, there = rz.load_policy("run", str(which)), rz.load_policy(f"cart@{number}")
        assert own.step == there.step == record.step
        before, now = own.network.state_dict(), there.network.state_dict()
        assert all((before[name] == now[name]).all() for name in before)
        assert (own.normalizer.state() is None) == (there.normalizer.state() is None)
        assert record.environment["code"]
    shutil.copytree("run/best", "alone")
    assert "is a bundle" in refused(capsys, "register", "alone", "--name", "x")


def test_run_and_policy_are_told_apart(here):
    Path("run").mkdir()
    Path("odd@best").mkdir()
    assert split_run("run@best") == ("run", "best")
    assert split_run("run@1024") == ("run", "1024")
    assert split_run("latest@7") == ("latest", "7")
    assert split_run("cart@7") == ("cart@7", None)
    assert split_run("cart@production") == ("cart@production", None)
    assert split_run("odd@best") == ("odd@best", None)
    assert split_run(RUN) == (RUN, None)


def test_a_gate_that_says_no_moves_nothing_unless_it_is_forced(here, files, capsys):
    store, first, second = put_two(files)
    assert call("promote", "cart", first, "--to", "production", "--gate", write_gate()) == 0
    gate = write_gate(min_return=10_000)
    assert call("promote", "cart", second, "--to", "production", "--gate", gate) == 1
    said = capsys.readouterr()
    assert "FAILED  return: mean" in said.out
    assert "did not pass, so production stays as it is" in said.err
    assert store.newest("cart", "production").version == first
    words = ["--gate", gate, "--force", "the robot waits"]
    assert call("promote", "cart", second, "--to", "production", *words) == 0
    record = store.newest("cart", "production")
    assert (record.version, record.before, record.forced) == (second, first, "the robot waits")
    assert [check["holds"] for check in record.gate if check["check"] == "return"] == [False]
    assert call("show", "cart") == 0
    assert "FORCED: the robot waits" in capsys.readouterr().out


def test_what_the_alias_names_while_the_gate_plays_decides(here, files, monkeypatch, capsys):
    store, first, second = put_two(files)
    real = run_gate

    def moved_meanwhile(*arguments, **options):
        store.move("cart", "production", first, action="promote", why="faster")
        return real(*arguments, **options)

    monkeypatch.setattr("rlzoo_plus.models.promotion.run_gate", moved_meanwhile)
    said = refused(capsys, "promote", "cart", second, "--to", "production", "--gate", write_gate())
    assert "was moved to version 1 by" in said
    assert store.newest("cart", "production").version == first


def test_a_worse_policy_is_not_promoted(here, files, monkeypatch):
    _, first, second = put_two(files)
    pair = [resolve(f"cart@{number}") for number in (second, first)]
    gate = Gate.model_validate({**QUICK, "episodes": 8, "not_worse": 0.05})
    same = run_gate(gate, *pair)
    assert [check.holds for check in same if check.check == "not worse"] == [True]
    real = rz.Run.evaluate

    def evaluate(run, episodes, **options):
        record = real(run, episodes, **options)
        worse = run.path == pair[0].path
        return {**record, "returns": [r - 30 * worse - k for k, r in enumerate(record["returns"])]}

    monkeypatch.setattr(rz.Run, "evaluate", evaluate)
    (found,) = [check for check in run_gate(gate, *pair) if check.check == "not worse"]
    assert not found.holds


def test_a_policy_that_breaks_in_other_worlds_is_not_promoted(here, files):
    _, first, _ = put_two(files)
    Path("grid.yaml").write_text("latency: [20]\n")
    for share, holds in ((0.0, True), (0.99, False)):
        floor = {"min_share": share, "episodes": 2, "grid": "grid.yaml"}
        gate = Gate.model_validate({**QUICK, "robustness": floor})
        found = run_gate(gate, resolve(f"cart@{first}"), None)
        assert [check.holds for check in found if check.check == "robustness"] == [holds]


def test_a_check_that_cannot_be_made_does_not_hold(here, files):
    _, first, _ = put_two(files)
    gate = Gate.model_validate(
        {**QUICK, "robustness": {"min_share": 0.5, "episodes": 2, "grid": "missing.yaml"}}
    )
    (found,) = [
        c for c in run_gate(gate, resolve(f"cart@{first}"), None) if c.check == "robustness"
    ]
    assert not found.holds
    assert "cannot be checked" in found.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("min_retrun: 3", "unknown check 'min_retrun'.*min_return"),
        ("min_success: 3", "min_success: Input should be less than or equal to 1"),
        ("episodes: 0", "episodes"),
        ("min_return: .nan", "min_return"),
        ("- 1", "--gate"),
        ("a: &b [*b]", "--gate"),
    ],
)
def test_a_wrong_gate_is_one_line(here, text, said):
    Path("gate.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said) as raised:
        read_gate(Path("gate.yaml"))
    assert "\n" not in str(raised.value)
    with pytest.raises(ConfigError, match="no such file"):
        read_gate(Path("none.yaml"))


def test_the_shipped_gate_is_what_its_comments_say():
    assert read_gate(gates.DEFAULT_GATE) == Gate()


def test_rollbacks_go_back_one_after_the_other(here, files):
    store, first, second = put_two(files)
    for number in (first, second, first):
        store.move("cart", "production", number, action="promote", why="")
    assert roll_back(store, "cart", "production", "a").version == second
    assert roll_back(store, "cart", "production", "b").version == first
    with pytest.raises(ConfigError, match="no other version before"):
        roll_back(store, "cart", "production", "c")
    store.move("cart", "production", second, action="promote", why="")
    with pytest.raises(ConfigError, match=r"cannot return to 7\. Before it named: 1"):
        roll_back(store, "cart", "production", "d", 7)
    assert [r.action for r in store.history("cart", "production")].count("rollback") == 2


def test_what_an_alias_names_cannot_be_retired_and_what_is_retired_not_promoted(
    here, files, capsys
):
    store, first, second = put_two(files)
    store.move("cart", "production", second, action="promote", why="")
    assert "is what cart@production names" in refused(capsys, "retire", "cart", second)
    assert call("retire", "cart", first, "--why", "old") == 0
    assert "cart@1 is retired" in refused(capsys, "promote", "cart", first, "--to", "staging")
    # Its files stay: whoever named its number goes on.
    assert resolve("cart@1").path.is_dir()


def test_a_policy_of_an_unknown_environment_does_not_replace_one_of_a_known(here, files):
    store = ModelStore()
    known = put(store, files, environment={"id": "CartPoleBullet-v0", "version": "0" * 16})
    store.move("cart", "production", known, action="promote", why="")
    shutil.copytree(files, "other")
    Path("other/command.txt").write_text("another\n")
    unknown = put(store, Path("other"))
    assert call("promote", "cart", unknown, "--to", "production", "--gate", write_gate()) == 1


@pytest.mark.training
def test_a_registered_folder_for_a_robot_is_whole_without_code(here):
    assert call("register", RUN, "--name", "cart", "--episodes", 1) == 0
    folder = resolve("cart@1").path / "deploy"
    assert not (folder / "runtime").exists()
    assert "a registry holds no code" in (folder / "README.md").read_text()
    robot_runtime = pytest.importorskip("rlzoo_plus.deploy.robot_runtime")
    assert robot_runtime.Policy(folder).act(np.zeros(5, np.float32)).shape == (1,)


@pytest.mark.training
def test_a_difference_shows_values_and_engines(here):
    words = ("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "n_timesteps=64")
    words += ("algo.hyperparams.n_steps=64", "report.video=false", "report.plot=false")
    words += ("eval.every_steps=null", "log.tensorboard=false")
    kinds = ({}, {"engine": "bullet"}, {"engine": "mujoco"}, {"force_n": 5})
    runs = [
        rz.train(*words, env={"kwargs": kwargs}, run_dir=f"r{n}", quiet=True)
        for n, kwargs in enumerate(kinds)
    ]
    compared = [runs[0].compare(run) for run in runs[1:]]
    key = "env.kwargs.engine"
    assert key not in compared[0]
    assert compared[1][key] == ("bullet", "mujoco")
    assert compared[2]["env.kwargs.force_n"] == (None, 5)


def test_lists_and_differences_can_be_read_by_programs(here, files, capsys):
    store, _, second = put_two(files)
    store.move("cart", "production", second, action="promote", why="")
    assert call("list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["version"], r["aliases"]) for r in rows] == [(1, []), (2, ["production"])]
    assert call("diff", "cart", 1, "production", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {}
    assert call("show", "cart@production", "--json") == 0
    assert json.loads(capsys.readouterr().out)["number"] == 2
    assert call("list") == call("show", "cart@1") == call("show", "cart") == 0
    assert "SHA-256" in capsys.readouterr().out


def test_verify_names_the_file_that_was_changed(here, files, capsys):
    store, _, _ = put_two(files)
    store.move("cart", "production", 1, action="promote", why="")
    assert call("verify", "cart") == 0
    assert "every byte of 2 versions" in capsys.readouterr().out
    content = Path("registry/models/cart/content") / store.version("cart", 2).content
    weights = content / "best/tensors.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    (content / "config.yaml").unlink()
    assert call("verify", "cart") == 1
    out = capsys.readouterr().out
    assert "best/tensors.safetensors was changed" in out
    assert "config.yaml is missing" in out
    assert call("verify", "cart@1") == 0
    with pytest.raises(Exception, match=r"config.yaml is missing|tensors.safetensors was changed"):
        resolve("cart@2")


def test_a_registry_that_cannot_be_written_is_told_before_anything_is_played(here, capsys):
    Path("file").touch()
    for place in ("file", "file/below"):
        said = refused(capsys, "register", RUN, "--name", f"{here / place}/models/cart")
        assert "there is a file" in said


@pytest.mark.parametrize(
    "words",
    [
        ["promote", "cart", "x", "--to", "production"],
        ["promote", "cart", "1", "--to", "production", "--force", " "],
        ["promote", "cart", "0", "--to", "production"],
        ["promote", "cart", "1", "--to", "Production!"],
        ["promote", "cart@1", "1", "--to", "production"],
        ["promote", "../cart", "1", "--to", "production"],
        ["promote", "nocart", "1", "--to", "production"],
        ["rollback", "cart"],
        ["show", "nocart"],
        ["verify", "nocart"],
        ["retire", "cart", "9"],
        ["diff", "cart", "1", "9"],
        ["list", "nocart"],
        ["register", "no/such/run", "--name", "cart"],
        ["register", RUN, "--name", "a/b"],
    ],
)
def test_a_mistake_is_one_line(here, files, words, capsys):
    put(ModelStore(), files)
    assert refused(capsys, *words).startswith("error: ")
