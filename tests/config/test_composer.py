"""Composing the jobs of a sweep: the same as Hydra composes, with fewer compositions."""

import itertools
import random

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import open_dict
from omegaconf.errors import OmegaConfBaseException

from rlzoo_plus.config import composer as composer_module
from rlzoo_plus.config.composer import Composer, plain_values
from rlzoo_plus.config.overrides import prepare_overrides
from rlzoo_plus.config.search_path import conf_dir

ERRORS = (HydraException, OmegaConfBaseException, ValueError)
FILES = """
env/mine.yaml:
  id: Pendulum-v1
  name: null
  kwargs: {g: 9.0, twice: "${seed}", nested: {list: [1, {a: "${n_envs}"}]}}
  wrappers: ["${device}", "x${device}y${seed}"]
  packages: []
env/resolving.yaml:
  id: Pendulum-v1
  kwargs: {job: "${hydra:job.num}", choice: "${hydra:runtime.choices.algo}"}
env/relative.yaml:
  id: Pendulum-v1
  kwargs: {a: "${.b}", b: 3}
env/pointing.yaml:
  id: Pendulum-v1
  kwargs: "${eval}"
experiment/mine.yaml: |
  # @package _global_
  defaults:
    - override /algo: sac
  n_timesteps: ${eval.episodes}
  algo: {hyperparams: {batch_size: 8}}
experiment/missing.yaml: |
  # @package _global_
  n_timesteps: ???
  seed: ${n_timesteps}
tuned/ppo/mine.yaml: |
  # @package _global_
  n_envs: 5
  algo: {hyperparams: {gamma: 0.5, train_freq: [1, episode]}, replay_buffer: null}
tuned/sac/mine.yaml: |
  # @package _global_
  seed: 77
  network: {net_arch: {actor: [64], critic: [32]}}
"""


@pytest.fixture
def mine(tmp_path):
    """Write configuration files of a user's own."""
    import yaml

    for name, data in yaml.safe_load(FILES).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return f"hydra.searchpath=[file://{tmp_path}]"


@pytest.fixture
def jobs():
    """Return a function to a composer and to Hydra's own composition, and how often it composed."""
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        loader = GlobalHydra.instance().config_loader()
        load = loader.load_sweep_config

        def begin(*given):
            master = loader.load_configuration("config", list(given), RunMode.MULTIRUN)
            HydraConfig.instance().set_config(master)
            calls = []

            def counted(*words):
                calls.append(words)
                return load(*words)

            def by_hydra(number, words):
                cfg = load(master, list(words))
                with open_dict(cfg):
                    cfg.hydra.job.id, cfg.hydra.job.num = str(number), number
                HydraConfig.instance().set_config(cfg)
                choices = dict(cfg.hydra.runtime.choices)
                with open_dict(cfg):
                    del cfg["hydra"]
                return plain_values(cfg), choices

            loader.load_sweep_config = counted
            return Composer(loader, master), by_hydra, calls

        yield begin
        loader.load_sweep_config = load


def outcome(compose, number, words):
    try:
        return compose(number, words)
    except ERRORS as error:
        return type(error), str(error)


def check(composer, by_hydra, number, words):
    def fast(number, words):
        composed = composer.compose(number, words)
        assert composed.overrides == tuple(words)
        return composed.values, composed.choices

    expected = outcome(by_hydra, number, words)
    assert outcome(fast, number, words) == expected, words
    return not isinstance(expected[0], type)


def test_a_choice_of_files_is_composed_once_whatever_the_values(jobs):
    composer, by_hydra, calls = jobs()
    files = itertools.product(["ppo", "sac"], ["pendulum", "halfcheetah_bullet"], range(3))
    for number, (algo, env, seed) in enumerate(files):
        words = [f"algo={algo}", f"env={env}", f"seed={seed}", f"++algo.hyperparams.gamma=0.{seed}"]
        assert check(composer, by_hydra, number, words)
    assert len(calls) == 4


JOBS = [
    ["seed=1"],
    ["env=null"],
    ["nonsense=1"],
    ["~eval.episodes", "++eval.episodes=3"],
    ["++eval.episodes=3", "~eval.episodes"],
    ["++eval={episodes: 3}", "++eval.episodes=4"],
    ["++network.net_arch=[4, [5]]"],
    ["env=mine", "seed=4"],
    ["env=mine", "++env.kwargs.twice=3", "seed=4"],
    ["env=resolving", "seed=4"],
    ["env=relative", "++env.kwargs.b=4"],
    ["experiment=missing", "n_timesteps=3", "device=cpu"],
    ["algo=pppo", "seed=3"],
    ["+env@other=pendulum", "seed=1"],
    ["++env.kwargs={a: 1}", "seed=1"],
    ["++x[0]=1"],
    ["env=pointing", "++eval.episodes=4"],
    ["experiment=mine", "++algo.hyperparams.batch_size=4", "seed=3"],
    ["experiment=missing", "seed=3"],
    ["tuned=sac/mine", "seed=3"],
    ["env=gym"],
    ["tracker=mlflow", "++tracker.project=mine"],
]


