"""What makes a variant, and the labels that tell variants apart."""

from rlzoo_plus.analysis.variants import settings_labels, variant_key, variant_values


def config(seed=0, algo="ppo", env="hopper", **hyperparams):
    return {
        "env": {"name": env, "id": f"{env}-v0", "kwargs": {}},
        "algo": {"name": algo, "hyperparams": {"gamma": 0.99, **hyperparams}},
        "seed": seed,
        "run_dir": f"outputs/{seed}",
        "log": {"level": "info"},
    }


def key(data):
    return variant_key(variant_values(data))


def labels(*configs):
    return list(settings_labels(dict(enumerate(map(variant_values, configs)))).values())


def test_the_seed_the_place_and_the_log_make_no_variant():
    other = {**config(seed=7), "log": {"level": "debug"}, "store": "s3://a/b"}
    assert key(config()) == key(other)


def test_every_other_key_makes_a_variant():
    base = config()
    changed = [
        {**base, "env": {**base["env"], "kwargs": {"mass": 2}}},
        {**base, "n_envs": 4},
        {**base, "network": {"net_arch": [64]}},
        config(gamma=0.98),
        config(algo="sac"),
    ]
    assert len({key(data) for data in [base, *changed]}) == 6


def test_ways_to_step_environments_that_give_the_same_results_make_no_variant():
    assert key({**config(), "vec_env": "dummy"}) == key({**config(), "vec_env": "batched"})
    assert key({**config(), "vec_env": "dummy"}) != key({**config(), "vec_env": "subproc"})


def test_a_label_names_what_differs_within_an_algorithm_and_environment():
    assert labels(config(), config(gamma=0.9), config(algo="sac")) == [
        "gamma=0.99",
        "gamma=0.9",
        "",
    ]
    with_kwargs = config()
    with_kwargs["env"]["kwargs"] = {"randomization": {"mass": 0.3}}
    assert labels(config(), with_kwargs) == ["randomization.mass=-", "randomization.mass=0.3"]


def test_hundreds_of_keys_still_give_short_labels_that_differ():
    configs = [config(**{f"key_{i}": n * (i % 7) for i in range(200)}) for n in range(9)]
    found = labels(*configs)
    assert len(set(found)) == 9
    assert max(map(len, found)) <= 130
    long = [config(text="x" * 5000 + str(n)) for n in range(3)]
    assert len(set(labels(*long))) == 3


def test_labels_have_no_control_characters():
    first, second = labels(config(text="\x1b[2J"), config(text="a\nb"))
    assert first.isprintable()
    assert second.isprintable()


def test_seeds_of_one_variant_have_one_label():
    assert labels(config(seed=0), config(seed=1)) == ["", ""]
    assert labels(config(seed=0), config(seed=1), config(gamma=0.9))[:2] == ["gamma=0.99"] * 2


def test_runs_stored_before_and_after_config_yaml_was_whole_are_one_variant(resolve_config):
    for line in ("algo=ppo", "algo=sac env=pendulum", "algo=ppo fast=true"):
        config = resolve_config(*line.split(), "tuned=none").config
        assert key(config.whole()) == key(config.model_dump(mode="json"))


def test_a_section_that_is_null_in_one_variant_is_one_word_in_the_others():
    on = {"normalize": {"observation": True, "reward": True}}
    off = {"normalize": None}
    for order in ([on, off], [off, on]):
        found = labels(*({**config(), **change} for change in order))
        assert found == [f"normalize={'null' if c is off else 'true'}" for c in order]
    noises = [None, {"type": "ou", "std": 0.1}, {"type": "ou", "std": 0.2}]
    changed = [config(algo="td3") for _ in noises]
    for data, noise in zip(changed, noises, strict=True):
        data["algo"]["action_noise"] = noise
    assert labels(*changed) == [
        "algo.action_noise=null algo.action_noise.std=-",
        "algo.action_noise=ou algo.action_noise.std=0.1",
        "algo.action_noise=ou algo.action_noise.std=0.2",
    ]
