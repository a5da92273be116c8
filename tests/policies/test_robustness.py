"""`robustness`: grids, changed worlds, the worst case, and the choice by it."""

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.training import make_config, tiny_config, train_run

from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.degradation import ranking, table
from rlzoo_plus.policies.robustness import (
    DEFAULT_GRID,
    Point,
    Robustness,
    changed_env,
    nominal_values,
    ranked,
    read_grid,
)
from rlzoo_plus.runs.run import Run
from robots.engines import ENGINES

ROOT = Path(__file__).resolve().parents[2]


def test_the_shipped_grid_changes_what_the_request_names():
    names = {name for change in read_grid(DEFAULT_GRID) for name in change}
    assert names >= {"mass", "friction", "latency", "noise", "motor_strength", "push"}
    assert "observation_delay" in names
    assert {"mass": 3.0, "joint_damping": 0.1, "latency": 3.0} in read_grid(DEFAULT_GRID)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mas: [1.0]", "Did you mean 'mass'"),
        ("mass: 2.0", "mass: Input should be a valid list"),
        ("mass: [heavy]", "mass.0: Input should be a valid number"),
        ("mass: [.nan]", "mass.0: Input should be a finite number"),
        ("combinations: [3]", "combinations.0: Input should be a valid dictionary"),
        ("combinations: [{mass: x}]", "mass: x is no number"),
        ("engine: bullet", "engine: Input should be a valid list"),
        ("engine: [mujok]", "Did you mean 'mujoco'"),
        ("combinations: [{engine: 2.0, mass: 2.0}]", "unknown engine"),
        ("a: &x [1]\nb: *x", "anchors"),
        ("!!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("[]", "lists of numbers by name"),
    ],
)
def test_a_grid_that_is_none_is_refused_in_one_line(tmp_path, text, told):
    file = tmp_path / "grid.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        read_grid(file)
    assert "\n" not in str(caught.value)


def test_every_change_of_the_shipped_grid_reaches_the_robot():
    words = "env.kwargs.randomization={gravity: {uniform: [0.5, 2.0]}}"
    weak = "env.kwargs.motor_strength=0.5"
    spec = make_config("algo=ppo", "env=cartpole_bullet", words, weak).env
    for change in read_grid(DEFAULT_GRID):
        env = make_env(changed_env(spec, change, is_ours=True))
        _, info = env.reset(seed=0)
        drawn = info.get("randomization", {})
        assert "gravity" not in drawn
        for name, value in change.items():
            if name in ("mass", "friction", "joint_damping", "observation_delay"):
                assert drawn[name] == pytest.approx(value)
        strength = env.unwrapped.robot.drive.strength
        assert strength == pytest.approx(0.5 * change.get("motor_strength", 1.0))
        env.close()


def test_the_engine_is_a_change_of_the_shipped_grid_and_reaches_the_robot():
    spec = make_config("algo=ppo", "env=cartpole_bullet").env
    engines = [change["engine"] for change in read_grid(DEFAULT_GRID) if "engine" in change]
    assert sorted(engines) == sorted(ENGINES)
    for engine in engines:
        with closing(make_env(changed_env(spec, {"engine": engine}, is_ours=True))) as env:
            assert env.unwrapped.simulation.engine == engine
    other = make_config("algo=ppo", "env=gym", "env.id=Pendulum-v1").env
    with pytest.raises(ConfigError, match="not engine"):
        changed_env(other, {"engine": "mujoco"}, is_ours=False)


def test_an_environment_of_others_is_changed_by_wrappers_and_by_nothing_else():
    spec = make_config("algo=ppo", "env=gym", "env.id=Pendulum-v1").env
    plain, noisy = (
        make_env(changed_env(spec, change, is_ours=False)) for change in ({}, {"noise": 0.1})
    )
    seen = [env.reset(seed=3)[0] for env in (plain, noisy)]
    assert 0.0 < np.abs(seen[0] - seen[1]).max() < 1.0
    late = make_env(changed_env(spec, {"latency": 2}, is_ours=False))
    late.reset(seed=3)
    idle, push = np.zeros(1, np.float32), np.full(1, 2.0, np.float32)
    for action in (push, idle, idle):
        shown = late.step(action)[0]
    plain.reset(seed=3)
    for action in (idle, idle, push):
        expected = plain.step(action)[0]
    np.testing.assert_array_equal(shown, expected)
    with pytest.raises(ConfigError, match="only noise and latency can be changed"):
        changed_env(spec, {"mass": 2.0}, is_ours=False)
    with pytest.raises(ConfigError, match="whole control steps"):
        changed_env(spec, {"latency": 1.5}, is_ours=False)


def robustness(label, nominal, *worlds):
    points = [Point({"mass": float(k)}, [value], None) for k, value in enumerate(worlds, start=2)]
    return Robustness(label, Point({}, [nominal], None), points)


def test_policies_are_ranked_by_their_worst_case():
    brittle = robustness("brittle", 500.0, 480.0, 20.0)
    sturdy = robustness("sturdy", 450.0, 440.0, 430.0)
    assert [one.label for one in ranked([brittle, sturdy])] == ["sturdy", "brittle"]
    lines = ranking([brittle, sturdy]).splitlines()
    assert lines[1].split() == ["sturdy", "450", "430", "mass", "3"]
    assert table(brittle).splitlines()[-1] == "worst case: mass 3, mean return 20, 4%"


