"""What a command decides to do with a directory that holds a run already."""

from datetime import datetime

import numpy as np
import pytest

from rlzoo_plus.analysis.find_run import stored_config
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.train import _next_commands, print_done
from rlzoo_plus.commands.typed import make_console
from rlzoo_plus.config.cadence import with_schedule
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.plan import Start, plan_run
from rlzoo_plus.runs.train_job import move_aside


def refusal(config):
    with pytest.raises(ConfigError) as caught:
        plan_run(config)
    return str(caught.value)


# How a command begins


def test_without_a_directory_a_run_is_new(resolve_config, base):
    plan = plan_run(resolve_config(*base).config)
    assert (plan.start, plan.run_dir) == (Start.NEW, None)


def test_to_restart_needs_a_directory(resolve_config, base):
    with pytest.raises(ConfigError, match=r"restart=true.*run_dir"):
        plan_run(resolve_config(*base, "restart=true").config)


@pytest.mark.parametrize("restart", ["true", "false"])
def test_where_nothing_is_a_run_is_new(make, tmp_path, restart):
    plan = plan_run(make(f"restart={restart}"))
    assert plan.start is Start.NEW
    assert plan.run_dir.path == tmp_path / "run"
    assert not plan.run_dir.path.exists()


def test_a_configuration_left_empty_by_a_kill_is_no_run(make, tmp_path):
    RunDir(tmp_path / "run").claim()
    assert plan_run(make()).start is Start.NEW


