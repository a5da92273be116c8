"""`profile`: phases add up to the time that training took, and weights stay identical."""

import json
import re
import threading
import time

import numpy as np
import pytest
from support.training import make_config, tiny_config, train_run

from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.profiler import PHASES, Sampler, phase_table, phase_times


class BaseBuffer:
    def sample(self, event):
        event.wait(0.3)


def _as(path, function):
    """Return a function whose code says that it is in another file."""
    function.__code__ = function.__code__.replace(co_filename=path)
    return function


def test_a_thread_is_charged_for_what_it_does_by_the_functions_on_its_stack():
    event = threading.Event()
    BaseBuffer.sample = _as("/site/stable_baselines3/common/buffers.py", BaseBuffer.sample)

    def train():
        event.wait(0.6)
        BaseBuffer().sample(event)

    sampler = Sampler(interval_s=0.002)
    sampler.start()
    started = time.perf_counter()
    train()
    seconds = time.perf_counter() - started
    sampler.stop()
    phases = phase_times(sampler.times)
    assert sum(phases.values()) == pytest.approx(seconds, rel=0.1)
    assert phases["forward"] == pytest.approx(0.6, rel=0.2)
    assert phases["buffer"] == pytest.approx(0.3, rel=0.2)


def test_the_table_begins_with_the_longest_phase():
    lines = phase_table({"act": 1.0, "environment": 3.0}, 4.0, 1000)
    assert [line.split()[0] for line in lines] == ["profile:", "environment", "act"]
    assert "75.0%" in lines[1]
    assert "3000.0 us a step" in lines[1]
    assert "us a step" not in phase_table({"act": 1.0}, 1.0, 0)[1]


@pytest.mark.parametrize("value", ["yes please", "2"])
def test_other_values_are_refused(value):
    with pytest.raises(ConfigError, match="profile"):
        make_config("algo=ppo", "env=cartpole", f"profile='{value}'")


@pytest.mark.training
def test_profiling_changes_no_weight_and_no_hash(tmp_path, caplog):
    caplog.set_level("INFO")
    weights, hashes = [], []
    for value in ("false", "true", "torch"):
        config = tiny_config("ppo", "tests/TinyReach-v0", f"profile={value}", "n_timesteps=512")
        run_dir, result = train_run(tmp_path / value, config)
        weights.append(load_bundle(run_dir.final).weights)
        hashes.append(result.config_hash)
        folder = run_dir.path / "profile"
        if value == "true":
            record = json.loads((folder / "phases.json").read_text())
            assert record["steps"] == 512
            assert set(record["phases"]) <= set(PHASES)
            assert sum(record["phases"].values()) == pytest.approx(record["seconds"], abs=0.05)
            assert re.search(r"<title>.*collect_rollouts", (folder / "flame.svg").read_text())
        elif value == "torch":
            events = json.loads((folder / "trace.json").read_text())["traceEvents"]
            assert any("addmm" in event.get("name", "") for event in events)
        else:
            assert not folder.exists()
    assert len(set(hashes)) == 1
    for other in weights[1:]:
        assert weights[0].keys() == other.keys()
        assert all(np.array_equal(weights[0][name], other[name]) for name in other)
    assert "environment steps" in caplog.text