@pytest.mark.parametrize("words", JOBS, ids=" ".join)
def test_a_job_is_what_hydra_composes(jobs, mine, words):
    composer, by_hydra, _ = jobs(mine)
    check(composer, by_hydra, 0, words)
    # Takes what was learnt from the one before.
    check(composer, by_hydra, 1, [*words, "++algo.hyperparams.number=1"])


@pytest.mark.slow
def test_jobs_drawn_at_random_are_what_hydra_composes(jobs, mine):
    composer, by_hydra, calls = jobs(mine)
    draw = random.Random(0)
    files = ["env=mine", "env=pendulum", "algo=sac", "algo=ppo", "experiment=mine", "network=small"]
    keys = [
        *("seed", "n_envs", "device", "env.kwargs.g", "env.kwargs.twice", "env.wrappers"),
        *("network.net_arch", "eval", "eval.episodes", "algo.hyperparams.gamma", "callbacks"),
        *("algo.hyperparams.train_freq", "sweep", "env", "nonsense", "n_timesteps", "env.kwargs"),
    ]
    values = ["1", "0.5", "null", "true", "[]", "[1, a]", "text", "'a b'", "{a: 1}", "${seed}"]
    n_composed = 0
    for number in range(120):
        words = draw.sample(files, draw.randint(0, 2))
        for key in draw.sample(keys, draw.randint(1, 3)):
            sign = draw.choice(["", "+", "++", "~"])
            words.append(f"~{key}" if sign == "~" else f"{sign}{key}={draw.choice(values)}")
        draw.shuffle(words)
        n_composed += check(composer, by_hydra, number, words)
    assert n_composed > 20
    # The files, and the job itself.
    assert len(calls) <= 2 * 120


def test_a_job_cannot_change_another_one(jobs):
    composer, _, _ = jobs()
    first = composer.compose(0, ["++env.wrappers=[a]", "seed=1"]).values
    first["env"]["wrappers"].append("b")
    first["algo"]["hyperparams"].clear()
    second = composer.compose(1, ["++env.wrappers=[a]", "seed=2"]).values
    assert second["env"]["wrappers"] == ["a"]
    assert second["algo"]["hyperparams"]


def test_a_reference_to_a_secret_stays_one_and_costs_no_composition(jobs, monkeypatch):
    monkeypatch.setenv("MY_API_TOKEN", "hunter2")
    monkeypatch.setenv("MY_SIZE", "3")
    composer, by_hydra, calls = jobs()
    token, size = "${oc.env:MY_API_TOKEN}", "${oc.env:MY_SIZE}"
    for seed in range(3):
        words = [f"++env.kwargs.api_token={token}", f"++env.kwargs.size={size}", f"seed={seed}"]
        assert check(composer, by_hydra, seed, words)
    kwargs = composer.compose(4, words).values["env"]["kwargs"]
    assert kwargs["api_token"] == token
    assert kwargs["size"] == "3"
    assert len(calls) == 1


def test_a_mistake_in_all_jobs_is_composed_once(jobs):
    composer, _, calls = jobs()
    for seed in range(20):
        for words in (["algo=pppo", f"seed={seed}"], ["nonsense=1", f"++eval.episodes={seed}"]):
            with pytest.raises(HydraException):
                composer.compose(seed, words)
    # The files alone, and the whole job, of each of the two.
    assert len(calls) <= 4


def test_prepared_overrides_stay_plain_values(jobs):
    composer, by_hydra, calls = jobs()
    for number in range(5):
        words = prepare_overrides([f"algo.hyperparams.gamma=0.{number}", f"seed={number}"])
        assert check(composer, by_hydra, number, words)
    assert len(calls) == 1


def test_whole_numbers_are_what_hydra_reads(jobs):
    composer, by_hydra, _ = jobs()
    for number in ("7", "8", "0", "-3", "-0", "007", "+4", "1_000", "9" * 18, "9" * 30):
        check(composer, by_hydra, 1, [f"seed={number}"])
    for key in ("+seed", "++seed", "algo.hyperparams.n_epochs", "algo", "eval"):
        for number in ("7", "8", "007"):
            check(composer, by_hydra, 1, [f"{key}={number}"])


def test_a_whole_number_is_parsed_once_for_each_key(jobs, monkeypatch):
    composer, _, _ = jobs()
    parsed = []
    parse = composer_module._parse
    monkeypatch.setattr(
        composer_module, "_parse", lambda word: (parsed.append(word), parse(word))[1]
    )
    seeds = [composer.compose(n, [f"seed={n}", "n_envs=2"]).values["seed"] for n in range(50)]
    assert seeds == [*range(50)]
    assert parsed == ["seed=0", "n_envs=2"]
