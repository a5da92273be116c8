"""Priorities, exploration and the action log in resumes: nothing is lost, doubled or different."""

import io
import os
import signal
import subprocess
import sys
import time
import zlib

import numpy as np
import pytest
from support.resuming import assert_same_in_pieces, train_with_a_kill
from support.training import bundle_weights, tiny_config, train_run

import rlzoo_plus
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.experience import action_file
from rlzoo_plus.experience.action_file import append_block, iter_blocks, read_actions
from rlzoo_plus.experience.action_log import ActionLog
from rlzoo_plus.runs.load import load

BUFFER = "algo.hyperparams.buffer_size=20"
DISCRETE = "env.kwargs.discrete=true"
CASES = [
    ("dqn", "tests/TinyReach-v0", DISCRETE, "algo.replay_buffer=prioritized", BUFFER),
    ("sac", "tests/TinyReach-v0", "algo.replay_buffer=lap", "algo.hyperparams.n_steps=3", BUFFER),
    ("td3", "tests/TinyReach-v0", "exploration=pink", "exploration.end=0.05", "n_envs=2"),
    ("td3", "tests/TinyReach-v0", "exploration=parameter_noise"),
    ("qrdqn", "tests/TinyReach-v0", DISCRETE, "exploration=boltzmann", "exploration.end=0.1"),
]


@pytest.fixture
def block():
    """Return a function that makes a block of rows."""

    def make(step, count=3):
        return [
            np.full(count, step, np.int64),
            np.arange(count, dtype=np.int32),
            np.full((count, 2), 0.5, np.float32),
            np.full((count, 2), 0.25, np.float32),
            np.zeros(count, bool),
        ]

    return make


@pytest.fixture
def file(tmp_path, block):
    """Return an action log of two blocks."""
    path = tmp_path / "actions.bin"
    append_block(path, block(1))
    append_block(path, block(2))
    return path


@pytest.mark.training
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_run_in_pieces_is_the_same(case, tmp_path):
    algo, env, *more = case
    config = tiny_config(algo, env, *more, "checkpoint.every_steps=16")
    assert_same_in_pieces(tmp_path, config, 3)


@pytest.mark.training
@pytest.mark.parametrize("algo", ["ppo", "sac", "td3"])
def test_the_log_says_what_was_done_and_changes_nothing(algo, tmp_path):
    more = ("n_envs=2", "algo.action_noise={type: normal, std: 0.3}") if algo == "td3" else ()
    of_both = (algo, "tests/TinyReach-v0", *more)
    logged, _ = train_run(tmp_path / "a", tiny_config(*of_both, "log.actions=true"))
    plain, _ = train_run(tmp_path / "b", tiny_config(*of_both))
    ours, others = (bundle_weights(run.final) for run in (logged, plain))
    assert all(np.array_equal(value, others[name]) for name, value in ours.items())
    assert not plain.actions_file.exists()
    found = read_actions(logged.actions_file)
    n_envs = 2 if algo == "td3" else 1
    steps = np.arange(n_envs, 64 + 1, n_envs).repeat(n_envs)
    assert np.array_equal(found["step"], steps)
    assert np.array_equal(found["env"], np.arange(64) % n_envs)
    first = 24 if algo != "ppo" else 0
    assert np.array_equal(found["random"], found["step"] <= first)
    assert np.array_equal(found["noise"], found["action"] - found["greedy"])
    assert np.abs(found["noise"]).max() > 0.05


@pytest.mark.training
@pytest.mark.parametrize("iterations", [(3,), (9,), (9, 2)])
def test_after_a_kill_the_log_has_each_action_once(iterations, tmp_path):
    more = ("log.actions=true", "checkpoint.every_steps=16", "exploration=ou")
    config = tiny_config("td3", "tests/TinyReach-v0", *more)
    whole, _ = train_run(tmp_path / "whole", config)
    killed, _ = train_with_a_kill(tmp_path / "killed", config, *iterations)
    expected, found = (read_actions(run.actions_file) for run in (whole, killed))
    for name, values in expected.items():
        assert np.array_equal(values, found[name]), name


