"""`train`, `resume` and `checkpoint`, called on a directory that holds a run already."""

import subprocess
import sys

import pytest

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.runs import train_job as job
from rlzoo_plus.runs.plan import Start


class TrainedError(Exception):
    """Training would have begun."""


@pytest.fixture
def start(answer, monkeypatch):
    """Return a function: verb and arguments to exit code and message; nothing is trained."""

    claim, plans = job.claim_run_dir, []

    def noted(plan, *rest):
        plans.append(plan)
        return claim(plan, *rest)

    def refuse(*_):
        raise TrainedError(plans[-1])

    monkeypatch.setattr(job, "claim_run_dir", noted)
    monkeypatch.setattr(job, "print_header", refuse)
    return answer


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
def test_resume_lets_go_of_the_lock_after_an_error(start, begin):
    run = begin("interrupted", steps=(128,))
    trained(start, "resume", "run")
    assert not run.lock.is_held_elsewhere()


MISTAKES = {
    "no value": (["n_timesteps"], ["n_timesteps", "KEY=VALUE"]),
    "no key": (["=3"], ["=3"]),
    "unknown key": (["checkpont.keep=2"], ["checkpont", "'checkpoint.keep'"]),
    "unknown key inside": (["checkpoint.kep=2"], ["checkpoint.kep", "'checkpoint.keep'"]),
    "wrong type": (["n_timesteps=many"], ["n_timesteps=many"]),
    "nothing": (["n_timesteps="], ["n_timesteps"]),
    "what decides": (["seed=5"], ["seed: 0 there, 5 here"]),
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


@pytest.mark.training
def test_train_restarts_and_keeps_the_run_before_aside(start, begin, base, tmp_path):
    begin("finished", steps=(128,))
    plan = trained(start, "train", *base, "run_dir=run", "restart=true", "n_timesteps=100000")
    assert plan.start is Start.RESTART
    (aside,) = tmp_path.glob("run-before-*")
    assert RunDir(aside).read_status()["state"] == "finished"
    assert RunDir(tmp_path / "run").checkpoints().steps() == []


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
