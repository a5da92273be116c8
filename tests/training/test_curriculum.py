"""A curriculum: its stages, when they change, and that a killed run goes on in its own."""

from itertools import pairwise

import numpy as np
import pytest
import support.tiny_envs  # noqa: F401
from support.training import make_config, train_run

from rlzoo_plus.analysis.curves import curves_figure
from rlzoo_plus.analysis.index import read_run
from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.commands import dispatch
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.config.stages import config_of_stage, stage_in
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.callbacks.curriculum_callback import CurriculumCallback

TASK = ("env=cartpole_bullet", "tuned=none", "network.net_arch=[8]", "device=cpu", "num_threads=1",
        "eval.episodes=1", "log.tensorboard=false", "n_envs=2", "algo.hyperparams.n_steps=64",
        "algo.hyperparams.batch_size=64", "algo.hyperparams.n_epochs=1", "n_timesteps=1024",
        "eval.every_steps=512")  # fmt: skip
STAGES = (
    "curriculum=[{set: {env.kwargs.force_n: 20}, until: {steps: 256}},"
    "{set: {env.kwargs.force_n: 15, env.kwargs.reward.effort: 0}, until: {mean_return: 1},"
    "episodes: 3}]"
)


def stages(run_dir):
    """Return the stages that were logged, in their order."""
    return [int(row["value"]) for row in stage_rows(run_dir)]


def stage_rows(run_dir):
    rows = read_records(run_dir.metrics_file)
    return [row for row in rows if row["key"] == "curriculum/stage"]


def config(*more):
    return make_config(*TASK, *more)


def test_a_stage_changes_only_what_it_sets():
    run = config(STAGES)
    first, second = (config_of_stage(run, stage).env.kwargs for stage in (0, 1))
    assert (first["force_n"], second["force_n"]) == (20, 15)
    assert second["reward"] == {"effort": 0}
    assert "reward" not in first
    assert config_of_stage(run, 2).env == run.env
    assert "force_n" not in run.env.kwargs


def test_without_a_curriculum_hashes_are_those_from_before():
    assert "curriculum" not in config().model_dump()
    assert config_hash(config()) != config_hash(config(STAGES))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[{set: {n_envs: 3}, until: {steps: 5}}]", "'n_envs' is no argument of the environment"),
        ("[{set: {env.kwargs.: 3}, until: {steps: 5}}]", "is no argument"),
        ("[{set: {env.kwargs.a: 3}, until: {}}]", "needs one of steps, success_rate"),
        ("[{set: {env.kwargs.a: 3}}]", "until"),
        ("[{set: {env.kwargs.a: 3}, until: {success_rate: 2}}]", "less than or equal to 1"),
        ("[{set: {env.kwargs.a: 3}, until: {steps: 5}, fall_back: {steps: 3}}]", "fall back"),
        ("[{set: {env.kwargs.a: 3}, untill: {steps: 5}}]", r"Did you mean 'curriculum.0.until'"),
        ("[{set: {}, until: {steps: 5}}]", "at least 1"),
    ],
)
def test_mistakes_are_told(text, told):
    with pytest.raises(ConfigError, match=told):
        config(f"curriculum={text}")


@pytest.mark.parametrize("stage", [-1, 3, True, "1", None])
def test_a_checkpoint_of_no_such_stage_is_refused(stage):
    with pytest.raises(ValueError, match="no stage"):
        stage_in({"stage": stage}, config(STAGES))


@pytest.mark.training
def test_a_run_goes_through_its_stages_to_its_own_environment(tmp_path):
    run_dir, result = train_run(tmp_path / "run", config(STAGES))
    found = stages(run_dir)
    assert found[0] == 0
    assert found[-1] == 2
    assert found == sorted(found)
    assert set(found) == {0, 1, 2}
    assert result.num_timesteps == 1024
    assert (result.exact, result.resumed_at) == (True, [])
    assert [row["step"] for row in read_records(run_dir.evaluations_file)] == [512, 1024]


@pytest.mark.training
def test_a_stage_that_ends_between_two_rows_of_the_log_leaves_a_run_exact(tmp_path):
    stage = "curriculum=[{set: {env.kwargs.force_n: 20}, until: {steps: 30}}]"
    words = ("tuned=none", "algo.hyperparams.learning_starts=16", "algo.hyperparams.batch_size=8")
    words += ("env=cartpole_bullet", "network.net_arch=[8]", "device=cpu", "num_threads=1")
    run = make_config("algo=sac", *words, stage, "n_timesteps=90", "eval.every_steps=null")
    run_dir, result = train_run(tmp_path / "run", run)
    assert (result.exact, result.resumed_at) == (True, [])
    rows = [(row["step"], row["value"]) for row in stage_rows(run_dir)]
    assert [value for _, value in rows][-1] == 1
    assert (30, 0) not in rows


