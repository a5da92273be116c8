"""Mistakes about sweeps and intervals are told at once, with what to type."""


def test_several_values_without_a_sweep_name_the_option(answer):
    code, text = answer("train", "seed=0,1")
    assert code == 2
    assert "seed=0,1: several values are for a sweep. Add -m" in text
    assert "[0,1]" not in text


def test_jobs_of_two_sweeps_are_refused(answer, tmp_path):
    code, text = answer("train", "-m", "env=cartpole", "sweep=a,b", "n_timesteps=64")
    assert code == 2
    assert "of several sweeps" in text
    assert not (tmp_path / "outputs").exists()


def test_all_rules_about_intervals_are_told_together(answer):
    code, text = answer("train", "eval.every_steps=10", "checkpoint.every_steps=20")
    assert code == 2
    assert "eval.every_steps=10 is below one rollout" in text
    assert "checkpoint.every_steps=20 is below one rollout" in text
    stops = ("stop.reward_threshold=1", "stop.no_improvement_evals=2")
    code, text = answer("train", "eval.every_steps=null", "checkpoint.every_steps=20", *stops)
    assert code == 2
    assert "checkpoint.every_steps=20" in text
    assert "stop.reward_threshold needs" in text
    assert "stop.no_improvement_evals needs" in text


def test_hyperparameters_and_intervals_are_told_together(answer):
    mistakes = {
        "algo.hyperparams.batch_size=9000": "batch_size=9000 is above one rollout",
        "algo.hyperparams.gamma=2": "gamma=2: needs a number from 0 to 1",
        "algo.hyperparams.learning_rate=lin": "learning_rate=lin is neither a number",
        "eval.every_steps=10": "eval.every_steps=10 is below one rollout",
        "checkpoint.every_steps=20": "checkpoint.every_steps=20 is below one rollout",
        "init.which=none": "init.* says what a warm start takes",
        "network.lstm.n_layers=2": "network.lstm is for recurrent_ppo",
        "env.wrappers=[clip_rewerd]": "Did you mean 'clip_reward'?",
    }
    code, text = answer("train", "algo=ppo", "tuned=none", *mistakes)
    assert code == 2
    assert [part for part in mistakes.values() if part not in text] == []
    assert len(text.splitlines()) == len(mistakes)


def test_a_rollout_that_cannot_be_hides_no_other_mistake(answer):
    wrong = ["algo.hyperparams.n_steps=0", "algo.hyperparams.gae_lambda=-1"]
    code, text = answer("train", "algo=ppo", "tuned=none", *wrong, "eval.every_steps=10")
    assert code == 2
    assert "n_steps=0: needs a whole number" in text
    assert "gae_lambda=-1: needs" in text
    assert "eval.every_steps" not in text


def test_unknown_and_mistyped_hyperparameters_are_told_together(answer):
    wrong = [
        "algo.hyperparams.gama=0.9",
        "algo.hyperparams.n_epochs=many",
        "algo.hyperparams.seed=1",
    ]
    code, text = answer("train", "algo=ppo", *wrong, "env.wrappers=[clip_rewerd]")
    assert code == 2
    for part in (
        "'algo.hyperparams.gama'",
        "n_epochs=many",
        "hyperparams.seed is not set here",
        "clip_rewerd",
    ):
        assert part in text
