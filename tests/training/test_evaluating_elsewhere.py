"""`evaluate` in an environment with other arguments than those of the training."""

import pytest
from support.training import tiny_config, train_run

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.run import Run

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run_dir, _ = train_run(
        tmp_path_factory.mktemp("run"), tiny_config("ppo", "tests/TinyReach-v0", "n_timesteps=32")
    )
    return Run.open(run_dir.path, trust=True)


def test_other_arguments_of_the_environment_change_the_episodes_and_are_recorded(run):
    plain, scaled = run.evaluate(3), run.evaluate(3, **{"env.kwargs.scale": 100.0})
    assert plain["overrides"] == []
    assert scaled["overrides"] == ["env.kwargs.scale=100.0"]
    assert abs(scaled["mean_return"]) > 20 * abs(plain["mean_return"])
    assert run.evaluate(3, overrides=["env.kwargs.scale=100.0"]) == scaled
    assert run.evaluate(3) == plain


def test_an_evaluation_leaves_the_run_as_it_was(run):
    def files():
        return {str(p): p.stat().st_mtime_ns for p in run.path.rglob("*")}

    before = files()
    run.evaluate(2, **{"env.kwargs.scale": 2.0})
    assert files() == before


def test_other_spaces_are_refused_and_both_are_shown(run):
    with pytest.raises(ConfigError, match=r"action space from Box\(-1.*\) to Discrete\(3\)"):
        run.evaluate(2, **{"env.kwargs.discrete": True})


def test_episodes_can_be_shorter(run):
    assert run.evaluate(2, overrides=["env.time_limit=3"])["episode_lengths"] == [3, 3]


def test_more_can_be_measured_of_a_run_that_was_trained_without(run):
    record = run.evaluate(2, overrides=["eval.metrics=[action_change]"])
    assert record["metrics"]["action_change"] >= 0.0
    assert record["overrides"] == []


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("n_envs=3", r"n_envs=3: evaluate plays the run's own environment"),
        ("env.kwargs.nonsense=3", "nonsense"),
        ("env.kwargs.render_mode=human", r"env\.kwargs\.render_mode is not set here"),
        ("eval.metrics=[nothing]", "eval.metrics"),
        ("eval.metrics=3", "eval.metrics"),
    ],
)
def test_what_an_evaluation_cannot_change_is_refused_in_one_line(run, word, told):
    with pytest.raises(ConfigError, match=told) as caught:
        run.evaluate(2, overrides=[word])
    assert "\n" not in str(caught.value)