@pytest.mark.training
def test_it_falls_back_where_the_next_stage_is_too_hard(tmp_path):
    text = (
        "curriculum=[{set: {env.kwargs.force_n: 20}, until: {steps: 128},"
        "fall_back: {mean_return: 1e6}, episodes: 2}]"
    )
    run_dir, _ = train_run(tmp_path / "run", config(text))
    found = stages(run_dir)
    falls = [a - b for a, b in pairwise(found)]
    assert {0, 1} == set(found)
    assert falls.count(1) >= 2


@pytest.mark.training
def test_evaluations_can_decide(tmp_path):
    text = "curriculum=[{set: {env.kwargs.force_n: 20}, until: {eval_mean_return: 1}}]"
    run_dir, _ = train_run(tmp_path / "run", config(text))
    changed = [row["step"] for row in stage_rows(run_dir) if row["value"] == 1]
    assert changed[0] > 512
    assert stages(run_dir)[0] == 0


@pytest.mark.training
def test_a_stage_with_other_spaces_is_refused_before_the_training(tmp_path, in_process, capsys):
    words = ["env=cartpole_bullet", f"run_dir={tmp_path / 'run'}",
             "curriculum=[{set: {env.kwargs.discrete: true}, until: {steps: 5}}]"]  # fmt: skip
    assert dispatch.run("train", words) == 2
    assert "curriculum[0].set gives another action_space" in capsys.readouterr().err
    words[-1] = "curriculum=[{set: {env.kwargs.forse_n: 3}, until: {steps: 5}}]"
    assert dispatch.run("train", words) == 2
    assert "curriculum[0]: " in capsys.readouterr().err
    assert dispatch.run("doctor", words) == 2
    assert "curriculum[0]: " in capsys.readouterr().out
    assert dispatch.run("train", ["-m", "seed=0,1", words[0], words[-1]]) == 2
    assert "curriculum[0]: " in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


@pytest.mark.training
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_killed_run_goes_on_in_its_stage_bit_for_bit(algo, capsys):
    words = [f"algo={algo}", "env=cartpole_bullet", "tuned=none", "network.net_arch=[8]",
             "eval.episodes=1", "log.tensorboard=false", "n_timesteps=600",
             "curriculum=[{set: {env.kwargs.force_n: 20}, until: {steps: 128}},"
             "{set: {env.kwargs.force_n: 14}, until: {steps: 256}}]"]  # fmt: skip
    if algo == "ppo":
        words += ["n_envs=2", "algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=32"]
    else:
        words += ["algo.hyperparams.learning_starts=50", "algo.hyperparams.batch_size=16"]
    assert dispatch.run("verify-resume", words) == 0
    assert "identical" in capsys.readouterr().out


class Snapshot:
    stage, begins_stage = None, False


class FullDisk:
    """A checkpoint callback that cannot write."""

    snapshot = Snapshot()

    def save(self, *, waits):
        pass

    def has_saved(self, step):
        return False


def test_a_stage_that_cannot_be_saved_goes_on():
    run = config("curriculum=[{set: {env.kwargs.force_n: 20}, until: {steps: 1}}]")
    callback = CurriculumCallback(run, 0, FullDisk(), None)

    class Model:
        num_timesteps = 5

        class logger:  # noqa: N801
            record = staticmethod(lambda name, value: None)

    callback.model = Model()
    callback.on_iteration()
    assert callback.stage == 0
    assert not FullDisk.snapshot.begins_stage


def test_a_forged_state_is_refused():
    run = config("curriculum=[{set: {env.kwargs.force_n: 20}, until: {steps: 1}}]")
    callback = CurriculumCallback(run, 0, FullDisk(), None)
    whole = callback.state_dict()
    callback.load_state_dict(whole)
    for key, value in (("stage", 1), ("begun_at", "3"), ("recent", np.zeros(3)), ("recent", [])):
        with pytest.raises(ValueError, match="malformed"):
            callback.load_state_dict({**whole, key: value})


@pytest.mark.training
def test_the_curve_says_where_a_stage_began(tmp_path):
    run_dir, _ = train_run(tmp_path / "run", config(STAGES))
    figure = curves_figure([read_run(run_dir)])
    texts = [text.get_text().strip() for text in figure.axes[0].texts]
    assert [text for text in texts if text.startswith("stage")] == ["stage 1", "stage 2"]
