"""Videos of several policies, with numbers beside the picture, and of the worst episodes."""

import av
import numpy as np
import pytest
from support.training import tiny_config, train_run

from rlzoo_plus.commands.record import main
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.video import describe, panel, tiled, worst_seeds
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.evaluation import Step, evaluate


def _grey(height, width, level):
    return np.full((height, width, 3), level, np.uint8)


def test_pictures_are_laid_out_in_rows_and_none_is_lost():
    whole = tiled([_grey(4, 6, 10), _grey(4, 6, 20), _grey(2, 6, 30)])
    assert whole.shape == (8, 12, 3)
    assert whole[0, 0, 0] == 10
    assert whole[0, 6, 0] == 20
    assert whole[4, 0, 0] == 30
    assert whole[6, 0, 0] == 0
    assert tiled([_grey(4, 6, 10)]).shape == (4, 6, 3)


def test_the_panel_holds_what_is_told_and_cuts_the_rest():
    empty, some = panel([], 60), panel(["step 1", "return 2"], 60)
    assert empty.shape == some.shape == (60, 300, 3)
    assert (some != empty).any()
    assert (panel([*["step 1", "return 2"], *[""] * 9, "far below"], 60) == some).all()


def test_step_action_terms_value_and_end_are_described():
    info = {"reward_terms": {"alive": 1.0, "effort": -0.25}}
    step = Step(None, np.array([[0.5, -1.0]]), np.array([0.75]), np.array([False]), [info])
    text = "\n".join(describe(step, 7, 3.5, "V", np.array([12.5]), "fell at step 3"))
    for part in ("step\t7", "3.50", "+0.750", "V\t12.50", "+0.50 -1.00", "fell at step 3"):
        assert part in text
    assert "alive\t+1.000" in text
    assert "effort\t-0.250" in text
    assert "12.50" not in "\n".join(describe(step, 7, 3.5, None, None, ""))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        config = tiny_config("ppo", "CartPole-v1", f"seed={seed}", "checkpoint.keep_best=true")
        train_run(root / f"s{seed}", config)
    return root


def _size(path):
    with av.open(str(path)) as container:
        (stream,) = container.streams.video
        return stream.width, stream.height, sum(1 for _ in container.decode(stream))


@pytest.mark.training
def test_two_runs_are_shown_side_by_side_with_numbers(trained, tmp_path, capsys):
    out = tmp_path / "two.mp4"
    runs = [str(trained / "s0"), str(trained / "s1")]
    assert main([*runs, "--out", str(out), "--seconds", "0.3", "--overlay", "--trust"]) == 0
    width, height, n_frames = _size(out)
    assert f"({n_frames} frames)" in capsys.readouterr().out
    main([runs[0], "--out", str(tmp_path / "one.mp4"), "--seconds", "0.3", "--trust"])
    one = _size(tmp_path / "one.mp4")
    assert (width, height, n_frames) == (2 * (one[0] + 300), one[1], one[2])


@pytest.mark.training
def test_the_worst_episode_comes_first(trained):
    run = Run.open(trained / "s0", trust=True)
    policy, seeds = run.policy(), worst_seeds(run, run.policy(), 6)
    assert sorted(seeds) == sorted(held_out_seeds(6, 0))
    venv = run.env(1)
    returns = evaluate(policy, venv, seeds).returns
    assert returns == sorted(returns)
    assert returns[0] < returns[-1]


@pytest.mark.training
def test_mistakes_are_told(trained):
    runs = [str(trained / "s0"), str(trained / "s1")]
    with pytest.raises(ConfigError, match="--out"):
        main(runs)
    with pytest.raises(ConfigError, match="--all"):
        main([runs[0], "--all", "--overlay"])
    with pytest.raises(ConfigError, match="from 1 to 9"):
        main([runs[0]] * 10 + ["--out", "x.mp4", "--trust"])
