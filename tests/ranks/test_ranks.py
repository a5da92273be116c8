"""Runs of two processes: whole, stopped, killed, refused, and attacked."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.processes import has_ended
from support.resuming import assert_same_in_pieces
from support.training import make_config, start_run, tiny_config, train_run

import rlzoo_plus
from rlzoo_plus import processes
from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import resume, train
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.ranks import rank_zero
from rlzoo_plus.sweeps.sweep_job import busy_cores
from rlzoo_plus.training.exp_manager import ExpManager

TWO = ("distributed=2", "n_envs=4", "algo.hyperparams.n_steps=16", "n_timesteps=256")
WORDS = [
    *("algo=ppo", "env=cartpole_bullet", "tuned=none", "distributed=2", "n_envs=4"),
    *("algo.hyperparams.n_steps=64", "algo.hyperparams.n_epochs=2", "network.net_arch=[8]"),
    *("report.video=false", "report.plot=false", "device=cpu", "eval.episodes=1"),
]


def rows_of(run_dir):
    files = sorted(run_dir.monitor.glob("*.csv"))
    return {file.name: file.read_text().splitlines()[2:] for file in files}


@pytest.mark.training
def test_a_run_of_two_processes_is_an_ordinary_run(tmp_path):
    path = tmp_path / "run"
    words = [*WORDS, f"run_dir={path}", "n_timesteps=1024", "env.kwargs.episode_s=1"]
    assert train.main([*words, "normalize=true"]) == 0
    run = rlzoo_plus.Run.open(path)
    assert run.status == "finished"
    assert run.result["num_timesteps"] == 1024
    assert run.result["exact"] is True
    rows = rows_of(run.run_dir)
    assert rows.keys() == {f"{index}.monitor.csv" for index in range(4)}
    assert all(rows.values())
    # No two environments, of whatever process, have played the same.
    assert len({rows[name][0] for name in rows}) == 4
    logged = {
        record["key"]: record["value"]
        for record in read_records(run.run_dir.metrics_file)
        if record["step"] == 1024
    }
    lengths = [int(row.split(",")[1]) for part in rows.values() for row in part]
    assert logged["rollout/ep_len_mean"] == pytest.approx(np.mean(lengths))
    assert logged["time/total_timesteps"] == 1024
    state = run.run_dir.checkpoints().load_newest().state
    (other,) = state["ranks"]
    assert len(state["envs"]["episodes"]) == len(other["envs"]["episodes"]) == 2
    statistics = [part["envs"]["wrappers"][0] for part in (state, other)]
    for name in ("observation_statistics", "return_statistics"):
        np.testing.assert_equal(statistics[0][name], statistics[1][name])
    assert statistics[0]["return_statistics"]["count"] == pytest.approx(1024, abs=0.01)
    assert run.evaluate(1, n_envs=1)["returns"]
    assert run.load_model().n_envs == 2
    assert "extended" in str(run.resume(quiet=True, n_timesteps=1536).result["inexact_because"])


@pytest.mark.training
@pytest.mark.parametrize(
    ("algo", "more"),
    [
        ("ppo", ["normalize=true", "algo.hyperparams.target_kl=0.001"]),
        pytest.param("a2c", ["normalize=true"], marks=pytest.mark.slow),
        pytest.param("trpo", [], marks=pytest.mark.slow),
        pytest.param("ppo", ["distributed=3", "n_envs=3", "seed=4"], marks=pytest.mark.slow),
    ],
)
def test_stopped_runs_of_several_processes_go_on_bit_for_bit(algo, more, tmp_path):
    size = () if algo == "a2c" else ("algo.hyperparams.batch_size=24",)
    config = tiny_config(algo, "tests/TinyReach-v0", *TWO, "n_timesteps=144", *size, *more)
    run_dir = assert_same_in_pieces(tmp_path, config)
    assert len(run_dir.checkpoints().load_newest().state["ranks"]) == config.distributed - 1


def begun(path, *more):
    """Start a long run as a command; return it when it has a checkpoint."""
    words = [*WORDS, f"run_dir={path}", "n_timesteps=1e6", "eval.every_steps=null"]
    command = [sys.executable, "-m", "rlzoo_plus", "train", *words, "checkpoint.every_steps=256"]
    process = subprocess.Popen(
        [*command, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    end = time.monotonic() + 200
    while not RunDir(path).checkpoints().steps():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)
    return process


def rank_one_of(process):
    """Return the process id of the only child."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_rank_ends_all_with_one_message_and_the_run_resumes(rank, tmp_path):
    path = tmp_path / "run"
    process = begun(path)
    other = rank_one_of(process)
    killed = (process.pid, other)[rank]
    os.kill(killed, signal.SIGKILL)
    # The other rank has the same output, so that this waits for it, too.
    output = process.communicate(timeout=60)[0]
    assert has_ended(other)
    errors = [line for line in output.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert f"rank {rank} (process {killed})" in errors[0]
    assert f"resume {path}" in errors[0]
    assert process.returncode == (1 if rank else -signal.SIGKILL)
    step = RunDir(path).checkpoints().steps()[-1]
    config = rlzoo_plus.Run.open(path).config.model_copy(update={"n_timesteps": step + 256})
    result = ExpManager(config, RunDir(path)).train()
    assert (result.state, result.num_timesteps) == ("finished", step + 256)


LOST = """
import sys
from rlzoo_plus.ranks import other_rank

def take_part(ticket, answers):
    raise other_rank.LeaderLostError

other_rank._take_part = take_part
sys.exit(other_rank.serve({"rank": 1, "leader": 7, "folder": "gone", "run_dir": "a/run"}))
"""


def test_a_rank_that_lost_the_connection_first_still_says_that_rank_zero_has_died():
    process = subprocess.Popen(
        [sys.executable, "-c", LOST],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with pytest.raises(subprocess.TimeoutExpired):
        # It waits for the end of its input, which tells of the death.
        process.wait(5)
    said = process.communicate()[1]
    assert "error: rank 0 (process 7) has died" in said
    assert process.returncode == rank_zero.FOLLOWED


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
def test_ctrl_c_stops_all_ranks_with_a_checkpoint(tmp_path):
    process = begun(tmp_path / "run", "algo.hyperparams.n_steps=32")
    other = rank_one_of(process)
    # A terminal sends it to every process.
    for number in (process.pid, other):
        os.kill(number, signal.SIGINT)
    output = process.communicate(timeout=100)[0]
    assert process.returncode == 130, output
    assert "rank 1" not in output
    assert RunDir(tmp_path / "run").read_status()["state"] == "interrupted"


@pytest.mark.training
def test_a_run_does_not_go_on_with_another_number_of_processes(short_run, tmp_path):
    config, path = short_run
    shutil.copytree(path, tmp_path / "run")
    run_dir = RunDir(tmp_path / "run")
    with pytest.raises(ConfigError, match="distributed: 2 there"):
        resume.main([str(run_dir.path), "distributed=4", "n_timesteps=128", "--trust"])
    other = config.model_copy(update={"distributed": 1, "n_timesteps": 128})
    with pytest.raises(ConfigError, match=r"distributed=1: .* begun with distributed=2.*Write"):
        ExpManager(other, run_dir).train()
    alone, _ = train_run(tmp_path / "alone", other)
    more = other.model_copy(update={"distributed": 2, "n_timesteps": 192})
    with pytest.raises(ConfigError, match="begun with distributed=1"):
        ExpManager(more, alone).train()


@pytest.fixture(scope="module")
def short_run(tmp_path_factory):
    """Return the configuration and the path of a finished run of two processes."""
    config = tiny_config("ppo", "tests/TinyReach-v0", *TWO, "n_timesteps=64")
    run_dir, _ = train_run(tmp_path_factory.mktemp("ranks") / "run", config)
    return config, run_dir.path


def _drop(ranks):
    ranks.clear()


def _method(ranks):
    ranks[0]["agent"]["attributes"]["train"] = 1


def _shape(ranks):
    ranks[0]["agent"]["attributes"]["_last_obs"] = np.zeros((2, 9), np.float32)


def _kind(ranks):
    ranks[0] = "no state"


@pytest.mark.training
@pytest.mark.parametrize(
    ("forge", "reason"),
    [
        (_drop, "it holds 1 of the 2 processes"),
        (_method, "rank 1: .*train"),
        (_shape, "rank 1: "),
        (_kind, "rank 1: "),
    ],
)
def test_a_forged_state_of_another_rank_is_refused(forge, reason, short_run, tmp_path):
    config, path = short_run
    shutil.copytree(path, tmp_path / "run")
    run_dir = RunDir(tmp_path / "run")
    store = run_dir.checkpoints()
    checkpoint = store.load_newest()
    forge(checkpoint.state["ranks"])
    store.save(checkpoint.step, checkpoint.state, dict(checkpoint.about))
    with pytest.raises(ConfigError, match=f"(?s)does not fit this run: .*{reason}"):
        ExpManager(config.model_copy(update={"n_timesteps": 128}), run_dir).train()


@pytest.mark.training
def test_weights_that_differ_end_the_run(tmp_path):
    more = ("callbacks=[support.user_callbacks.MovesWeights]", "eval.every_steps=null")
    config = tiny_config("ppo", "tests/TinyReach-v0", *TWO, "n_timesteps=64", *more)
    run_dir = start_run(tmp_path / "run", config)
    with pytest.raises(RunError, match="the weights of rank 1 differ from those of rank 0"):
        ExpManager(config, run_dir).train()


@pytest.mark.training
def test_a_callback_that_ends_a_rollout_sees_the_steps_of_all_ranks(tmp_path):
    more = ("callbacks=[support.user_callbacks.EndsEarly]", "eval.every_steps=null")
    config = tiny_config("ppo", "tests/TinyReach-v0", *TWO, *more)
    run_dir, result = train_run(tmp_path / "run", config)
    assert result.reason == "a callback ended it"
    assert result.num_timesteps == 5 * config.n_envs
    assert len(run_dir.checkpoints().load_newest().state["ranks"]) == 1


@pytest.mark.training
def test_an_error_in_another_process_names_its_rank(tmp_path, monkeypatch):
    config = tiny_config("ppo", "tests/TinyReach-v0", *TWO)
    broken = processes._CHILD.replace('ticket["path"]\n', 'ticket["path"][:0]\n')
    monkeypatch.setattr(processes, "_CHILD", broken)
    with pytest.raises(RunError, match=r"rank 1 \(process \d+\) ended by itself, with exit code 1"):
        train_run(tmp_path / "run", config)


@pytest.mark.training
def test_a_configuration_that_another_process_refuses_is_the_users_mistake(tmp_path, monkeypatch):
    config = tiny_config("ppo", "tests/TinyReach-v0", *TWO)
    code = 'ticket["config"]["env"]["id"] = "tests/Missing-v0"\nfrom MODULE'
    broken = processes._CHILD.replace("from MODULE", code)
    monkeypatch.setattr(processes, "_CHILD", broken)
    with pytest.raises(ConfigError, match=r"rank 1: .*tests/Missing-v0"):
        train_run(tmp_path / "run", config)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("algo=sac env=pendulum distributed=2", "sac is trained by one process"),
        ("algo=recurrent_ppo env=cartpole distributed=2", "recurrent_ppo is trained by one"),
        ("algo=ppo distributed=2 n_envs=5", "n_envs=5 is no multiple of .* Set it to 6"),
        (
            "algo=ppo distributed=2 n_envs=4 algo.hyperparams.batch_size=63",
            "batch_size=63 is no multiple of .* Set it to 64",
        ),
        ("algo=ppo distributed=2 n_envs=4 fast=true", "Leave one of them out"),
        ("algo=ppo distributed=2 n_envs=4 +cost.limit=1", "learned by one process"),
        ("algo=ppo distributed=2 n_envs=4 device=cuda:1", "a GPU of its own"),
        ("algo=ppo distributed=0", "distributed"),
        ("algo=ppo distributed=1000", "distributed"),
    ],
)
def test_what_several_processes_cannot_train_is_refused(words, message):
    with pytest.raises(ConfigError, match=message):
        make_config(*words.split())


def test_with_cuda_each_process_needs_a_gpu_of_its_own(monkeypatch):
    monkeypatch.setattr(rank_zero.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(rank_zero.torch.cuda, "device_count", lambda: 2)
    assert [rank_zero.device_of("cuda", rank, 2) for rank in range(2)] == ["cuda:0", "cuda:1"]
    assert rank_zero.device_of("auto", 1, 2) == rank_zero.device_of("cpu", 0, 2) == "cpu"
    with pytest.raises(ConfigError, match="torch sees 2 CUDA devices here, and each process"):
        rank_zero.device_of("cuda", 0, 3)


def test_one_process_is_what_it_was():
    alone, same = make_config("algo=ppo"), make_config("algo=ppo", "distributed=1")
    assert config_hash(alone) == config_hash(same)
    assert "distributed" not in alone.model_dump()
    assert alone.whole()["distributed"] == 1


def test_a_job_of_a_sweep_keeps_a_core_busy_for_each_process():
    words = ("algo=ppo", "env=cartpole", "distributed=2", "n_envs=8", "num_threads=1")
    assert busy_cores(make_config(*words)) == 2
    assert busy_cores(make_config(*words, "vec_env=subproc")) == 8
