"""A run with code of a user's is never called exact without reason."""

import pytest
import support.forgetful_envs  # noqa: F401
from support.resuming import assert_same_in_pieces, train_with_a_kill
from support.training import tiny_config, train_run

pytestmark = pytest.mark.training
PACKAGE = "env.packages=[support.forgetful_envs]"
SHORT = ("n_timesteps=192", "eval.every_steps=64")


def _config(env, *overrides, algo="ppo"):
    chosen = {override.partition("=")[0] for override in overrides}
    short = [override for override in SHORT if override.partition("=")[0] not in chosen]
    return tiny_config(algo, f"tests/{env}-v0", PACKAGE, *short, *overrides)


@pytest.mark.slow
def test_global_generators_of_worker_processes_are_seeded(tmp_path):
    config = _config("Dice", "vec_env=subproc", "eval.every_steps=96")
    assert_same_in_pieces(tmp_path, config)


def _killed(tmp_path, config, *n_iterations):
    """Train with a checkpoint each 64 steps, killed between two of them."""
    run_dir, result = train_with_a_kill(tmp_path / "run", config, *(n_iterations or (4,)))
    assert run_dir.read_result()["inexact_because"] == result.inexact_because
    return run_dir, result


def _cut(env, *overrides):
    return _config(env, "checkpoint.every_steps=64", *overrides)


def test_rows_made_again_alike_are_no_reason(tmp_path):
    run_dir, result = _killed(tmp_path, _cut("Staged"), 4, 2)
    assert (result.inexact_because, result.resumed_at) == ([], [64])
    assert not run_dir.cut_rows_file.exists()


@pytest.mark.parametrize(
    ("env", "overrides"),
    [
        ("LateClock", ()),
        ("Secretive", ("env.kwargs.after_episodes=9",)),
        ("Secretive", ("env.kwargs.after_wins=3",)),
    ],
)
def test_an_environment_that_its_seed_does_not_decide_is_inexact(tmp_path, env, overrides):
    _, result = _killed(tmp_path, _cut(env, *overrides))
    assert (result.exact, result.inexact_since) == (False, 64)
    (reason,) = result.inexact_because
    assert " was " in reason or "the observation after" in reason


def _callback(name, arguments=""):
    return f"callbacks=[{{support.user_callbacks.{name}: {{{arguments}}}}}]"


def test_a_schedule_that_a_callback_replaced_is_a_reason(tmp_path):
    _, result = _killed(tmp_path, _cut("Staged", _callback("SlowsDown")))
    assert (result.exact, result.inexact_since) == (False, 64)
    assert result.inexact_because == [
        "model.lr_schedule was replaced, which a checkpoint does not hold"
    ]


def test_a_setting_of_the_normalisation_that_a_callback_changed_is_a_reason(tmp_path):
    _, result = _killed(tmp_path, _cut("Staged", _callback("ClipsTighter"), "normalize=true"))
    assert result.inexact_because == [
        "VecNormalize.clip_obs was changed, which a checkpoint does not hold"
    ]


def test_noise_that_a_callback_took_away_is_a_reason_and_does_not_prevent_a_resume(tmp_path):
    noise = "algo.action_noise={type: normal, std: 0.3}"
    overrides = ("n_timesteps=128", _callback("StopsExploring"), noise)
    _, result = _killed(
        tmp_path, _config("Staged", "checkpoint.every_steps=64", *overrides, algo="sac"), 20
    )
    assert (result.state, result.exact) == ("finished", False)
    assert result.inexact_because == [
        "model.action_noise was replaced, which a checkpoint does not hold"
    ]


def test_with_a_callback_of_a_user_no_difference_found_is_all_that_is_said(tmp_path):
    config = _cut("Staged", _callback("Idle"))
    run_dir, result = _killed(tmp_path, config)
    assert (result.exact, result.inexact_since) == ("no difference found", None)
    assert run_dir.read_result()["exact"] == "no difference found"


def test_a_robot_of_ours_without_code_of_a_user_is_exact(tmp_path):
    config = tiny_config(
        "ppo",
        "robots/CartPoleBalance-v0",
        "env.packages=[]",
        "n_timesteps=192",
        "checkpoint.every_steps=64",
    )
    _, result = _killed(tmp_path, config)
    assert (result.exact, result.resumed_at) == (True, [64])


