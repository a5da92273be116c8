"""Mistakes about sweeps and intervals are told at once, with what to type."""


def test_several_values_without_a_sweep_name_the_option(answer):
    code, text = answer("train", "seed=0,1")
    assert code == 2
    assert "seed=0,1: several values are for a sweep. Add -m" in text
    assert "seed=[0,1]" in text


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
