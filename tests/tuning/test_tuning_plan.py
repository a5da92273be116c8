"""From a command line to the plan of a study, without running it."""

import pytest
from rich.console import Console

from rlzoo_plus.config.hydra_app import run_hydra
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.multirun import Multirun
from rlzoo_plus.sweeps.sweep_view import SweepView
from rlzoo_plus.tuning.study_plan import about_study, check_draws, make_plan

GRID = [
    *("hpo=ppo", "hpo.sampler=grid", "algo.hyperparams.learning_rate=1e-4,1e-3"),
    *("algo.hyperparams.n_epochs=1,2,3", "algo.hyperparams.gamma=0.9", "network=small"),
    *("algo.hyperparams.gae_lambda=0.9", "algo.hyperparams.ent_coef=0"),
    *("algo.hyperparams.vf_coef=0.5", "algo.hyperparams.max_grad_norm=0.5"),
    *("algo.hyperparams.clip_range=0.2", "algo.hyperparams.n_steps=64"),
    "algo.hyperparams.batch_size=64",
]


def plan_of(*words):
    arguments = ["-m", "env=cartpole_bullet", *words]
    plans = []

    def tune(compose):
        plans.append(make_plan(arguments, compose)[0])
        return 0

    planner = Multirun(arguments, SweepView(Console), tune)
    run_hydra(planner.collect, arguments, planner)
    return plans[0]


def keys(plan):
    return {dimension.key for dimension in plan.space.dimensions}


def test_a_space_chooses_its_algorithm():
    plan = plan_of("hpo=sac")
    assert plan.base.algo.name == "sac"
    assert "algo=sac" in plan.fixed


def test_what_an_experiment_has_chosen_is_not_overruled():
    with pytest.raises(ConfigError, match="for algo=sac, but algo=ppo is chosen"):
        plan_of("experiment=cartpole_quick", "hpo=sac")
    assert plan_of("experiment=cartpole_quick", "hpo=sac", "algo=sac").base.algo.name == "sac"


def test_a_key_is_taken_out_of_the_space_on_the_command_line():
    before, after = plan_of("hpo=ppo"), plan_of("hpo=ppo", "hpo.space.network.net_arch=null")
    assert keys(before) - keys(after) == {"network.net_arch"}


def test_the_settings_hold_the_space_that_is_searched():
    plan = plan_of("hpo=ppo", "algo.hyperparams.gamma=0.9", "network.activation=relu,elu")
    assert set(plan.hpo.space) == keys(plan)
    assert "algo.hyperparams.gamma" not in plan.hpo.space
    assert plan.hpo.space["network.activation"] == "relu,elu"


def test_a_grid_of_a_shipped_space_has_as_many_trials_as_points():
    assert plan_of(*GRID).hpo.n_trials == 6
    assert plan_of(*GRID, "hpo.n_trials=4").hpo.n_trials == 4


def test_a_sweep_below_hpo_space_is_told_how_it_is_written():
    with pytest.raises(ConfigError, match=r"without hpo\.space: algo\.hyperparams\.gamma="):
        plan_of("hpo=ppo", "hpo.space.algo.hyperparams.gamma=interval(0.9,0.99)")


def test_the_order_of_the_words_makes_no_other_study():
    one = plan_of("hpo=ppo", "n_envs=2", "n_timesteps=50000")
    other = plan_of("n_timesteps=9000", "n_timesteps=50000", "hpo=ppo", "n_envs=2")
    assert about_study(one) == about_study(other)
    assert about_study(one) != about_study(plan_of("hpo=ppo", "n_envs=2", "n_timesteps=9000"))


def test_a_space_of_no_configuration_is_told_before_the_study():
    plan = plan_of("hpo=ppo", "algo.hyperparams.lerning_rate=interval(0.1,0.2)")
    hint = "3 draws.*Did you mean 'algo.hyperparams.learning_rate'"
    with pytest.raises(ConfigError, match=hint):
        check_draws(plan)


def test_one_draw_that_is_a_configuration_is_enough():
    check_draws(plan_of("hpo=ppo", "algo.hyperparams.n_epochs=0,-1,3"))


@pytest.mark.slow
def test_mistakes_are_told_before_anything_is_written(answer, in_process):
    words = ("-m", "hpo=ppo", "env=cartpole_bullet")
    mistakes = {
        "env=cartpole,pendulum": "a study has one value of it",
        "seed=0,1": "hpo.seeds=3",
        "hpo.sampler=tpee": "Did you mean 'tpe'",
        "hpo.objectives={late_retrun: maximize}": "late_return",
        "hpo.storage=sqlite:///x.db": "not supported",
        "hpo.storage=postgresql://me:secret@host/db": "PGPASSWORD",
        "hpo.space.algo.hyperparams.gama=null": "",
        "hpo.n_timesteps=10000000": "longer than",
        "eval.every_steps=null": "a study has no objective",
        "hpo.pruner_options={n_startup=3}": "n_startup",
        "device=cuda:9": "cuda",
    }
    for word, said in mistakes.items():
        code, text = answer("train", *words, word)
        assert code == 2, word
        assert said in text, text
        assert "secret" not in text
        assert "Traceback" not in text
        assert not (in_process / "outputs").exists(), word


def test_a_single_run_does_not_tune(answer):
    code, text = answer("train", "hpo=ppo")
    assert (code, "add -m" in text) == (2, True)


def test_a_sweep_is_no_name_of_a_study():
    with pytest.raises(ConfigError, match=r"Write hpo\.study=mine"):
        plan_of("hpo=ppo", "sweep=mine")
