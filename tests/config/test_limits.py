"""Every hyperparameter of every shipped algorithm has the bounds of the code that uses it."""

import pytest
from support.libraries import each

from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.config.hyperparams import limit_of
from rlzoo_plus.config.signatures import MANAGED, constructor_arguments
from rlzoo_plus.errors import ConfigError

INF, NAN = float("inf"), float("nan")
WRONG = {
    "ppo": {
        "max_grad_norm": (-1, 0, NAN, "abc"),
        "stats_window_size": (-5, 0, 1.5),
        "target_kl": (0, -1, NAN),
        "clip_range": (-1, NAN, INF, "lin_-1"),
        "clip_range_vf": (0, -1),
        "ent_coef": (NAN, INF),
        "vf_coef": (-1, NAN),
        "n_epochs": (0, 1e400, 10**16),
        "sde_sample_freq": (-5, 1.5),
        "learning_rate": (INF, NAN, -1),
    },
    "a2c": {"rms_prop_eps": (-1, NAN)},
    "trpo": {
        "cg_max_steps": (0,),
        "cg_damping": (-1, NAN),
        "line_search_shrinking_factor": (0, 1, 2),
        "line_search_max_iter": (0,),
        "n_critic_updates": (0,),
        "sub_sampling_factor": (0,),
        "target_kl": (0, None),
    },
    "sac": {
        "buffer_size": (0,),
        "learning_starts": (-1, 1e400),
        "tau": (2, NAN),
        "gradient_steps": (0, -5),
        "ent_coef": ("auto_x", "auto_-1", "auto_0", "auto_", "foo", -1, NAN),
        "target_entropy": ("foo", NAN),
        "target_update_interval": (0, -1),
    },
    "td3": {
        "policy_delay": (0,),
        "target_policy_noise": (-1, NAN),
        "target_noise_clip": (-1,),
    },
    "tqc": {"top_quantiles_to_drop_per_net": (-1, 1.5)},
    "crossq": {"policy_delay": (0,), "ent_coef": ("auto_0",)},
    "dqn": {
        "exploration_fraction": (0, 2, -1),
        "exploration_initial_eps": (2, -1),
        "exploration_final_eps": (NAN,),
        "max_grad_norm": (-1, None),
    },
    "qrdqn": {"max_grad_norm": (-1,)},
    "ars": {
        "n_delta": (0,),
        "n_top": (0,),
        "delta_std": (0, -1),
        "alive_bonus_offset": (NAN,),
        "n_eval_episodes": (0,),
    },
}
RIGHT = {
    "ppo": {
        "max_grad_norm": (0.5, INF),
        "target_kl": (None, 0.01),
        "clip_range_vf": (None, 0.2, "lin_0.2"),
        "ent_coef": (0, -0.01),
        "sde_sample_freq": (-1, 0, 4),
    },
    "sac": {
        "gradient_steps": (-1, 1, 64),
        "ent_coef": ("auto", "auto_0.1", "auto_1e-3", 0.2, 0),
        "target_entropy": ("auto", -3),
        "learning_starts": (0,),
    },
    "her": {"ent_coef": ("auto_0.5",)},
    "qrdqn": {"max_grad_norm": (None, 10)},
    "ars": {"n_top": (None, 4)},
}


def _cases(table):
    return [(a, k, v) for a, keys in table.items() for k, values in keys.items() for v in values]


@pytest.mark.parametrize(("algo", "key", "value"), _cases(WRONG))
def test_a_value_that_cannot_train_is_refused_by_name(check, algo, key, value):
    with pytest.raises(ConfigError, match=rf"algo\.hyperparams\.{key}=") as caught:
        check(algo, **{f"algo__hyperparams__{key}": value})
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("algo", "key", "value"), _cases(RIGHT))
def test_an_unusual_value_that_trains_is_accepted(check, algo, key, value):
    assert check(algo, **{f"algo__hyperparams__{key}": value}).config.algo.name == algo


# What no number can be wrong for: types, and mappings that the library checks itself.
FREE = {"bool", "dict[str, Any] | None", "type[ReplayBuffer] | None", "dict | None"}


@pytest.mark.parametrize("name", each(sorted(ALGORITHMS)))
def test_every_number_of_an_algorithm_has_bounds(name):
    spec = ALGORITHMS[name]
    known = constructor_arguments(spec.entry_point)
    unbounded = [
        key
        for key, annotation in known.items()
        if key not in MANAGED
        and key not in (*spec.schedules, "train_freq")
        and annotation not in FREE
        and limit_of(key, spec.entry_point) is None
    ]
    assert unbounded == []


def test_an_algorithm_of_the_user_has_its_own_meaning_of_most_names():
    assert limit_of("max_grad_norm", "my_package.mine:Mine") is None
    assert not limit_of("n_steps", "my_package.mine:Mine").allows(0)
