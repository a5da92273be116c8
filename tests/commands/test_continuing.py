"""What `train`, `resume` and `checkpoint` do with a directory that holds a run already."""

import subprocess
import sys
from datetime import datetime

import numpy as np
import pytest

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.tree import TENSOR_FILE
from rlzoo_plus.commands import dispatch, train
from rlzoo_plus.commands.continuing import Start, move_aside, plan_run, print_done, stored_config
from rlzoo_plus.config.errors import ConfigError

BASE = ("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "algo.hyperparams.n_steps=128")


class TrainedError(Exception):
    """Training would have begun."""


@pytest.fixture
def make(resolve_config, tmp_path):
    """Return a function: overrides to a checked configuration for `tmp_path/run`."""

    def make_it(*overrides):
        where = f"run_dir={tmp_path / 'run'}"
        return resolve_config(*BASE, where, "n_timesteps=100000", *overrides).config

    return make_it


@pytest.fixture
def begin(make, tmp_path):
    """Return a function that leaves a run as a process would have left it."""

    def begin_it(state=None, *overrides, steps=(), **details):
        config = make(*overrides)
        run = RunDir(tmp_path / "run")
        run.path.mkdir()
        run.start(config.model_dump(mode="json"), "the first command", {"seed": 0})
        if state is not None:
            run.write_status(state, n_timesteps=config.n_timesteps, **details)
        for step in steps:
            run.checkpoints(keep=9).save(step, {"weights": np.zeros(9)}, {})
        return run

    return begin_it


def spoil(run, step):
    file = run.checkpoints().root / f"{step:012d}" / TENSOR_FILE
    file.write_bytes(file.read_bytes()[:-1])


def refusal(config):
    with pytest.raises(ConfigError) as caught:
        plan_run(config)
    return str(caught.value)


# How a command begins


def test_without_a_directory_a_run_is_new(resolve_config):
    plan = plan_run(resolve_config(*BASE).config)
    assert (plan.start, plan.run_dir) == (Start.NEW, None)


def test_to_restart_needs_a_directory(resolve_config):
    with pytest.raises(ConfigError, match=r"restart=true.*run_dir"):
        plan_run(resolve_config(*BASE, "restart=true").config)


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


def test_a_longer_run_keeps_the_cadence_of_its_evaluations(begin, make):
    begin("finished", steps=(100_096,))
    plan = plan_run(make("n_timesteps=200000"))
    assert make("n_timesteps=200000").eval.every_steps == 10_000
    assert plan.config.eval.every_steps == 5000


def test_a_run_killed_before_it_became_longer_is_not_taken_for_done(begin, make):
    run = begin("finished", steps=(100_096,))
    run.go_on(plan_run(make("n_timesteps=200000")).config.model_dump(mode="json"), "again")
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


def test_a_shorter_run_is_refused(begin, make):
    begin("finished")
    assert "n_timesteps: 100000 there, 50000 here" in refusal(make("n_timesteps=50000"))


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


def test_a_run_with_nothing_but_damaged_checkpoints_is_refused(begin, make):
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
    assert stored_config(begin()) == make()


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
    from rlzoo_plus.commands.console import make_console

    run = begin("finished")
    run.write_result({"num_timesteps": 100096, "best": {"mean_return": 41.26}, "reason": "over"})
    print_done(make_console(), plan_run(make()))
    text = " ".join(capsys.readouterr().out.split())
    assert "is finished (over): 100,096 steps, best mean return 41.3." in text
    assert "restart=true" in text


def test_what_is_said_of_a_finished_run_without_its_result_is_no_crash(begin, make, capsys):
    from rlzoo_plus.commands.console import make_console

    begin("finished")
    print_done(make_console(), plan_run(make()))
    assert "100,000 steps" in " ".join(capsys.readouterr().out.split())


# As commands


@pytest.fixture
def start(in_process, monkeypatch, capsys):
    """Return a function: verb and arguments to exit code and message; nothing is trained."""

    def refuse(plan, run_dir, console, problem, *, is_sweep):
        raise TrainedError(plan)

    monkeypatch.setattr(train, "_train", refuse)

    def start_it(verb, *arguments):
        try:
            code = dispatch.run(verb, list(arguments))
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return start_it


def assert_mistake(code, text):
    assert code == 2, text
    assert "Traceback" not in text
    assert 0 < len(text.splitlines()) <= 24


def trained(start, *arguments):
    """Start a command, and return the plan with which it would have trained."""
    with pytest.raises(TrainedError) as reached:
        start(*arguments)
    return reached.value.args[0]


@pytest.mark.training
def test_resume_goes_on_with_the_configuration_of_the_run(start, begin, make):
    begin("interrupted", "seed=7", steps=(128,))
    plan = trained(start, "resume", "run")
    assert plan.start is Start.RESUME
    assert plan.config.seed == 7
    assert plan.config.run_dir == "run"


@pytest.mark.training
def test_resume_adds_its_command_line_to_the_first(start, begin):
    run = begin("interrupted", steps=(128,))
    trained(start, "resume", "run", "log.level=warning")
    lines = run.command_file.read_text().splitlines()
    assert lines == ["the first command", "rlzoo-plus resume run log.level=warning"]
    assert run.read_config()["log"]["level"] == "warning"


@pytest.mark.training
def test_resume_goes_on_also_where_the_run_was_told_never_to(start, begin):
    begin("interrupted", "resume=never", steps=(128,))
    assert trained(start, "resume", "run").start is Start.RESUME


@pytest.mark.training
def test_resume_goes_on_where_the_directory_was_moved_to(start, begin, tmp_path):
    begin("interrupted", steps=(128,)).path.rename(tmp_path / "moved")
    assert trained(start, "resume", "moved").config.run_dir == "moved"


@pytest.mark.training
@pytest.mark.parametrize("n_timesteps", ["200000", "2e5"])
def test_resume_makes_a_finished_run_longer(start, begin, n_timesteps):
    begin("finished", steps=(100_096,))
    config = trained(start, "resume", "run", f"n_timesteps={n_timesteps}").config
    assert (config.n_timesteps, config.eval.every_steps) == (200_000, 5000)


def test_resume_says_that_a_finished_run_is_done(start, begin):
    begin("finished")
    code, text = start("resume", "run")
    assert code == 0
    assert "Nothing to do" in text


@pytest.mark.training
def test_resume_lets_go_of_the_lock_after_an_error(start, begin):
    run = begin("interrupted", steps=(128,))
    trained(start, "resume", "run")
    assert not run.lock.is_held_elsewhere()


MISTAKES = {
    "no value": (["n_timesteps"], ["n_timesteps", "KEY=VALUE"]),
    "no key": (["=3"], ["=3"]),
    "unknown key": (["checkpont.keep=2"], ["checkpont", "'checkpoint'"]),
    "unknown key inside": (["checkpoint.kep=2"], ["checkpoint.kep", "'checkpoint.keep'"]),
    "wrong type": (["n_timesteps=many"], ["n_timesteps=many"]),
    "nothing": (["n_timesteps="], ["n_timesteps"]),
    "shorter": (["n_timesteps=50"], ["n_timesteps: 100000 there, 50 here"]),
    "what decides": (["seed=5"], ["seed: 0 there, 5 here"]),
    "a hyperparameter": (["algo.hyperparams.gamma=0.5"], ["algo.hyperparams.gamma: "]),
    "no mapping": (["checkpoint=3"], ["checkpoint"]),
    "bracket": (["log.level=[info"], ["log.level=[info"]),
    "quotes": (['log.level="info'], ["log.level"]),
    "interpolation": (["log.level=${nowhere}"], ["log.level=${nowhere}"]),
    "unclosed interpolation": (["log.level=${seed"], ["log.level=${seed"]),
    "no such option": (["--keep", "3"], ["--keep"]),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_mistake_in_what_may_change_is_answered_in_one_message(start, begin, mistake):
    overrides, parts = MISTAKES[mistake]
    run = begin("interrupted", steps=(128,))
    before = run.config_file.read_bytes()
    code, text = start("resume", "run", *overrides)
    assert_mistake(code, text)
    for part in parts:
        assert part in text
    assert run.config_file.read_bytes() == before


@pytest.mark.parametrize("name", ["nowhere", ".", "run/config.yaml"])
def test_resume_of_what_is_no_run_is_a_mistake(start, begin, name):
    begin("interrupted")
    code, text = start("resume", name)
    assert_mistake(code, text)
    assert len(text.splitlines()) == 1


def test_resume_without_a_run_is_a_mistake(start):
    assert_mistake(*start("resume"))


def test_resume_of_a_damaged_run_is_a_mistake(start, begin):
    begin("interrupted").config_file.write_text("{")
    code, text = start("resume", "run")
    assert_mistake(code, text)
    assert "config.yaml is damaged" in text


def test_resume_of_a_run_with_damaged_checkpoints_is_a_mistake(start, begin):
    spoil(begin("interrupted", steps=(128,)), 128)
    code, text = start("resume", "run")
    assert_mistake(code, text)
    assert "none of its 1 checkpoints is whole" in text


def test_resume_of_a_run_that_trains_is_a_mistake(start, begin):
    run = begin("running", steps=(128,))
    lock = run.lock
    lock.acquire()
    code, text = start("resume", "run")
    assert_mistake(code, text)
    assert "another process is training there" in text
    lock.release()


@pytest.mark.training
def test_train_restarts_and_keeps_the_run_before_aside(start, begin, tmp_path):
    begin("finished", steps=(128,))
    plan = trained(start, "train", *BASE, "run_dir=run", "restart=true", "n_timesteps=100000")
    assert plan.start is Start.RESTART
    (aside,) = tmp_path.glob("run-before-*")
    assert RunDir(aside).read_status()["state"] == "finished"
    assert RunDir(tmp_path / "run").checkpoints().steps() == []


@pytest.mark.training
def test_train_goes_on_in_its_directory_with_the_same_command(start, begin):
    begin("interrupted", steps=(128,))
    plan = trained(start, "train", *BASE, "run_dir=run", "n_timesteps=100000")
    assert plan.start is Start.RESUME


# checkpoint


def test_a_checkpoint_where_nothing_trains_is_a_mistake_that_tells_the_state(start, begin):
    run = begin("interrupted", steps=(128, 256))
    code, text = start("checkpoint", "run")
    assert_mistake(code, text)
    assert "nothing is training there (state: interrupted)" in text
    assert "newest checkpoint is 256" in text
    assert not run.checkpoint_request.exists()


def test_a_checkpoint_of_a_run_without_any_says_so(start, begin):
    begin("failed")
    code, text = start("checkpoint", "run")
    assert_mistake(code, text)
    assert "It has no checkpoint" in text


@pytest.mark.parametrize("arguments", [["nowhere"], [], ["run", "--timeout", "soon"]])
def test_a_checkpoint_of_no_run_is_a_mistake(start, arguments):
    assert_mistake(*start("checkpoint", *arguments))


def test_a_checkpoint_that_does_not_come_in_time_is_a_mistake(start, begin):
    run = begin("running")
    lock = run.lock
    lock.acquire()
    code, text = start("checkpoint", "run", "--timeout", "0.1")
    lock.release()
    assert_mistake(code, text)
    assert "--timeout" in text
    assert not run.checkpoint_request.exists()


_TRAINER = """
import sys, time
from pathlib import Path
from rlzoo_plus.artifacts.run_dir import RunDir
run = RunDir(Path(sys.argv[1]))
lock = run.lock
assert lock.acquire()
print("ready", flush=True)
while not run.checkpoint_request.exists():
    time.sleep(0.01)
if sys.argv[2] == "saves":
    run.checkpoints().save(512, {"weights": 1}, {})
    run.checkpoint_request.unlink()
    sys.stdin.readline()
"""


@pytest.fixture
def trainer(begin):
    """Return a function that starts a process which holds the run as a training does."""
    started = []

    def start_it(what):
        run = begin("running")
        command = [sys.executable, "-c", _TRAINER, str(run.path), what]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return run

    yield start_it
    for process in started:
        process.kill()
        process.communicate()


def test_a_checkpoint_is_waited_for_and_its_directory_printed(start, trainer):
    run = trainer("saves")
    code, text = start("checkpoint", str(run.path))
    assert code == 0, text
    assert text.strip() == str(run.path / "checkpoints" / "000000000512")


def test_a_training_that_ends_without_a_checkpoint_is_told(start, trainer):
    run = trainer("dies")
    code, text = start("checkpoint", str(run.path))
    assert_mistake(code, text)
    assert "ended before it wrote a checkpoint" in text
    assert not run.checkpoint_request.exists()
