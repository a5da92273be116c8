"""Learning while another process acts: whole runs, deaths of either process, and its queue."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import rlzoo_plus
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import run_robot
from rlzoo_plus.envs.factory import make_eval_env
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.learner.learning import Learning, check
from rlzoo_plus.learner.transition_log import FILE, Layout, LogReader, LogWriter
from rlzoo_plus.learner.weights_board import Board, pack_weights
from rlzoo_plus.runs.load import load
from rlzoo_plus.runs.plan import plan_run
from rlzoo_plus.runs.run import runs_below

TASK = ["env=cartpole_swingup", "env.kwargs.engine=mujoco"]
SMALL = ["network.net_arch=[8]", "algo.hyperparams.learning_starts=20", "report.video=false"]
ON_THE_SIMULATED_CLOCK = ["--learn", "--driver", "sim", "--set", "clock=simulated"]


def words_of(run_dir, steps, *more, algo="sac"):
    words = [*TASK, *SMALL, f"algo={algo}", f"run_dir={run_dir}", f"n_timesteps={steps}"]
    session = run_dir.parent / f"session{len(list(run_dir.parent.glob('session*')))}"
    return [*words, "num_threads=1", *more, *ON_THE_SIMULATED_CLOCK, "--out", str(session)]


def transitions(run_dir):
    venv = rlzoo_plus.Run.open(run_dir).env()
    layout = Layout(venv.observation_space, venv.action_space)
    venv.close()
    reader = LogReader(run_dir / FILE, layout)
    return [reader.row(number) for number in range(LogReader(run_dir / FILE, layout).count())]


def check_that_each_transition_is_learned_from_once(run_dir):
    rows = transitions(run_dir)
    agent = rlzoo_plus.Run.open(run_dir).load_model()
    buffer = agent.replay_buffer
    assert [row.number for row in rows] == list(range(len(rows)))
    assert agent.num_timesteps == buffer.pos == len(rows)
    for name, of in (
        ("observations", lambda row: row.observation),
        ("next_observations", lambda row: row.next_observation),
        ("actions", lambda row: row.action),
    ):
        stored = getattr(buffer, name)[: len(rows), 0]
        np.testing.assert_array_equal(stored, np.stack([of(row) for row in rows]))
    rewards = np.array([row.reward for row in rows], np.float32)
    np.testing.assert_array_equal(buffer.rewards[: len(rows), 0], rewards)
    for row, following in itertools.pairwise(rows):
        # What came of one step is what the next begins with, unless an episode does.
        if not following.is_first:
            assert not row.done
            np.testing.assert_array_equal(row.next_observation, following.observation)
    return rows


@pytest.mark.training
@pytest.mark.parametrize(
    "algo", ["sac", *(pytest.param(name, marks=pytest.mark.slow) for name in ("td3", "crossq"))]
)
def test_a_run_that_learned_on_a_robot_is_an_ordinary_run(algo, tmp_path):
    run_dir = tmp_path / "run"
    more = ["eval.every_steps=60", "eval.episodes=1", "log.interval=1", "env.kwargs.episode_s=1"]
    more += ["algo.hyperparams.gradient_steps=2"]
    assert run_robot.main(words_of(run_dir, 120, *more, algo=algo)) == 0
    rows = check_that_each_transition_is_learned_from_once(run_dir)
    assert len(rows) == 120
    run = rlzoo_plus.Run.open(run_dir)
    assert run.status == "finished"
    assert run.result["exact"] is False
    assert "another process acted" in run.result["inexact_because"][0]
    # The ratio of updates to steps is that of the configuration.
    assert run.load_model()._n_updates == 2 * (120 - 20)
    # On the simulated clock a step waits until at most so many are to be learned from.
    lags = [row.number - row.weights_step for row in rows]
    assert 0 <= min(lags) <= max(lags) <= 8
    logged = [json.loads(line) for line in run.run_dir.metrics_file.read_text().splitlines()]
    for name in ("learner/policy_lag", "learner/queue_fill"):
        values = [one["value"] for one in logged if one["key"] == name]
        assert values
        assert 0 <= min(values) <= max(values) <= 9
    assert [one["step"] for one in map(json.loads, run.run_dir.evaluations_file.open())][-1] == 120
    assert run.evaluate(1, n_envs=1)["returns"]
    assert [one.path for one in runs_below(tmp_path)] == [run_dir]
    if algo != "sac":
        return
    # It may go on in simulation, and then no more there.
    assert run.resume(quiet=True, n_timesteps=125).status == "finished"
    with pytest.raises(ConfigError, match="was trained beyond its 120 transitions"):
        run_robot.main(words_of(run_dir, 150, *more))


@pytest.mark.slow
@pytest.mark.parametrize("who", ["acts", "learns", "both"])
def test_after_a_kill_the_next_start_goes_on(who, tmp_path):
    run_dir = tmp_path / "run"
    more = ["eval.every_steps=null", "checkpoint.every_steps=50"]
    words = words_of(run_dir, 400, *more)
    process = subprocess.Popen([sys.executable, "-m", "rlzoo_plus", "run-robot", *words])
    end, sizes = time.monotonic() + 300, 0
    while sizes < 12_000:
        assert time.monotonic() < end
        assert process.poll() is None
        time.sleep(0.01)
        sizes = (run_dir / FILE).stat().st_size if (run_dir / FILE).is_file() else 0
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    learner = [
        int(pid) for pid in children if b"learner" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(learner) == 1
    chosen = {"acts": [process.pid], "learns": learner, "both": [process.pid, *learner]}[who]
    for pid in chosen:
        os.kill(pid, signal.SIGKILL)
    code = process.wait()
    assert code == (1 if who == "learns" else -signal.SIGKILL)
    if who == "learns":
        report = json.loads((tmp_path / "session0" / "report.json").read_text())
        assert report["ended"].startswith("learning has ended: the process that learns has ended")
    before = transitions(run_dir)
    assert run_robot.main(words_of(run_dir, 400, *more)) == 0
    rows = check_that_each_transition_is_learned_from_once(run_dir)
    assert len(rows) == 400
    assert [row.reward for row in rows[: len(before)]] == [row.reward for row in before]
    assert rows[len(before)].is_first
    # A longer run goes on from what is there, without its words.
    again = [str(run_dir), "n_timesteps=450", *ON_THE_SIMULATED_CLOCK]
    assert run_robot.main([*again, "--out", str(tmp_path / "more")]) == 0
    assert len(check_that_each_transition_is_learned_from_once(run_dir)) == 450


@pytest.mark.slow
def test_it_begins_with_the_weights_of_an_earlier_policy(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    quick = ["eval.every_steps=null", "env.kwargs.episode_s=1"]
    assert run_robot.main(words_of(first, 25, *quick)) == 0
    more = [f"init_from={first}", "init.which=final", "algo.hyperparams.learning_starts=1000"]
    assert run_robot.main(words_of(second, 5, *quick, *more)) == 0
    policies = [rlzoo_plus.Run.open(path).policy("final") for path in (first, second)]
    weights = [policy.network.state_dict() for policy in policies]
    assert all((weights[0][name] == weights[1][name]).all() for name in weights[0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["algo=ppo"], "algo=ppo cannot learn from what older weights did"),
        (["algo=her"], "algo=her cannot learn from what older weights did"),
        (["algo=sac", "algo.replay_buffer=her"], "Set algo.replay_buffer=null"),
        (["algo=sac", "n_envs=2"], "n_envs=2 does not work with --learn. Set n_envs=1"),
        (["algo=td3", "exploration=parameter_noise"], "exploration.kind=parameter_noise does not"),
        (["algo=sac", "log.actions=true"], "log.actions=True does not work with --learn"),
        (["algo=sac", "asynchronous=true"], "Set asynchronous=False"),
        (["algo=sac", "env.frame_stack=2"], "Set env.frame_stack=1"),
    ],
)
def test_runs_that_cannot_be_learned_so_are_refused_by_name(words, message):
    with pytest.raises(ConfigError, match=message):
        check(load([*TASK, *words]))


@pytest.mark.parametrize(
    ("every", "steps"), [("4", 1000), ("[6,step]", 1002), ("[1,episode]", 1000)]
)
def test_a_run_takes_whole_iterations(every, steps):
    words = ["algo=sac", "n_timesteps=1000", f"algo.hyperparams.train_freq={every}"]
    assert Learning(plan_run(load([*TASK, *words])), "", 5)._n_steps == steps


def test_iterations_of_several_episodes_are_refused():
    config = load([*TASK, "algo=sac", "algo.hyperparams.train_freq=[2,episode]"])
    with pytest.raises(ConfigError, match=r"train_freq=\[2, 'episode'\] does not work"):
        Learning(plan_run(config), "", 5)


def test_options_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sim = ["--driver", "sim"]
    with pytest.raises(ConfigError, match="--queue has no effect without --learn"):
        run_robot.main(["trained/cartpole_bullet", "--queue", "5", *sim])
    with pytest.raises(ConfigError, match="--dry-run does not go with --learn"):
        run_robot.main(["algo=sac", "--learn", "--dry-run", *sim])
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    run.start(load([*TASK, "algo=sac", f"run_dir={run.path}"]).whole(), "train", {})
    with pytest.raises(ConfigError, match=r"has not learned on a robot. Begin a new run from it"):
        run_robot.main([str(run.path), "--learn", *sim])


@pytest.fixture
def stage(tmp_path):
    """Return a function that makes a session whose learner is played by the test."""
    closed = []

    def made(*, queue, is_stepped, steps=1000):
        config = load([*TASK, *SMALL, "algo=sac", f"n_timesteps={steps}"])
        learning = Learning(plan_run(config), "", queue)
        venv = make_eval_env(config.env, 1)
        closed.append(venv)
        learning.join(venv, is_stepped=is_stepped)
        learning._log = LogWriter(tmp_path / FILE, learning._layout)
        learning._board = Board(len(pack_weights(learning._agent)))
        learning._process = SimpleNamespace(poll=lambda: None, returncode=None)
        return learning, venv

    yield made
    for venv in closed:
        venv.close()


def act(learning, venv, seen, starts):
    action, _ = learning.predict(seen, None, np.array([starts]), True, None)
    return venv.step(action)


def test_in_real_time_a_full_queue_ends_the_episode_and_the_next_one_waits(stage):
    learning, venv = stage(queue=5, is_stepped=False)
    seen, done, steps = venv.reset(), [False], 0
    while not done[0]:
        seen, _, done, infos = act(learning, venv, seen, steps == 0)
        steps += 1
    assert steps == 5
    assert infos[0]["end_reason"] == "queue_full"
    assert infos[0]["TimeLimit.truncated"]
    waits = threading.Thread(target=learning.wait_between_episodes, daemon=True)
    waits.start()
    learning._board.note(2, 0)
    waits.join(0.1)
    assert waits.is_alive()
    learning._board.note(3, 0)
    waits.join(10)
    assert not waits.is_alive()


def test_on_a_simulated_clock_each_step_waits_for_room(stage):
    learning, venv = stage(queue=2, is_stepped=True)
    seen = venv.reset()
    for number in range(2):
        seen, _, done, _ = act(learning, venv, seen, number == 0)
        assert not done[0]
    waits = threading.Thread(target=act, args=(learning, venv, seen, False), daemon=True)
    waits.start()
    waits.join(0.1)
    assert waits.is_alive()
    assert learning.step == 2
    learning._board.note(1, 0)
    waits.join(10)
    assert learning.step == 3


def test_the_newest_weights_act_and_each_transition_says_which(stage, tmp_path):
    learning, venv = stage(queue=100, is_stepped=False)
    seen = venv.reset()
    other, _ = stage(queue=1, is_stepped=False)
    act(learning, venv, seen, True)
    learning._board.publish(pack_weights(other._agent), 1)
    act(learning, venv, seen, False)
    rows = LogReader(tmp_path / FILE, learning._layout)
    assert [rows.row(number).weights_step for number in range(2)] == [0, 1]
    assert pack_weights(learning._agent) == pack_weights(other._agent)


def test_all_steps_are_taken_and_no_more(stage):
    learning, venv = stage(queue=100, is_stepped=False, steps=3)
    seen = venv.reset()
    ends = []
    for number in range(3):
        seen, _, done, infos = act(learning, venv, seen, number == 0)
        ends.append(bool(done[0]))
    assert ends == [False, False, True]
    assert infos[0]["end_reason"] == "all_steps"
    assert learning.is_over


def test_a_dead_learner_is_named(stage):
    learning, _ = stage(queue=2, is_stepped=False)
    learning._process = SimpleNamespace(
        poll=lambda: -9, returncode=-9, last_words=lambda: "signal 9"
    )
    with pytest.raises(RunError, match="the process that learns has ended: signal 9"):
        learning.look()