def test_a_run_that_was_never_interrupted_is_exact_whatever_it_does(tmp_path):
    _, result = train_run(tmp_path / "run", _config("LateClock", _callback("SlowsDown")))
    assert (result.exact, result.resumed_at) == (True, [])


@pytest.mark.parametrize(
    "callback",
    [
        _callback("SetsStage"),
        _callback("SetsStage", "step: 70, indices: [1]"),
        _callback("Advances"),
        _callback("Advances", "every: 1"),
        _callback("SetsAttribute"),
    ],
)
def test_what_a_curriculum_did_to_the_environments_comes_back(tmp_path, callback):
    config = _config("Staged", callback, "n_envs=2", "n_timesteps=384", "eval.every_steps=128")
    assert_same_in_pieces(tmp_path, config, 2)


def test_a_call_with_more_than_plain_data_is_a_reason(tmp_path):
    _, result = _killed(tmp_path, _cut("Staged", _callback("Transforms", "step: 10")))
    assert result.inexact_because[-1] == (
        "env_method 'set_n' was called with more than plain data, which a checkpoint does not hold"
    )


@pytest.mark.parametrize("after", ["after_episodes=4", "after_episodes=9", "after_wins=3"])
def test_an_environment_with_an_account_of_what_it_remembers_is_exact(tmp_path, after):
    assert_same_in_pieces(tmp_path, _config("Remembering", f"env.kwargs.{after}"))


@pytest.mark.parametrize("after", ["after_episodes=20", "after_wins=30"])
def test_a_counter_that_a_resume_lost_is_a_reason_before_it_matters(tmp_path, after):
    _, result = _killed(tmp_path, _cut("Widening", f"env.kwargs.{after}"))
    assert (result.exact, result.inexact_since) == (False, 64)
    assert result.inexact_because == [
        "environment 0: Widening.episodes was 9, is 2 where the episode is replayed; state_dict() "
        "and load_state_dict(state) would keep it"
    ]


def _own_vec_env(name, *overrides):
    return _cut("TinyReach", f"vec_env=support.vec_envs.{name}", "n_envs=2", *overrides)


@pytest.mark.parametrize("overrides", [(), ("normalize=true", "env.frame_stack=2")])
@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_a_vectorised_environment_that_gives_its_state_is_resumed_exactly(
    tmp_path, algo, overrides
):
    more = ("vec_env=support.vec_envs.Walkers", "n_envs=2", "eval.every_steps=64", *overrides)
    config = _config("TinyReach", *more, algo=algo)
    assert_same_in_pieces(tmp_path, config, 7 if algo == "sac" else 2)


def test_with_a_vectorised_environment_no_difference_found_is_all_that_is_said(tmp_path):
    _, result = _killed(tmp_path, _own_vec_env("Walkers"), 2)
    assert (result.exact, result.resumed_at) == ("no difference found", [64])


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("NoState", "vec_env=support.vec_envs.NoState does not give its state"),
        ("Refusing", "vec_env=support.vec_envs.Refusing refuses its state: KeyError"),
    ],
)
def test_a_vectorised_environment_without_a_state_is_a_reason_and_goes_on(tmp_path, name, reason):
    _, result = _killed(tmp_path, _own_vec_env(name, "normalize=true"), 2)
    assert (result.state, result.exact, result.inexact_since) == ("finished", False, 64)
    assert result.inexact_because[0].startswith(reason)


def test_a_vectorised_environment_of_gymnasium_is_named_too(tmp_path):
    config = tiny_config(
        "ppo", "CartPole-v1", "env.packages=[]", "vec_env=gymnasium", "n_envs=2", *SHORT,
        "checkpoint.every_steps=64",
    )  # fmt: skip
    _, result = _killed(tmp_path, config, 2)
    assert result.inexact_because[0].startswith("vec_env=gymnasium does not give its state")


def test_a_state_in_which_something_is_missing_shows_in_the_rows(tmp_path):
    config = _own_vec_env("Forgetful", "algo.hyperparams.n_steps=16")
    _, result = _killed(tmp_path, config, 4)
    assert result.exact is False
    assert "monitor" in result.inexact_because[0] or "metrics" in result.inexact_because[0]