def test_files_of_others_in_the_directory_are_no_run(make, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    assert plan_run(make()).start is Start.NEW


@pytest.mark.parametrize("state", [None, "running", "interrupted", "failed"])
@pytest.mark.parametrize("steps", [(), (128, 256)])
def test_an_unfinished_run_goes_on(begin, make, state, steps):
    begin(state, steps=steps)
    assert plan_run(make()).start is Start.RESUME


def test_a_finished_run_is_done(begin, make):
    begin("finished")
    assert plan_run(make()).start is Start.DONE


def test_a_finished_run_that_is_to_be_longer_goes_on(begin, make):
    begin("finished", steps=(100_096,))
    plan = plan_run(make("n_timesteps=200000"))
    assert plan.start is Start.RESUME
    assert plan.config.n_timesteps == 200_000


def test_a_run_killed_before_it_became_longer_is_not_taken_for_done(begin, make):
    run = begin("finished", steps=(100_096,))
    run.record_resume(plan_run(make("n_timesteps=200000")).config.model_dump(mode="json"), "again")
    assert plan_run(make("n_timesteps=200000")).start is Start.RESUME


def test_to_restart_takes_a_run_whatever_its_state_and_configuration(begin, make):
    run = begin("finished")
    assert plan_run(make("restart=true", "seed=5")).start is Start.RESTART
    run.config_file.write_text("{")
    assert plan_run(make("restart=true")).start is Start.RESTART


def test_planning_changes_nothing(begin, make):
    run = begin("failed", steps=(128,))
    files = {p: p.read_bytes() for p in sorted(run.path.rglob("*")) if p.is_file()}
    plan_run(make())
    plan_run(make("restart=true"))
    now = {p: p.read_bytes() for p in sorted(run.path.rglob("*")) if p.is_file()}
    assert {p.name for p in set(now) - set(files)} <= {".lock"}
    assert all(now[p] == data for p, data in files.items())


# What is refused


@pytest.mark.parametrize("state", ["running", "finished", "failed"])
def test_never_leaves_a_run_alone(begin, make, state):
    begin(state)
    text = refusal(make("resume=never"))
    assert f"already holds a run (state: {state}), and resume=never" in text


def test_never_is_no_matter_where_nothing_is(make):
    assert plan_run(make("resume=never")).start is Start.NEW


def test_another_configuration_is_refused_with_its_keys(begin, make):
    begin("interrupted", steps=(128,))
    text = refusal(make("seed=5", "algo.hyperparams.gamma=0.5"))
    assert "seed: 0 there, 5 here" in text
    assert "algo.hyperparams.gamma: " in text


def test_a_finished_run_with_another_configuration_is_refused_too(begin, make):
    begin("finished")
    assert "seed: 0 there, 5 here" in refusal(make("seed=5"))


@pytest.mark.parametrize("override", [[], ["restart=true"], ["resume=never"]])
def test_a_directory_in_which_a_process_trains_is_refused(begin, make, override):
    run = begin("running")
    lock = run.lock
    assert lock.acquire()
    assert "another process is training there" in refusal(make(*override))
    lock.release()
    if not override:
        assert plan_run(make()).start is Start.RESUME


@pytest.mark.parametrize(
    "content", [b"{", b"", b"seed: 1\n", b"- 1\n", b"\xff\xfe", b"!!python/name:os.getcwd\n"]
)
def test_a_damaged_configuration_is_refused_in_one_line(begin, make, content):
    run = begin("running")
    run.config_file.write_bytes(content)
    text = refusal(make())
    assert "config.yaml is damaged" in text
    assert "restart=true" in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("state", ["finished", "interrupted", "failed"])
def test_steps_without_a_checkpoint_are_not_thrown_away(begin, make, state):
    run = begin(state, num_timesteps=5000)
    longer = make("n_timesteps=200000")
    text = refusal(longer)
    assert "holds a policy of 5000 steps and no checkpoint to resume from" in text
    assert len(text.splitlines()) == 1
    assert plan_run(make("restart=true")).start is Start.RESTART
    run.checkpoints(keep=9).save(128, {"weights": np.zeros(9)}, {})
    assert plan_run(longer).start is Start.RESUME


def test_a_policy_of_unknown_length_is_not_thrown_away(begin, make):
    run = begin("finished", num_timesteps=0)
    run.final.mkdir()
    assert "no checkpoint" in refusal(make("n_timesteps=200000"))


def test_a_run_that_took_no_step_starts_again(begin, make):
    begin("failed", num_timesteps=0)
    assert plan_run(make()).start is Start.RESUME


def test_a_run_with_nothing_but_damaged_checkpoints_is_refused(begin, make, spoil):
    run = begin("interrupted", steps=(128, 256))
    spoil(run, 128)
    assert plan_run(make()).start is Start.RESUME
    spoil(run, 256)
    assert "none of its 2 checkpoints is whole" in refusal(make())
    assert plan_run(make("restart=true")).start is Start.RESTART


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_status_is_that_of_an_unfinished_run(begin, make, content):
    run = begin("finished", steps=(128,))
    run.status_file.write_bytes(content)
    assert plan_run(make()).start is Start.RESUME


# The parts


def test_the_stored_configuration_is_the_one_it_was_started_with(begin, make):
    assert stored_config(begin()) == with_schedule(make(), lambda: 500)


def test_a_run_moved_aside_is_whole_and_its_place_free(begin):
    run = begin("failed", steps=(128,))
    target = move_aside(run)
    assert not run.path.exists()
    assert target.name.startswith(f"run-before-{datetime.now():%Y}")
    assert RunDir(target).checkpoints().load_newest().step == 128


def test_runs_moved_aside_in_the_same_second_are_all_kept(begin, tmp_path):
    targets = set()
    for _ in range(3):
        run = begin("failed")
        targets.add(move_aside(run))
    assert len(targets) == 3
    assert all(target.is_dir() for target in targets)


def test_what_is_said_of_a_finished_run_tells_its_outcome(begin, make, capsys):
    run = begin("finished")
    print_done(make_console(), plan_run(make()))
    # Without its result.
    assert "100,000 steps" in " ".join(capsys.readouterr().out.split())
    run.write_result({"num_timesteps": 100096, "best": {"mean_return": 41.26}, "reason": "over"})
    print_done(make_console(), plan_run(make()))
    text = " ".join(capsys.readouterr().out.split())
    assert "is finished (over): 100,096 steps, best mean return 41.3." in text
    assert "restart=true" in text


def test_a_run_that_a_rule_has_ended_is_not_extended(begin, make, capsys):
    run = begin("finished", steps=(128,))
    longer = make("n_timesteps=10000000")
    assert plan_run(longer).start is Start.RESUME
    run.write_result({"reason": "mean return 41.3 reached stop.reward_threshold"})
    plan = plan_run(longer)
    assert plan.start is Start.DONE
    print_done(make_console(), plan)
    text = " ".join(capsys.readouterr().out.split())
    assert f"rlzoo-plus branch {run.path}@latest stop.reward_threshold=null" in text
    assert "extends it" not in text


def test_commands_that_are_shown_can_be_pasted(make, tmp_path):
    text = _next_commands(make(), RunDir(tmp_path / "my run"), "interrupted")
    place = f"'{tmp_path / 'my run'}'"
    assert f"rlzoo-plus resume {place}" in text
    assert f"rlzoo-plus evaluate {place} --episodes" in text
