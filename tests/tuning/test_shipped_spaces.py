"""Every draw from a search space in conf/hpo is a configuration that can be trained."""

import copy

import pytest
import yaml
from support.libraries import ACTING, NEEDS_SBX, each, is_of_sbx
from support.training import make_config

from rlzoo_plus.config.resolve import resolve
from rlzoo_plus.config.search_path import conf_dir
from rlzoo_plus.tuning.override_values import parse_override, same_value
from rlzoo_plus.tuning.space import Space

DRAWS = 50
ALGOS = sorted(path.stem for path in (conf_dir() / "hpo").glob("[!_]*.yaml") if path.stem != "none")
DISCRETE = "env=cartpole_bullet env.kwargs.discrete=true"
# An odd number of environments, no tuned values, and a run so short that limits matter.
SHORT = "env=cartpole_bullet tuned=none n_timesteps=5000 n_envs=3"
USUAL = ("env=cartpole_bullet", "env=halfcheetah_bullet", SHORT)
ENVS = {
    "dqn": (DISCRETE, "env=mountain_car", f"{DISCRETE} {SHORT}"),
    "sbx_dqn": (DISCRETE, "env=mountain_car", f"{DISCRETE} {SHORT}"),
    "qrdqn": (DISCRETE, "env=cartpole", f"{DISCRETE} {SHORT}"),
    "sac_discrete": (DISCRETE, "env=cartpole", f"{DISCRETE} {SHORT}"),
    "maskable_ppo": ("env.id=tests/TinyMasked-v0 env.packages=[support.tiny_envs]",),
    "her": ("env=panda_reach", "env=panda_push n_envs=4"),
    "mappo": ("env=pettingzoo vec_env=pettingzoo env.id=mpe2.simple_spread_v3",),
    "ppo": (*USUAL, DISCRETE, "env=panda_reach"),
    "tqc": (*USUAL, "env=panda_reach"),
}
CASES = [
    pytest.param(algo, env, id=f"{algo} {env}", marks=NEEDS_SBX if is_of_sbx(algo) else ())
    for algo in ALGOS
    for env in ENVS.get(algo, USUAL)
]


def read_space(algo):
    return yaml.safe_load((conf_dir() / "hpo" / f"{algo}.yaml").read_text())


def usual(algo):
    """Return the configuration of an algorithm on the first of its environments."""
    return make_config(f"algo={algo}", *ENVS.get(algo, USUAL)[0].split()).model_dump(mode="json")


def draws(algo, fixed, count, seed=0):
    """Draw at random, as the first trials of every study do."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    space = Space.parse(read_space(algo)["space"])
    return [space.draw(study.ask(), fixed) for _ in range(count)]


def put(values, overrides):
    """Do what Hydra does with `++key=value`, which takes a hundred times as long."""
    values = copy.deepcopy(values)
    parsed = {item.key_or_group: item.value() for item in map(parse_override, overrides)}
    for key, value in parsed.items():
        *path, last = key.split(".")
        inner = values
        for part in path:
            if not isinstance(inner.get(part), dict):
                inner[part] = {}
            inner = inner[part]
        inner[last] = value
    return values, parsed


def at(values, key):
    for part in key.split("."):
        values = values[part]
    return values


def test_every_algorithm_that_acts_has_a_space():
    assert set(ALGOS) == {*ACTING, "mappo"}


@pytest.mark.parametrize("algo", ALGOS)
def test_a_space_names_its_algorithm_and_takes_the_settings_of_all_studies(algo):
    data = read_space(algo)
    assert data["algo"] == algo
    assert data["defaults"] == ["_study", "_self_"]
    assert set(data) - {"n_timesteps"} == {"defaults", "algo", "space"}


@pytest.mark.parametrize("algo", ALGOS)
def test_hydra_gives_a_space_as_it_is_written(algo, compose_values):
    values, choices = compose_values(f"algo={algo}", f"hpo={algo}", "tuned=none")
    assert values["hpo"]["space"] == read_space(algo)["space"]
    # A budget that one machine has.
    assert values["hpo"]["n_trials"] * values["hpo"]["n_timesteps"] <= 25_000_000
    assert choices["hydra/sweeper"] == "rlzoo"


@pytest.mark.parametrize(("algo", "env"), CASES)
def test_each_draw_is_a_possible_configuration(algo, env, compose_values):
    values, _ = compose_values(f"algo={algo}", *env.split())
    fixed = resolve(values).config.model_dump(mode="json")
    count = DRAWS if env == ENVS.get(algo, USUAL)[0] else 15
    for overrides in draws(algo, fixed, count):
        drawn, wanted = put(values, overrides)
        config = resolve(drawn).config.model_dump(mode="json")
        # None is evaluated less often than what it is compared with, or only collects.
        assert config["eval"]["every_steps"] <= fixed["eval"]["every_steps"]
        if "algo.hyperparams.learning_starts" in wanted:
            assert wanted["algo.hyperparams.learning_starts"] <= config["n_timesteps"] / 10
        for key, value in wanted.items():
            assert same_value(at(config, key), value), key


@pytest.mark.parametrize("algo", each(ALGOS))
def test_a_draw_means_the_same_on_the_command_line(algo, compose_values):
    words = [f"algo={algo}", *ENVS.get(algo, USUAL)[0].split()]
    for overrides in draws(algo, usual(algo), 2, seed=1):
        composed, _ = compose_values(*words, *overrides)
        for override in overrides:
            parsed = parse_override(override)
            assert same_value(at(composed, parsed.key_or_group), parsed.value()), override


@pytest.mark.parametrize("algo", each(ALGOS))
def test_draws_take_one_to_eight_updates_per_environment_step(algo):
    fixed = usual(algo)
    fewest = 0.25 if algo.endswith("dqn") else 1
    ratios = []
    for overrides in draws(algo, fixed, DRAWS):
        drawn = dict(override.split("=", 1) for override in overrides)
        if "algo.hyperparams.gradient_steps" in drawn:
            steps = int(drawn["algo.hyperparams.train_freq"]) * fixed["n_envs"]
            ratios.append(int(drawn["algo.hyperparams.gradient_steps"]) / steps)
    if ratios:
        assert fewest <= min(ratios) <= 1 < max(ratios) <= 8
        assert sum(ratio > 1 for ratio in ratios) > DRAWS / 4


@pytest.mark.parametrize("algo", each(ALGOS))
def test_what_is_trained_without_a_study_lies_inside_the_space(algo):
    space = Space.parse(read_space(algo)["space"])
    params, _ = space.encode(usual(algo))
    assert len(params) >= 0.6 * len(space.dimensions)


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "env"), CASES)
def test_the_doctor_finds_nothing_wrong_with_what_is_drawn(algo, env, compose_values):
    from rlzoo_plus.doctor.check_jobs import diagnose

    values, _ = compose_values(f"algo={algo}", *env.split())
    fixed = resolve(values).config.model_dump(mode="json")
    count = DRAWS if env == ENVS.get(algo, USUAL)[0] else 5
    for overrides in draws(algo, fixed, count, seed=2):
        drawn, _ = put(values, overrides)
        found = diagnose(resolve(drawn).config)
        assert not [finding.text for finding in found if finding.level == "error"], overrides
