"""What all jobs of a command need together, against what the machine has."""

import pytest
from support.training import tiny_config

from rlzoo_plus.doctor import advice
from rlzoo_plus.sweeps.launchers.launcher import GIB


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    monkeypatch.setattr(advice.os, "getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)
    monkeypatch.setattr(advice, "cores", lambda: 2)


def big(seed=0, *overrides):
    """A run whose buffer grows to 40 bytes x 100 million, about 3.7 GiB."""
    values = ("algo.hyperparams.buffer_size=100000000", "n_timesteps=100000000")
    return tiny_config("sac", "tests/TinyReach-v0", *values, f"seed={seed}", *overrides)


def check(configs, slots, tmp_path):
    return advice.machine_advice(configs, slots, tmp_path)


def test_memory_counts_the_jobs_that_run_at_once(monkeypatch, tmp_path):
    monkeypatch.setattr(advice, "available_memory_bytes", lambda: 6 * GIB)
    monkeypatch.setattr(advice, "free_disk_bytes", lambda _: 100 * GIB)
    jobs = [big(seed) for seed in range(3)]
    assert check(jobs, 1, tmp_path) == []
    (text,) = check(jobs, 2, tmp_path)
    assert "2 jobs at once grow to 8.0 GiB, and 6.0 GiB are free" in text
    assert "buffer_size lower than 100000000" in text


def test_memory_counts_the_largest_jobs(monkeypatch, tmp_path):
    monkeypatch.setattr(advice, "available_memory_bytes", lambda: 3 * GIB)
    monkeypatch.setattr(advice, "free_disk_bytes", lambda _: 100 * GIB)
    (text,) = check([tiny_config(), big()], 1, tmp_path)
    assert "the run grows to" in text


def test_disk_counts_all_jobs(monkeypatch, tmp_path):
    monkeypatch.setattr(advice, "available_memory_bytes", lambda: None)
    monkeypatch.setattr(advice, "free_disk_bytes", lambda _: 5 * GIB)
    assert check([big()], 1, tmp_path) == []
    (text,) = check([big(0), big(1)], 1, tmp_path)
    assert "checkpoints may take 7.5 GiB, and 5.0 GiB are free" in text


def test_checkpoints_that_stay_for_ever_count(monkeypatch, tmp_path):
    monkeypatch.setattr(advice, "free_disk_bytes", lambda _: 50_000_000)
    monkeypatch.setattr(advice, "available_memory_bytes", lambda: None)
    wide = ("network.net_arch=[256,256]", "n_timesteps=6400")
    assert check([tiny_config("ppo", "tests/TinyReach-v0", *wide)], 1, tmp_path) == []
    many = tiny_config("ppo", "tests/TinyReach-v0", *wide, "checkpoint.milestone_steps=64")
    (text,) = check([many], 1, tmp_path)
    assert text.startswith("disk: ")


def test_a_busy_machine_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(advice.os, "getloadavg", lambda: (2.4, 0.0, 0.0), raising=False)
    (text,) = check([tiny_config()], 1, tmp_path)
    assert "2.4 processes want its 2 cores" in text


def test_a_folder_that_is_not_there_lies_on_the_disk_of_its_parent(tmp_path):
    assert advice.free_disk_bytes(tmp_path / "not" / "there") > 0


def test_the_limit_of_a_container_counts(monkeypatch, tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    (tmp_path / "meminfo").write_text("MemTotal: 90 kB\nMemAvailable:   50 kB\n")
    monkeypatch.setattr(advice, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(advice, "_CGROUP", tmp_path / "nowhere")
    assert advice.available_memory_bytes() == 51200
    monkeypatch.setattr(advice, "_CGROUP", tmp_path)
    assert advice.available_memory_bytes() == 600
    (tmp_path / "memory.max").write_text("max\n")
    assert advice.available_memory_bytes() == 51200
    monkeypatch.setattr(advice, "_MEMINFO", tmp_path / "nowhere")
    assert advice.available_memory_bytes() is None


def test_there_are_no_more_slots_than_jobs(monkeypatch):
    monkeypatch.setattr("rlzoo_plus.sweeps.launchers.usage.cores", lambda: 8)
    jobs = [tiny_config("ppo", "tests/TinyReach-v0", f"seed={seed}") for seed in range(3)]
    assert advice.slots_for(jobs) == 3
    side_by_side = ("vec_env=subproc", "n_envs=4")
    jobs.append(tiny_config("ppo", "tests/TinyReach-v0", *side_by_side))
    assert advice.slots_for(jobs) == 2