def test_the_nominal_world_can_be_the_worst_and_negative_returns_have_no_share():
    found = robustness("x", -5.0, -4.0)
    assert found.worst.change == {}
    assert "+1" in table(found)


def test_the_nominal_value_of_each_change_changes_nothing():
    values = nominal_values()
    assert (values["mass"], values["latency"], values["noise"], values["push"]) == (1, 0, 0, 0)


@pytest.mark.training
def test_of_both_engines_the_other_one_is_played_and_plotted(answer, tmp_path):
    words = ("env.kwargs.engine=mujoco", "env.time_limit=20", "tuned=none", "device=cpu")
    small = ("n_timesteps=64", "algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16")
    config = make_config("algo=ppo", "env=cartpole_bullet", *words, *small, "n_envs=1")
    run, _ = train_run(tmp_path / "run", config)
    grid = tmp_path / "grid.yaml"
    grid.write_text("engine: [bullet, mujoco]\ncombinations:\n  - {engine: bullet, mass: 2.0}\n")
    out = tmp_path / "a.png"
    few = ("--grid", str(grid), "--episodes", "1", "--out", str(out))
    code, text = answer("robustness", str(run.path), *few, "--json")
    assert code == 0, text
    (found,) = json.loads(text[text.index("{") :])["policies"]
    assert found["engine"] == "mujoco"
    changes = [point["change"] for point in found["points"]]
    assert changes == [{"engine": "bullet"}, {"engine": "bullet", "mass": 2.0}]
    assert "engine bullet, mass 2" in str(Point(changes[1], [1.0], None))
    assert out.is_file()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    config = tiny_config("ppo", "tests/TinyReach-v0", "checkpoint.every_steps=32")
    return str(train_run(tmp_path_factory.mktemp("runs") / "run", config)[0].path)


@pytest.mark.training
def test_a_run_is_measured_and_one_of_its_checkpoints_is_chosen(path, answer, tmp_path):
    (tmp_path / "grid.yaml").write_text("mass: [2.0]\nlatency: [1, 2]\n")
    words = ("--grid", "grid.yaml", "--episodes", "2", "--trust", "--out", "a.png")
    code, text = answer("robustness", path, *words)
    assert code == 0, text
    assert "latency 2" in text
    assert "left out: mass" in text
    assert "only noise and latency" in text
    assert "worst case: " in text
    with Image.open("a.png") as image:
        assert image.size[0] > 500
    code, text = answer("robustness", path, *words, "--choose", "--json")
    assert code == 0, text
    data = json.loads(text)
    labels = {row["label"] for row in data["policies"]}
    assert labels >= {"best", "final"}
    worst = {row["label"]: row["worst"]["mean_return"] for row in data["policies"]}
    assert worst[data["chosen"]] == max(worst.values())
    assert Run.open(path).run_dir.has_begun()


@pytest.mark.training
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--choose", "--which", "best"), "Leave out --which"),
        (("--grid", "none.yaml", "--trust"), "no such file"),
        (("--out", "a.svg"), "end it in .png"),
        ((), "--trust"),
    ],
)
def test_a_mistake_is_told_in_one_line(path, answer, words, told):
    code, text = answer("robustness", path, *words)
    assert code == 2
    assert told in text
    assert "Traceback" not in text


@pytest.mark.training
def test_what_changes_nothing_possible_is_an_error(path, answer, tmp_path):
    (tmp_path / "grid.yaml").write_text("mass: [2.0]\n")
    code, text = answer("robustness", path, "--grid", "grid.yaml", "--trust", "--episodes", "1")
    assert code == 2
    assert "nothing can be changed" in text


RANDOMIZATION = (
    "{mass: {log_uniform: [0.5, 8.0]}, joint_damping: {uniform: [0.0, 0.2]}, "
    "latency: {choice: [0, 1, 2, 3, 4]}}"
)


@pytest.mark.training
@pytest.mark.slow
def test_the_policy_trained_with_randomization_is_ranked_first(tmp_path):
    # The trainings of docs/robots/randomization.md, about half a minute each.
    common = ("algo=ppo", "env=cartpole_bullet", "seed=0", "n_timesteps=61440", "num_threads=1")
    quiet = ("report.video=false", "report.plot=false", "log.progress=false")
    changed = (f"env.kwargs.randomization={RANDOMIZATION}",)
    for name, more in (("plain", ()), ("randomized", changed)):
        words = [*common, *quiet, "eval.every_steps=null", f"run_dir={tmp_path / name}", *more]
        subprocess.run([sys.executable, "train.py", *words], cwd=ROOT, check=True)
    runs = [str(tmp_path / name) for name in ("plain", "randomized")]
    words = ["--which", "final", "--episodes", "10", "--choose", "--json"]
    words += ["--out", str(tmp_path / "a.png")]
    command = [sys.executable, "-m", "rlzoo_plus", "robustness", *runs, *words]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    data = json.loads(done.stdout)
    assert data["chosen"] == "randomized"
    worst = {row["label"]: row["worst"]["mean_return"] for row in data["policies"]}
    assert worst["randomized"] > 2 * worst["plain"]