@pytest.mark.slow
def test_after_kill_9_the_log_has_each_action_once(tmp_path):
    words = [
        *("algo=sac", "env=cartpole_bullet", "tuned=none", "n_timesteps=3000", "log.actions=true"),
        *("network.net_arch=[16]", "checkpoint.every_steps=200", "report.plot=false"),
        *("report.video=false", "num_threads=1", "eval.every_steps=null", "n_envs=2"),
    ]
    start = [sys.executable, "-m", "rlzoo_plus", "train", *words]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([*start, f"run_dir={whole}"], check=True, capture_output=True, timeout=120)
    process = subprocess.Popen([*start, f"run_dir={killed}"], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(killed.glob("checkpoints/*/MANIFEST.json")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(30)
    assert not (killed / "result.json").exists()
    resume = [sys.executable, "-m", "rlzoo_plus", "resume", str(killed)]
    subprocess.run(resume, check=True, capture_output=True, timeout=120)
    expected, found = (read_actions(run / "actions.bin") for run in (whole, killed))
    for name, values in expected.items():
        assert np.array_equal(values, found[name]), name


def test_a_block_that_was_cut_short_is_left_out(file):
    data = file.read_bytes()
    for cut in (1, 20):
        file.write_bytes(data[:-cut])
        assert [block["step"].tolist() for block in iter_blocks(file)] == [[1, 1, 1]]


def test_on_a_full_disk_rows_wait_and_none_is_torn(file, block, monkeypatch, caplog):
    size, log = file.stat().st_size, ActionLog(file)
    log._steps = [tuple(block(3)), tuple(block(4))]

    class Full(io.FileIO):
        def write(self, data):
            super().write(data[: len(data) // 2])
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(action_file, "open_to_append", lambda path: Full(path, "ab"))
    log.flush_rows()
    assert "No space left" in caplog.text
    assert file.stat().st_size == size
    monkeypatch.undo()
    log.flush_rows()
    assert read_actions(file)["step"].tolist() == [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3


@pytest.mark.parametrize("place", ["header", "head", "content"])
def test_a_changed_byte_is_refused(place, file):
    data = bytearray(file.read_bytes())
    end = data.index(b"\n") + 1
    at = {"header": 3, "head": end + 3, "content": end + 20}[place]
    data[at] ^= 0x40
    file.write_bytes(data)
    with pytest.raises(ConfigError, match="is damaged"):
        read_actions(file)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]\n",
        b'{"format": 2}\n',
        b'{"format": 1, "columns": [["step", "<O8", []]]}\n',
        b'{"format": 1, "columns": [["step", "<i8", [99999999]]]}\n',
        b"[" * 5000 + b"\n",
    ],
)
def test_a_forged_header_is_refused(header, file):
    file.write_bytes(header)
    with pytest.raises(ConfigError, match="is damaged"):
        read_actions(file)


def test_a_block_that_claims_more_than_it_holds_is_refused(file):
    header = file.read_bytes().split(b"\n")[0] + b"\n"
    rest = b"\0" * 10
    head = (2**20).to_bytes(4, "little") + len(rest).to_bytes(4, "little")
    file.write_bytes(header + head + zlib.crc32(rest).to_bytes(4, "little") + rest)
    with pytest.raises(ConfigError, match="is damaged"):
        read_actions(file)


def test_a_link_is_neither_written_nor_read(tmp_path, block, file):
    link = tmp_path / "link.bin"
    link.symlink_to(file)
    before = file.read_bytes()
    with pytest.raises(ConfigError, match="link"):
        append_block(link, block(3))
    with pytest.raises(ConfigError, match="link"):
        read_actions(link)
    assert file.read_bytes() == before


@pytest.mark.parametrize("algo", ["recurrent_ppo", "ars"])
def test_algorithms_whose_actions_cannot_be_logged_are_refused(algo):
    with pytest.raises(ConfigError, match=f"the actions of {algo} cannot be logged"):
        load(["env=cartpole_bullet", f"algo={algo}", "log.actions=true"])


@pytest.mark.training
def test_inspect_prints_the_last_actions(tmp_path, answer):
    run, _ = train_run(tmp_path / "a", tiny_config("sac", "tests/TinyReach-v0", "log.actions=true"))
    assert len(rlzoo_plus.Run.open(str(run.path), trust=True).actions()["step"]) == 64
    code, text = answer("inspect", str(run.path), "--actions", "3", "--trust")
    lines = text.splitlines()[-4:]
    assert code == 0, text
    assert lines[0].split() == ["step", "env", "action", "greedy", "random", "noise"]
    assert [line.split()[0] for line in lines[1:]] == ["62", "63", "64"]
    run.actions_file.unlink()
    code, text = answer("inspect", str(run.path), "--actions", "3", "--trust")
    assert code != 0
    assert "has no action log. Train with log.actions=true" in text


@pytest.mark.training
def test_an_encrypted_run_resumes_exactly_and_writes_nothing_in_plain(tmp_path, monkeypatch):
    monkeypatch.setenv("ROBOT_KEY", "5a" * 32)
    words = ("encryption=ROBOT_KEY", "log.actions=true", BUFFER)
    config = tiny_config("sac", "tests/TinyReach-v0", *words)
    run_dir = assert_same_in_pieces(tmp_path, config).path
    written = [p for p in (run_dir / "checkpoints").rglob("*") if p.is_file()]
    for path in written:
        if path.suffix == ".safetensors" or path.parent.name == "chunks":
            assert path.read_bytes().startswith(b"rlzoo-encrypted-1 ROBOT_KEY ")
    assert b"rlzoo-encrypted-1 ROBOT_KEY " in (run_dir / "actions.bin").read_bytes()
    assert len(read_actions(run_dir / "actions.bin")["action"]) == config.n_timesteps
    monkeypatch.setenv("ROBOT_KEY", "5b" * 32)
    with pytest.raises(ConfigError, match="not the one"):
        read_actions(run_dir / "actions.bin")
