"""Runs that collect and learn in two processes: whole, stopped, killed, refused, and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.vec_env import DummyVecEnv
from support.processes import has_ended
from support.tiny_envs import TinyReach
from support.training import make_config, start_run, tiny_config

import rlzoo_plus
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import resume, train, verify_resume
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.learner import collecting_process, fed_env, log_segments
from rlzoo_plus.learner.collecting_process import RecordedVecEnv
from rlzoo_plus.learner.fed_env import FedVecEnv, Feed
from rlzoo_plus.learner.log_segments import FOLDER, SegmentReader, SegmentWriter, begin_at
from rlzoo_plus.learner.transition_log import Layout, Transition
from rlzoo_plus.sweeps.sweep_job import busy_cores
from rlzoo_plus.training.exp_manager import manager_of

SPACE = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
LAYOUT = Layout(SPACE, SPACE)
ENV = "tests/TinyReach-v0"


def trained(path, config, stop=None):
    return manager_of(config)(config, start_run(path, config), stop).train()


def transitions(run_dir):
    """Return all transitions of a run, which are in one segment, and its agent."""
    agent = rlzoo_plus.Run.open(run_dir, trust=True).load_model()
    layout = Layout(agent.env.observation_space, agent.env.action_space)
    reader, rows = SegmentReader(run_dir / FOLDER, layout, 0, lambda: 0), []
    while (row := reader.row(len(rows))) is not None:
        rows.append(row)
    reader.close()
    return rows, agent


def check_that_each_transition_is_learned_from_once(run_dir):
    rows, agent = transitions(run_dir)
    buffer, n_envs = agent.replay_buffer, agent.n_envs
    assert [row.number for row in rows] == list(range(len(rows)))
    taken = rows[: agent.num_timesteps]
    assert len(taken) == buffer.pos * n_envs == agent.num_timesteps
    of = {
        "observations": lambda row: row.observation,
        "next_observations": lambda row: row.next_observation,
        "rewards": lambda row: np.float32(row.reward),
        "dones": lambda row: np.float32(row.done),
        "timeouts": lambda row: np.float32(row.truncated),
    }
    for name, value in of.items():
        stored = getattr(buffer, name)[: buffer.pos]
        wanted = np.stack([value(row) for row in taken]).reshape(stored.shape)
        if name not in ("dones", "timeouts"):
            # SB3 rounds what it normalises and then takes back.
            np.testing.assert_allclose(stored, wanted, rtol=1e-6, err_msg=name)
        else:
            # A running episode ends where a session does.
            assert (stored >= wanted).all()
    # What an environment observed is where its next transition begins.
    for row, following in zip(rows, rows[n_envs:], strict=False):
        if not following.is_first:
            seen = row.next_observation if row.following is None else row.following
            np.testing.assert_array_equal(seen, following.observation)
    return rows


@pytest.mark.training
@pytest.mark.parametrize(
    ("algo", "env", "more"),
    [
        ("sac", ENV, ["n_envs=2", "normalize=true"]),
        ("dqn", ENV, ["+env.kwargs.discrete=true", "algo.hyperparams.exploration_fraction=0.5"]),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("td3", ENV, ["algo.hyperparams.train_freq=[1,episode]"]),
                ("crossq", ENV, ["n_envs=2", "algo.hyperparams.train_freq=16"]),
                ("tqc", ENV, ["algo.hyperparams.use_sde=true"]),
            ]
        ),
    ],
)
def test_a_run_of_two_processes_is_an_ordinary_run(algo, env, more, tmp_path):
    config = tiny_config(algo, env, "asynchronous=8", "n_timesteps=96", "log.interval=1", *more)
    result = trained(tmp_path / "run", config)
    assert (result.state, result.num_timesteps >= 96) == ("finished", True)
    assert result.exact is False
    assert "another process acted" in result.inexact_because[0]
    rows = check_that_each_transition_is_learned_from_once(tmp_path / "run")
    # What may wait bounds how old the weights are; an iteration is learned from as a whole.
    values = config.algo.hyperparams
    every = values["train_freq"] if isinstance(values["train_freq"], int) else 20
    lags = [row.number - row.weights_step for row in rows]
    assert min(lags) >= 0
    assert max(lags) <= 8 + (every + 1) * config.n_envs
    run = rlzoo_plus.Run.open(tmp_path / "run", trust=True)
    logged = [json.loads(line) for line in run.run_dir.metrics_file.read_text().splitlines()]
    for name in ("policy_lag", "policy_lag_updates", "queue_fill"):
        assert [one for one in logged if one["key"] == f"learner/{name}"], name
    assert run.evaluate(1, n_envs=1)["returns"]


@pytest.mark.training
def test_the_ratio_of_updates_is_kept_and_updates_are_recorded(tmp_path, caplog):
    caplog.set_level("INFO")
    more = ("algo.hyperparams.train_freq=1", "algo.hyperparams.gradient_steps=2")
    config = tiny_config("sac", ENV, "asynchronous=true", *more)
    assert trained(tmp_path / "run", config).state == "finished"
    agent = rlzoo_plus.Run.open(tmp_path / "run", trust=True).load_model()
    assert agent._n_updates == 2 * (64 - 24)
    assert "are not recorded" not in caplog.text


@pytest.mark.training
def test_a_run_that_is_made_longer_goes_on_from_what_was_collected(tmp_path):
    path = tmp_path / "run"
    config = tiny_config("sac", ENV, "asynchronous=16", "eval.every_steps=null")
    trained(path, config)
    before, _ = transitions(path)
    assert len(before) >= 64
    assert resume.main([str(path), "n_timesteps=128", "--trust"]) == 0
    after = check_that_each_transition_is_learned_from_once(path)
    assert [row.reward for row in after[: len(before)]] == [row.reward for row in before]
    # The new session begins an episode after all that was collected, not after the checkpoint.
    assert [row.number for row in after if row.is_first] == [0, len(before)]
    seeds = [row.observation.tolist() for row in after if row.is_first]
    assert seeds[0] != seeds[1]
    assert RunDir(path).read_result()["exact"] is False


def begun(path, *more):
    """Start a long run as a command; return it, and what collects, when it has a checkpoint."""
    words = ["algo=sac", "env=cartpole_bullet", "tuned=none", "network.net_arch=[8]"]
    words += ["algo.hyperparams.learning_starts=20", "asynchronous=true", f"run_dir={path}"]
    words += ["n_timesteps=1e6", "eval.every_steps=null", "checkpoint.every_steps=100", *more]
    command = [sys.executable, "-m", "rlzoo_plus", "train", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    end = time.monotonic() + 200
    while not RunDir(path).checkpoints().steps():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return process, int(children[0])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
@pytest.mark.parametrize("who", ["learns", "collects"])
def test_a_killed_process_ends_all_with_one_message_and_nothing_saved_is_lost(who, tmp_path):
    path = tmp_path / "run"
    process, other = begun(path)
    os.kill({"learns": process.pid, "collects": other}[who], signal.SIGKILL)
    output = process.communicate(timeout=100)[0]
    assert has_ended(other)
    if who == "collects":
        errors = [line for line in output.splitlines() if line.startswith("error:")]
        assert len(errors) == 1
        assert "the process that collects has ended: it was killed by SIGKILL" in errors[0]
        assert f"resume {path}" in errors[0]
    assert process.returncode == (1 if who == "collects" else -signal.SIGKILL)
    before, agent = transitions(path)
    assert agent.num_timesteps <= len(before)
    stored = rlzoo_plus.Run.open(path).config
    config = stored.model_copy(update={"n_timesteps": len(before) + 100})
    assert manager_of(config)(config, RunDir(path)).train().state == "finished"
    rows = check_that_each_transition_is_learned_from_once(path)
    assert [row.reward for row in rows[: len(before)]] == [row.reward for row in before]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
def test_ctrl_c_stops_both_with_a_checkpoint(tmp_path):
    process, other = begun(tmp_path / "run")
    # A terminal or a scheduler may send it to every process.
    for number in (other, process.pid):
        os.kill(number, signal.SIGINT)
    output = process.communicate(timeout=100)[0]
    assert process.returncode == 130, output
    assert "error" not in output
    assert has_ended(other)
    assert RunDir(tmp_path / "run").read_status()["state"] == "interrupted"


@pytest.mark.training
def test_an_error_of_the_environment_is_told_as_that_of_the_process_that_collects(tmp_path):
    config = tiny_config("sac", "tests/TinyBroken-v0", "asynchronous=true")
    with pytest.raises(RunError, match=r"the process that collects has ended: .*gearbox broke"):
        trained(tmp_path / "run", config)


def test_verify_resume_refuses_it_in_one_line():
    with pytest.raises(ConfigError, match="how old its weights were is not repeatable") as caught:
        verify_resume.main(["algo=sac", "env=cartpole_bullet", "asynchronous=true"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("algo=ppo asynchronous=true", "ppo cannot learn from what older weights did"),
        ("algo=her asynchronous=true", "her cannot learn from what older weights did"),
        ("algo=sac algo.replay_buffer=her asynchronous=true", "algo.replay_buffer with"),
        ("algo=sac asynchronous=true log.actions=true", "log.actions with asynchronous=true"),
        (
            "algo=dqn env.kwargs.discrete=true asynchronous=1 exploration=boltzmann",
            "another process",
        ),
        ("algo=sac asynchronous=3 n_envs=4", "asynchronous=3 is below n_envs=4.*at least 4"),
        ("algo=sac asynchronous=true distributed=2", "sac is trained by one process"),
        ("algo=sac asynchronous=true +cost.limit=1", "cost with asynchronous=true"),
        ("algo=sac asynchronous=-1", "asynchronous"),
        ("algo=sac asynchronous=maybe", "asynchronous"),
    ],
)
def test_what_cannot_be_collected_apart_is_refused_before_anything_is_written(
    words, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=message):
        train.main(words.split())
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_it_keeps_its_hash_and_one_with_it_has_another():
    alone, same = make_config("algo=sac"), make_config("algo=sac", "asynchronous=false")
    other = make_config("algo=sac", "asynchronous=true", "num_threads=1")
    assert config_hash(alone) == config_hash(same) != config_hash(other)
    assert "asynchronous" not in alone.model_dump()
    assert busy_cores(other) == 2


class Recorder:
    """Notes what is written, as transitions of a step each."""

    def __init__(self):
        self.steps = []

    def __call__(self, rows):
        first = len(self.steps) * len(rows)
        self.steps.append([Transition(first + n, 0, **row) for n, row in enumerate(rows)])

    def rows(self):
        return self.steps[0]


def test_what_was_recorded_is_stepped_again_the_same():
    recorder = Recorder()
    venv = RecordedVecEnv(DummyVecEnv([TinyReach, TinyReach]), recorder)
    venv.seed(3)
    rng, seen, expected = np.random.default_rng(0), venv.reset(), []
    for number in range(60):
        actions = rng.uniform(-1, 1, (2, *venv.action_space.shape)).astype(np.float32)
        if number == 7:
            # From now on their episodes end at different times.
            venv.envs[0].steps = 0
        expected.append((*venv.step(actions), actions))
    fed = FedVecEnv(venv.observation_space, venv.action_space, 2)
    fed.feed = recorder
    np.testing.assert_array_equal(fed.reset(), seen)
    ends = 0
    for observations, rewards, dones, infos, actions in expected:
        found = fed.step(np.zeros_like(actions))
        np.testing.assert_array_equal(found[0], observations)
        np.testing.assert_array_equal(found[1], rewards)
        np.testing.assert_array_equal(found[2], dones)
        for one, other in zip(found[3], infos, strict=True):
            for key in ("terminal_observation", "TimeLimit.truncated"):
                if dones.any():
                    np.testing.assert_array_equal(one.get(key, 0), other.get(key, 0))
        np.testing.assert_array_equal([row.action for row in recorder.steps[0]], actions)
        ends += dones.sum()
        recorder.steps.pop(0)
    assert ends > 2


def row_of(number):
    array = np.full(2, number, np.float32)
    return Transition(number, 0, number == 0, False, False, float(number), array, array, array, {})


def test_a_log_in_segments_is_read_across_them_and_loses_what_no_resume_needs(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(log_segments, "SEGMENT_BYTES", 700)
    folder = tmp_path / "log"
    assert begin_at(folder, LAYOUT, 0) == 0
    reader, needed = SegmentReader(folder, LAYOUT, 0, lambda: needed[0]), [0]
    writer = SegmentWriter(folder, LAYOUT)
    for number in range(0, 40, 2):
        writer.add(row_of(number), row_of(number + 1))
    monkeypatch.setattr("rlzoo_plus.learner.child_process._PATIENCE_S", 0.0)
    with pytest.raises(RunError, match="does not end"):
        begin_at(folder, LAYOUT, 0)
    writer.close()
    firsts = log_segments.firsts_in(folder)
    assert firsts == [0, 10, 20, 30]
    for number in range(20):
        assert reader.row(number).reward == number
    assert log_segments.firsts_in(folder) == firsts
    needed[0] = firsts[2] + 1
    for number in range(20, 40):
        assert reader.row(number).reward == number
    assert reader.row(40) is None
    reader.close()
    assert log_segments.firsts_in(folder) == firsts[2:]
    # A session goes on where a checkpoint is, if the log reaches from there to its end.
    assert begin_at(folder, LAYOUT, firsts[3] + 1, 2) == 40
    again = SegmentWriter(folder, LAYOUT)
    assert again.count == 40
    again.close()
    # It cannot for one that is older, or newer, than it.
    assert begin_at(folder, LAYOUT, 50) == 50
    assert log_segments.firsts_in(folder) == [50]
    assert begin_at(folder, LAYOUT, 10) == 10


def test_a_step_that_was_written_in_part_is_cut_off(tmp_path):
    folder = tmp_path / "log"
    begin_at(folder, LAYOUT, 0, 3)
    writer = SegmentWriter(folder, LAYOUT)
    writer.add(*map(row_of, range(3)))
    writer.add(row_of(3), row_of(4))
    writer.close()
    assert begin_at(folder, LAYOUT, 0, 3) == 3
    writer = SegmentWriter(folder, LAYOUT)
    writer.add(*map(row_of, range(3, 6)))
    writer.close()
    reader = SegmentReader(folder, LAYOUT, 3, lambda: 0)
    assert [reader.row(number).number for number in range(3, 6)] == [3, 4, 5]


def test_a_log_of_another_or_behind_a_link_is_refused(tmp_path):
    folder = tmp_path / "log"
    begin_at(folder, LAYOUT, 0)
    with pytest.raises(ConfigError, match="is of other observations or actions"):
        begin_at(folder, Layout(gym.spaces.Box(-1.0, 1.0, (3,), np.float32), SPACE), 0)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(ConfigError, match="link"):
        begin_at(tmp_path / "link", LAYOUT, 0)
    path = next(folder.glob("*.bin"))
    path.write_bytes(path.read_bytes() + b"\xff" + bytes(400))
    with pytest.raises(ConfigError, match="is damaged"):
        begin_at(folder, LAYOUT, 0)


def test_who_collects_has_no_replay_buffer_of_the_runs_size_and_no_device():
    config = tiny_config("sac", ENV, "asynchronous=true", "fast=true")
    acting = collecting_process._acting_only(config, 2)
    assert acting.algo.hyperparams["buffer_size"] == 2000
    assert (acting.device, acting.fast, acting.record_updates) == ("cpu", False, False)
    assert config.algo.hyperparams["buffer_size"] == 500


def test_the_rates_of_a_resumed_run_count_from_where_it_begins(monkeypatch):
    logged, nothing = {}, lambda *_: None
    clock = SimpleNamespace(monotonic=iter([10.0, 12.0]).__next__)
    monkeypatch.setattr(fed_env, "time", clock)
    monkeypatch.setattr(fed_env, "pack_weights", lambda _: b"")
    logger = SimpleNamespace(record=logged.__setitem__)
    agent = SimpleNamespace(num_timesteps=1000, _n_updates=900, logger=logger)
    feed = Feed(None, SimpleNamespace(publish=nothing, note=nothing), nothing, nothing)
    feed._agent = agent
    feed._hand_over()
    assert logged == {}
    agent.num_timesteps, agent._n_updates = 1010, 908
    feed._hand_over()
    assert logged == {"learner/steps_per_s": 5.0, "learner/updates_per_s": 4.0}
