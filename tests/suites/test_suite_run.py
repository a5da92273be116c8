"""A suite as it is trained: what is missing only, within the budget, its results kept."""

import json

import pytest

from rlzoo_plus.commands import dispatch
from rlzoo_plus.runs.run import Run
from rlzoo_plus.sweeps.sweep_view import SweepView
from rlzoo_plus.testing.jobs import finish

SWEEP = "outputs/sweeps/benchmark-mine"
TINY = (
    *("tuned=none", "n_envs=1", "algo.hyperparams.n_steps=32", "n_timesteps=64", "eval.episodes=1"),
    *("eval.every_steps=32", "report.video=false", "report.plot=false", "log.tensorboard=false"),
)
SUITE = """\
about: a test
episodes: 3
cells:
  ppo:cartpole: {mean: 8.0, std: 1000.0, overrides: [algo.hyperparams.batch_size=32]}
  a2c:cartpole:
"""


pytestmark = pytest.mark.training


@pytest.fixture
def benchmark(here):
    (here / "mine.yaml").write_text(SUITE)

    def benchmark(*words, seeds="0", infra="debug"):
        arguments = ["--suite", "mine.yaml", "--seeds", seeds, *TINY, f"infra={infra}", *words]
        return dispatch.run("benchmark", arguments)

    return benchmark


@pytest.fixture
def at_once(monkeypatch):
    """Let runs finish without training, and policies earn 10."""
    monkeypatch.setattr("rlzoo_plus.runs.train_job.run_job", finish)
    played = {"mean_return": 10.0, "std_return": 1.0, "success_rate": None}
    monkeypatch.setattr(Run, "evaluate", lambda *_, **__: played)


def started(here):
    lines = (here / SWEEP / "ledger.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [event["job"].split("/")[1] for event in events if event["event"] == "started"]


def results_of(here):
    return json.loads((here / SWEEP / "results.json").read_text())["runs"]


@pytest.mark.usefixtures("at_once")
def test_after_a_death_the_second_call_trains_only_what_is_missing(
    benchmark, here, monkeypatch, capsys
):
    class DeathError(BaseException):
        pass

    def die(*_):
        raise DeathError

    # The first run has ended, and nothing knows its result yet.
    with monkeypatch.context() as patch:
        patch.setattr(SweepView, "ended", die)
        with pytest.raises(DeathError):
            benchmark()
    assert started(here) == ["ppo"]
    assert not (here / SWEEP / "results.json").exists()
    assert benchmark("--write", "page.md") == 0
    assert started(here) == ["ppo", "a2c"]
    found = results_of(here)
    assert [run["cell"] for run in found] == ["a2c:cartpole", "ppo:cartpole"]
    page = (here / "page.md").read_text()
    assert "2 of 2 cells have run: 0 above the published interval, 1 inside it" in page
    assert "Not run yet" not in page
    assert "1 of 2 runs have a result" in capsys.readouterr().out
    # What has finished is collected without training.
    (here / SWEEP / "results.json").unlink()
    assert benchmark("--no-train") == 0
    assert results_of(here) == found
    # Another seed of one cell; and what the file knows is trained nowhere again.
    assert benchmark("--cells", "a2c:cartpole", seeds="0,1") == 0
    assert started(here) == ["ppo", "a2c", "a2c"]
    (here / SWEEP / "ledger.jsonl").rename(here / "elsewhere.jsonl")
    assert benchmark() == 0
    assert not (here / SWEEP / "ledger.jsonl").exists()


@pytest.mark.usefixtures("at_once")
def test_no_run_starts_that_would_not_end_within_the_budget(benchmark, here, monkeypatch, capsys):
    step_s = {"ppo": 100.0, "a2c": 1.0}
    monkeypatch.setattr("rlzoo_plus.suites.budget.probed", lambda job: step_s[job.config.algo.name])
    assert benchmark("--budget", "1") == 0
    assert started(here) == ["a2c"]
    printed = " ".join(capsys.readouterr().out.split())
    assert "1 of 2 runs expected to end in time" in printed
    assert printed.index("a2c:cartpole 1") < printed.index("ppo:cartpole 1h")
    assert "not started, they would not end within the budget: 1 runs of ppo:cartpole" in printed
    assert benchmark("--budget", "2") == 0
    assert started(here) == ["a2c", "ppo"]


@pytest.mark.usefixtures("at_once")
def test_a_result_of_other_values_is_replaced(benchmark, here, capsys):
    assert benchmark("--cells", "ppo:cartpole") == 0
    before = results_of(here)
    assert benchmark("--cells", "ppo:cartpole", "algo.hyperparams.gamma=0.9") == 0
    after = results_of(here)
    assert started(here) == ["ppo", "ppo"]
    assert len(after) == 1
    assert after[0]["values"] != before[0]["values"]
    assert "ppo:cartpole, seed 0: replaces a result of other values" in capsys.readouterr().out


def test_a_result_has_what_the_run_recorded(benchmark, here):
    assert benchmark("--cells", "ppo:cartpole", "--write", "page.md") == 0
    (found,) = results_of(here)
    assert (found["episodes"], found["n_timesteps"]) == (3, 64)
    assert found["mean"] > 0.0
    (first, minutes, _), (last, later, _) = found["curve"]
    assert (first, last) == (32, 64)
    # Written in hundredths of a minute.
    assert 0.0 <= minutes <= later <= found["minutes"] + 0.01


@pytest.mark.slow
def test_what_workers_have_trained_comes_home_with_its_policy(benchmark, here):
    words = ["--cells", "ppo:cartpole", "infra.wait=false", f"store={here / 'store'}"]
    assert benchmark(*words, infra="workers") == 0
    assert not (here / SWEEP / "results.json").exists()
    assert dispatch.run("worker", [str(here / "store" / "benchmark-mine"), "--no-wait"]) == 0
    assert benchmark(*words, infra="workers") == 0
    assert [run["cell"] for run in results_of(here)] == ["ppo:cartpole"]
