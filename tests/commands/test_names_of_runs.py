"""What a command takes as RUN: a path, its end, `latest`, a policy's folder, a bundle."""

import json
import shutil

import pytest

import rlzoo_plus as rz
from rlzoo_plus.artifacts.run_dir import RunDir

RUN = "outputs/cartpole_bullet/ppo/day-s0"
SMALL = (
    *("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "algo.hyperparams.n_steps=64"),
    *("n_timesteps=64", "eval.every_steps=64", "eval.episodes=1", "report.video=false"),
)


@pytest.fixture
def trained(answer, tmp_path):
    """Return a small run below outputs/ of the current folder."""
    return rz.train(*SMALL, run_dir=RUN, quiet=True)


def steps_of(answer, *arguments):
    code, text = answer("evaluate", *arguments, "--episodes", "1", "--json")
    assert code == 0, text
    record = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    return record["run"], record["which"]


@pytest.mark.training
def test_commands_find_a_run_by_every_name(answer, trained):
    for name in ("latest", "day-s0", "ppo/day-s0", RUN, f"{RUN}/"):
        assert steps_of(answer, name) == (RUN, "best")
    assert steps_of(answer, f"{RUN}/final") == (RUN, "final")
    code, text = answer("resume", "latest")
    assert (code, "Nothing to do" in text) == (0, True)
    code, text = answer("plot", "latest")
    assert code == 0
    assert f"{RUN}/plots" in text


@pytest.mark.training
def test_commands_take_a_bundle_alone(answer, trained, tmp_path):
    shutil.make_archive("policy", "zip", RUN, "best")
    shutil.copytree(f"{RUN}/best", "policy")
    for name in ("policy.zip", "policy"):
        assert steps_of(answer, name) == (name, "best")
        code, text = answer("export", name, "--format", "sb3")
        assert code == 0, text
        assert (tmp_path / "export" / "best").is_dir()
        code, text = answer("resume", name)
        assert (code, "is a bundle" in text) == (2, True)


def test_an_end_of_several_paths_is_answered_with_them(answer, tmp_path):
    for name in ("a-s0", "b-s0"):
        run = RunDir(tmp_path / "outputs/pole/ppo" / name)
        run.path.mkdir(parents=True)
        run.start(rz.compose(["tuned=none"]).model_dump(mode="json"), "a test", {})
        run.write_status("finished")
    for verb in ("evaluate", "enjoy", "record", "resume", "checkpoint", "plot"):
        options = ["--no-window"] if verb == "enjoy" else []
        code, text = answer(verb, "s0", *options)
        assert code == 2, verb
        assert "outputs/pole/ppo/a-s0" in text
        assert "outputs/pole/ppo/b-s0" in text
        assert "Traceback" not in text
