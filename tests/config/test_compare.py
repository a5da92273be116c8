"""What of a run's configuration may change when it goes on."""

import pytest
import yaml

from rlzoo_plus.config.cadence import with_schedule
from rlzoo_plus.config.compare import continued_config
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError

SMALL = ("algo=ppo", "env=cartpole", "tuned=none", "n_envs=1", "algo.hyperparams.n_steps=128")


@pytest.fixture
def make(resolve_config):
    """Return a function: overrides to a checked configuration."""

    def make_it(*overrides):
        chosen = {override.partition("=")[0] for override in overrides}
        base = [o for o in SMALL if o.partition("=")[0] not in chosen]
        return resolve_config(*base, *overrides).config

    return make_it


def stored(config):
    """Return a configuration as it comes back from a run's directory: of episodes of 500 steps."""
    config = with_schedule(config, lambda: 500)
    return RunConfig.model_validate(yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json"))))


def refusal(before, now):
    with pytest.raises(ConfigError) as caught:
        continued_config(before, now, "outputs/mine")
    return str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "algo=ppo env=cartpole",
        "algo=sac env=halfcheetah_bullet",
        "algo=her env=panda_reach",
        "algo=td3 env=reacher_bullet n_timesteps=1e5",
        "algo=ppo env=cartpole algo.hyperparams.learning_rate=lin_3e-4 network=separate",
        "algo=ppo env=cartpole normalize=true tracker=wandb report.video=auto",
        "algo=ppo env=cartpole env.wrappers=[{time_feature:{max_steps:100}}]",
    ],
)
def test_the_same_command_goes_on_with_the_same_configuration(resolve_config, line):
    config = resolve_config(*line.split()).config
    before = stored(config)
    assert continued_config(before, config, "x") == config.model_copy(update={"eval": before.eval})


@pytest.mark.parametrize(
    "override",
    [
        *("checkpoint.keep=7", "checkpoint.every_minutes=2", "log.level=debug", "log.interval=3"),
        *("tracker=wandb", "report.video=false", "export.sb3_zip=true", "run_dir=elsewhere"),
        *("resume=never", "restart=true", "vec_env=dummy", "vec_env=batched"),
    ],
)
def test_what_does_not_change_what_is_learned_may_change(make, override):
    before, now = stored(make()), make(override)
    expected = now.model_copy(update={"eval": before.eval})
    assert continued_config(before, now, "x") == expected


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("seed=7", "seed: 0 there, 7 here"),
        ("algo=a2c", "algo.name: 'ppo' there, 'a2c' here"),
        ("n_envs=2", "n_envs: 1 there, 2 here"),
        ("algo.hyperparams.gamma=0.5", "algo.hyperparams.gamma: "),
        ("algo.hyperparams.clip_range_vf=0.3", "algo.hyperparams.clip_range_vf: "),
        ("env.kwargs={gravity: 3}", "env.kwargs.gravity: 'not set' there, 3 here"),
        ("eval.episodes=3", "eval.episodes: "),
        ("eval.every_steps=null", "eval.every_steps: "),
        ("eval.every_steps=999999", "eval.every_steps: "),
        ("stop.reward_threshold=1", "stop.reward_threshold: None there, 1.0 here"),
        ("network.net_arch=[8]", "network.net_arch: "),
        ("normalize=true", "normalize"),
        ("vec_env=subproc", "vec_env: 'auto' there, 'subproc' here"),
        ("device=cpu", "device: 'auto' there, 'cpu' here"),
    ],
)
def test_what_decides_the_outcome_is_named_with_both_values(make, override, told):
    text = refusal(stored(make()), make(override))
    assert told in text
    assert "run_dir=outputs/mine" in text
    assert "restart=true" in text


def test_every_key_that_differs_is_named(make):
    text = refusal(stored(make()), make("seed=3", "algo.hyperparams.gamma=0.5"))
    assert "seed: " in text
    assert "algo.hyperparams.gamma: " in text


# The length


def test_a_run_may_become_longer(make):
    now = make("n_timesteps=200000", "eval.every_steps=5000")
    before = stored(make("n_timesteps=100000", "eval.every_steps=5000"))
    assert continued_config(before, now, "x").n_timesteps == 200_000


def test_a_run_may_not_become_shorter(make):
    text = refusal(stored(make("n_timesteps=200000")), make("n_timesteps=100000"))
    assert "n_timesteps: 200000 there, 100000 here" in text


def test_a_longer_run_keeps_the_cadence_that_its_first_length_had_decided(make):
    before = stored(make("n_timesteps=100000"))
    assert (before.eval.every_steps, before.eval.episodes) == (20_000, 4)
    assert continued_config(before, make("n_timesteps=2000000"), "x").eval == before.eval
    # What an earlier version chose is kept, too.
    earlier = {"every_steps": 5000, "episodes": 20, "n_envs": 10}
    before = before.model_copy(update={"eval": before.eval.model_copy(update=earlier)})
    assert continued_config(before, make("n_timesteps=200000"), "x").eval == before.eval


def test_a_run_that_was_made_longer_goes_on_with_the_same_command(make):
    now = make("n_timesteps=200000")
    longer = stored(continued_config(stored(make("n_timesteps=100000")), now, "x"))
    assert continued_config(longer, now, "x") == longer


def test_a_run_can_be_made_longer_twice(make):
    config = stored(make("n_timesteps=100000"))
    for n_timesteps in (200_000, 400_000):
        config = stored(continued_config(config, make(f"n_timesteps={n_timesteps}"), "x"))
    assert (config.n_timesteps, config.eval.every_steps) == (400_000, 20_000)


def test_a_cadence_chosen_by_hand_stays_decisive_in_a_longer_run(make):
    before = stored(make("n_timesteps=100000"))
    text = refusal(before, make("n_timesteps=200000", "eval.every_steps=7000"))
    assert "eval.every_steps: 20000 there, 7000 here" in text


def test_a_longer_run_without_evaluations_stays_without(make):
    before = stored(make("n_timesteps=100000", "eval.every_steps=null"))
    now = make("n_timesteps=200000", "eval.every_steps=null")
    assert continued_config(before, now, "x").eval.every_steps is None


def test_the_stored_configuration_is_left_as_it_is(make):
    before = stored(make("n_timesteps=100000"))
    copy = before.model_dump()
    continued_config(before, make("n_timesteps=200000"), "x")
    assert before.model_dump() == copy
