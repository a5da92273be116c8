"""What a command takes as RUN: a path, its end, `latest`, a policy's folder, a bundle."""

import contextlib
import json
import re
import shutil

import pytest

import rlzoo_plus as rz
from rlzoo_plus.artifacts.run_dir import RunDir

RUN = "outputs/cartpole_bullet/ppo/day-s0"
SMALL = (
    *("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "algo.hyperparams.n_steps=64"),
    *("n_timesteps=64", "eval.every_steps=64", "eval.episodes=1", "report.video=false"),
)


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    with contextlib.chdir(folder):
        rz.train(*SMALL, run_dir=RUN, quiet=True)
    return folder


@pytest.fixture
def trained(trained_once, answer, tmp_path):
    """Leave a small run below outputs/ of the current folder."""
    shutil.copytree(trained_once, tmp_path, dirs_exist_ok=True)


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


@pytest.fixture
def without_policy(tmp_path):
    """Return a run below outputs/, newer than any other, that has saved nothing."""
    run = RunDir(tmp_path / "outputs/cartpole_bullet/ppo/later-s0")
    run.path.mkdir(parents=True)
    run.start(rz.compose(SMALL).model_dump(mode="json"), "a test", {})
    run.write_status("interrupted", started_at=9e9, n_timesteps=64)
    return run


PLAYING = {
    "evaluate": ["--episodes", "1"],
    "record": ["--seconds", "0.1"],
    "export": ["--format", "sb3"],
    "robustness": ["--episodes", "1"],
}


@pytest.mark.training
@pytest.mark.parametrize("verb", ["evaluate", "export", "record"])
@pytest.mark.parametrize("which", ["best", "final"])
def test_latest_is_the_newest_run_whose_policy_can_be_played(
    answer, trained, without_policy, verb, which
):
    if which == "final":
        shutil.rmtree(f"{RUN}/best")
    code, text = answer(verb, "latest", *PLAYING[verb])
    assert code == 0, text
    about = "" if which == "best" else ", it was never evaluated: its final policy is used"
    assert f"note: latest is {RUN}{about}\n" in text


@pytest.mark.training
def test_resume_latest_stays_the_newest_run(answer, trained, without_policy):
    code, text = answer("resume", "latest", "log.progress=false")
    assert code == 0, text
    assert "later-s0" in text


@pytest.mark.training
@pytest.mark.parametrize("verb", [*PLAYING, "inspect"])
def test_the_fix_that_is_printed_where_no_run_has_a_policy_works(answer, trained, verb):
    for name in ("best", "final"):
        shutil.rmtree(f"{RUN}/{name}")
    code, text = answer(verb, "latest", *PLAYING.get(verb, []))
    assert (code, "Traceback" in text) == (2, False)
    fix = re.search(r"Name a checkpoint: (.*)\.$", text.strip())
    assert fix is not None, text
    assert answer("evaluate", *fix[1].split(), "--episodes", "1")[0] == 0


@pytest.mark.training
def test_a_run_that_was_never_evaluated_names_what_to_type(answer, trained):
    for name in ("best", "final"):
        shutil.rmtree(f"{RUN}/{name}")
    code, text = answer("evaluate", RUN)
    assert code == 2
    fix = re.search(r"was never evaluated, and has no best policy. Use (--which \d+)\.", text)
    assert fix is not None, text
    assert answer("evaluate", RUN, *fix[1].split(), "--episodes", "1")[0] == 0


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


@pytest.mark.training
def test_a_longer_run_is_told_as_plain_information(answer, trained):
    code, text = answer("resume", "latest", "n_timesteps=128")
    assert code == 0, text
    assert "the run is extended from 64 to 128 steps" in text
    assert re.search(r"resumed +at step 64; extended from 64 to 128 steps\n", text)
    assert "not exactly" not in text
    assert "warning" not in text


@pytest.mark.training
def test_what_only_experts_need_is_printed_with_debug_alone(answer):
    line = [*SMALL, "run_dir=mine", "n_envs=8", "n_timesteps=512", "eval.every_steps=512"]
    code, text = answer("train", *line)
    assert code == 0, text
    assert "run directory: mine" in text
    assert "mean return" in text
    for word in ("recorded", "ROBOTS_THREADS", "seeds:"):
        assert word not in text
    code, text = answer("train", *line, "run_dir=other", "log.level=debug")
    assert "seeds:" in text
