"""`rlzoo-plus doctor --learn`: what it prints, what it refuses, and that it writes nothing."""

import json

import pytest

from rlzoo_plus.commands import dispatch
from rlzoo_plus.doctor import advice


@pytest.fixture
def learn(in_process, capsys, monkeypatch):
    """Return a function: overrides to exit code, output and what went to stderr."""
    monkeypatch.setattr(advice.os, "getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)

    def run(*arguments):
        try:
            code = dispatch.run("doctor", ["--learn", *arguments])
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return code, " ".join(captured.out.split()), " ".join(captured.err.split())

    return run


def test_causes_are_numbered_with_evidence_and_fix(learn):
    code, out, _ = learn(
        "env=pendulum",
        "algo=sac",
        "algo.hyperparams.gamma=0.3",
        "env.wrappers=[{benchmarks.planted_faults.Action:{kind:wide,factor:30}}]",
    )
    assert code == 0
    first, second = out.index("1. action_saturated: 30% of"), out.index("2. discount: ")
    assert first < second
    assert "Declare the range that has an effect" in out
    assert "Set algo.hyperparams.gamma=0.99." in out


def test_nothing_is_found_where_nothing_is_wrong(learn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = learn("env=cartpole", "algo=ppo")
    assert (code, list(tmp_path.iterdir())) == (0, [])
    assert "no cause found" in out


def test_programs_get_causes_as_data(learn):
    code, out, _ = learn("--json", "env=cartpole", "algo=ppo", "algo.hyperparams.ent_coef=1")
    (cause,) = json.loads(out)["causes"]
    assert (code, cause["name"], set(cause)) == (
        0,
        "entropy",
        {"name", "evidence", "fix", "is_hint"},
    )


def test_a_sweep_is_refused(learn):
    code, _, err = learn("env=cartpole", "algo=ppo", "seed=1,2")
    assert code == 2
    assert "--learn looks at one run" in err


def test_what_train_refuses_is_an_error_and_nothing_is_probed(learn, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.commands.doctor_report.why_not", None)
    code, out, _ = learn("env=pendulum", "algo=sac", "algo.hyperparams.gradient_steps=0")
    assert code == 2
    assert "gradient_steps=0: needs a whole number of at least 1" in out


def test_an_environment_that_breaks_in_a_probe_is_named(learn):
    code, _, err = learn(
        "env=pendulum",
        "algo=sac",
        "env.wrappers=[{benchmarks.planted_faults.Life:{kind:breaks}}]",
    )
    assert code == 2
    assert "ended with an error in a probe" in err
    assert "the robot is on fire" in err
