"""`bisect`: a replay from a checkpoint finds the update that broke a run."""

import json
import shutil

import pytest
from support.training import tiny_config, train_run

from benchmarks import collapses

TRUST = "--trust"


@pytest.fixture
def bisect(answer, tmp_path):
    """Return a function: run and condition to what was found, and the text."""

    def bisect_it(run, when, *options):
        out = tmp_path / "found.json"
        code, text = answer("bisect", str(run), "--when", when, "--out", str(out), TRUST, *options)
        assert code == 0, text
        return json.loads(out.read_text()), text

    return bisect_it


def first_row(run, key, holds):
    """Return the step of the first row of a log for which something holds."""
    rows = map(json.loads, (run.path / "metrics.jsonl").read_text().splitlines())
    return next(row["step"] for row in rows if row["key"] == key and holds(row["value"]))


@pytest.mark.training
def test_it_finds_the_update_before_the_first_row_that_shows_it(trained, bisect):
    run = trained("ppo", "algo.hyperparams.learning_rate=lin_0.01")
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    found, text = bisect(run.path, "train/learning_rate < 0.004")
    # A row has the values of the update before it.
    step = first_row(run, "train/learning_rate", lambda value: value < 0.004) - 32
    assert found["step"] == step
    assert found["iteration"] == step // 32
    # The part before is replayed to show the update before, too.
    assert (found["replays"], found["start"], found["replayed"]) == (2, step - 32, 2)
    assert [update["step"] for update in found["updates"]] == [step - 32, step]
    assert found["compared"] > 0
    assert f"first after the update of iteration {step // 32}, step {step}" in text
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()} == before


@pytest.mark.training
def test_without_checkpoints_it_replays_from_the_seed(trained, bisect, tmp_path):
    run = trained("ppo", "algo.hyperparams.learning_rate=lin_0.01")
    there = bisect(run.path, "train/learning_rate < 0.004")[0]
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    shutil.rmtree(copy / "checkpoints")
    found, _ = bisect(copy, "train/learning_rate < 0.004")
    assert (found["start"], found["step"]) == (0, there["step"])
    weights = found["updates"][-1]["weights"]
    assert weights == there["updates"][-1]["weights"]


@pytest.mark.training
def test_it_shows_batch_gradients_losses_and_weights(trained, bisect):
    found, text = bisect(trained("sac").path, "train/critic_loss > 0", "--after", "150")
    (*_, update) = found["updates"]
    assert {"actor.optimizer", "critic.optimizer"} <= update["learning_rates"].keys()
    assert update["batch"]["observations"]["not_finite"] == 0
    assert update["batch"]["observations"]["count"] == 3 * 8 * update["gradient_steps"]
    assert update["batch"]["rewards"]["high"] < 0
    assert update["values"]["train/critic_loss"] > 0
    assert update["step"] >= 150
    assert all(gradient["largest_norm"] >= 0 for gradient in update["gradients"].values())
    assert max(weight["largest_change"] for weight in update["weights"].values()) > 0
    assert "batch, next_observations" in text
    assert "gradient norm, " in text


@pytest.mark.training
def test_nan_is_found_where_the_run_was_ended_by_it(bisect, tmp_path):
    config = tiny_config(
        "ppo", "tests/TinyReach-v0", "env.kwargs.discrete=false", "n_timesteps=320",
        "checkpoint.every_steps=64", "eval.every_steps=null",
        collapses.planted("observation", 200, float("nan")),
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="NaN at step 200"):
        train_run(tmp_path / "run", config)
    found, text = bisect(tmp_path / "run", "nan")
    assert (found["held_in"], found["iteration"], found["start"]) == ("error", 6, 192)
    assert [update["iteration"] for update in found["updates"]] == [5, 6]
    assert "the environment returned NaN at step 200" in found["message"]
    assert "the run ended: the environment returned NaN at step 200" in text


@pytest.mark.training
def test_a_row_of_the_rollout_names_the_update_before_it(bisect, tmp_path):
    config = tiny_config(
        "ppo", "tests/TinyReach-v0", "env.kwargs.discrete=false", "n_timesteps=320",
        "checkpoint.every_steps=64", "eval.every_steps=null",
        collapses.planted("reward", 161),
    )  # fmt: skip
    train_run(tmp_path / "run", config)
    found, _ = bisect(tmp_path / "run", "rollout/ep_rew_mean < -1000")
    assert (found["held_in"], found["iteration"], found["step"]) == ("log", 5, 160)


@pytest.mark.training
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--when", "train/approx_kl > 1e9"), "does not hold"),
        (("--when", "train/aprox_kl > 1"), "Did you mean 'train/approx_kl'"),
        (("--when", "import os"), "must be METRIC OP NUMBER"),
        (("--when", "nan"), "nan: does not hold"),
        ((), "--when"),
    ],
)
def test_a_mistake_is_told_in_one_message(options, said, trained, answer):
    code, text = answer("bisect", str(trained("ppo").path), *options, TRUST)
    assert (code, "Traceback" in text) == (2, False), text
    assert said in text


@pytest.mark.training
def test_a_run_that_cannot_be_replayed_exactly_is_refused(trained, answer, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(trained("ppo").path, copy)
    when = ("--when", "train/approx_kl > -1", TRUST)
    config = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(config.replace("gamma: 0.99", "gamma: 0.5"))
    code, text = answer("bisect", str(copy), *when, "--after", "100")
    assert (code, "gamma was 0.99, is 0.5" in text) == (2, True), text
    code, text = answer("bisect", str(copy), *when, "--from-start", "--after", "100")
    assert (code, "the replay differs from the run" in text) == (2, True), text
    (copy / "config.yaml").write_text(config)
    result = json.loads((copy / "result.json").read_text())
    result |= {"exact": False, "inexact_since": 128, "inexact_because": ["torch was 1, is 2"]}
    (copy / "result.json").write_text(json.dumps(result))
    code, text = answer("bisect", str(copy), *when)
    assert (code, "since step 128: torch was 1, is 2" in text) == (2, True), text


@pytest.mark.training
def test_a_branch_is_bisected_from_its_own_checkpoints(trained, answer, bisect, tmp_path):
    parent, path = trained("ppo"), tmp_path / "b"
    words = (f"run_dir={path}", "algo.hyperparams.learning_rate=lin_0.02", TRUST)
    assert answer("branch", f"{parent.path}@96", *words)[0] == 0
    found, _ = bisect(path, "train/learning_rate > 0.005")
    assert (found["start"], found["step"]) == (96, 128)
    code, text = answer("bisect", str(path), "--when", "nan", "--from-start", TRUST)
    assert (code, "is a branch" in text) == (2, True), text


@pytest.mark.training
@pytest.mark.slow
@pytest.mark.parametrize("case", collapses.CASES, ids=lambda case: case.name)
def test_a_planted_collapse_is_found(case, tmp_path, in_process):
    is_right, line = collapses.run_case(case, tmp_path)
    assert is_right, line
