"""From composed values to a checked configuration."""

import pytest
import yaml

from rlzoo_plus.config.cadence import evaluation_steps, trained_steps, with_schedule
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps
from rlzoo_plus.config.resolve import config_hash, env_slug, load_stored, resolve
from rlzoo_plus.config.schema import EvalConfig, RunConfig
from rlzoo_plus.config.search_path import conf_dir, group_options
from rlzoo_plus.envs.single import longest_episode, scheduled
from rlzoo_plus.errors import ConfigError

TUNED = [name for name in group_options("tuned", [conf_dir()]) if "/" in name]


def complaint(check, algo="ppo", **changes):
    with pytest.raises(ConfigError) as caught:
        check(algo, **changes)
    return str(caught.value)


# Counts and numbers


@pytest.mark.parametrize("value", [1000000, 1e6])
def test_a_count_may_be_written_with_an_exponent(check, value):
    config = check("sac", n_timesteps=value, algo__hyperparams__buffer_size=value).config
    for count in (config.n_timesteps, config.algo.hyperparams["buffer_size"]):
        assert count == 1_000_000
        assert isinstance(count, int)


NAN, INF = float("nan"), float("inf")
NO_COUNTS = (1.5, True, "abc", 0, -5, None, NAN, INF, [1])
NO_SIZES = (0, -1, 1.5, True, None, "many")
NO_SHARES = (-0.1, 1.1, True, "high", [1], NAN)
REFUSED = {
    "checkpoint.keep": NO_COUNTS,
    **dict.fromkeys(("n_timesteps", "n_envs", "eval.episodes"), (*NO_COUNTS, 1e30)),
    **dict.fromkeys(("checkpoint.every_minutes", "stop.wall_clock_minutes"), (0, -1, "soon", INF)),
    **dict.fromkeys(("network.log_std_init", "report.video_seconds"), (1e9,)),
    **dict.fromkeys([f"algo.hyperparams.{k}" for k in ("batch_size", "n_epochs")], NO_SIZES),
    **dict.fromkeys([f"algo.hyperparams.{k}" for k in ("gamma", "gae_lambda")], NO_SHARES),
    **dict.fromkeys(("num_threads", "report.video", "log.progress", "log.level"), ("maybe",)),
    "env.max_return": (True,),
    "env.warmup_resets": (100_000_000,),
    "stop.reward_threshold": (NAN,),
    "algo.hyperparams.n_steps": NO_SIZES,
    "algo.hyperparams.learning_rate": ("lim_3e-4", -1, True, "fast", [1], None, NAN),
    "algo.hyperparams.ent_coef": ("abc",),
    "algo.hyperparams.stats_window_size": ("abc",),
    "algo.hyperparams.target_kl": ("abc",),
    "seed": (-1, True, 0.5, 99999999999999999999),
    "device": ("gpu", "cuda:", "cuda:x", "CUDA", "cpu ", ""),
    "eval.every_steps": ("none",),
    "eval.n_envs": (0,),
    "normalize": ("observation",),
    "network.net_arch": (64, [0]),
    "env.packages": ("panda_gym",),
    "env.kwargs": (3,),
    "env.id": (None,),
    "run_dir": (3,),
}
NO_INTERVALS = (
    *(0, -1, True, None, 1.5, "often", {"a": 1}),
    *([4], [4, "steps"], [1, "episode", 2], [0, "step"], [-1, "episode"]),
    *(["a", "step"], [[1], "step"], [1.5, "step"], [True, "step"]),
)
REFUSED_FOR_SAC = {
    "algo.hyperparams.train_freq": NO_INTERVALS,
    "algo.hyperparams.gradient_steps": ("abc",),
    "algo.hyperparams.learning_starts": ("abc", None),
}


@pytest.mark.parametrize(
    ("algo", "key", "value"),
    [
        (algo, key, value)
        for algo, table in (("ppo", REFUSED), ("sac", REFUSED_FOR_SAC))
        for key, values in table.items()
        for value in values
    ],
)
def test_a_wrong_value_is_refused_with_its_key(check, algo, key, value):
    assert f"{key}={value}" in complaint(check, algo, **{key.replace(".", "__"): value})


def test_a_text_that_does_not_print_is_shown_as_it_is_written(check):
    assert r"device='cuda:1\n'" in complaint(check, device="cuda:1\n")


def test_zero_and_false_are_values_and_not_gaps(check):
    changes = {"algo__hyperparams__learning_starts": 0, "network__ortho_init": False}
    config = check("sac", seed=0, **changes).config
    assert config.seed == 0
    assert config.algo.hyperparams["learning_starts"] == 0
    assert config.network.ortho_init is False


@pytest.mark.parametrize(("vec_env", "is_told"), [("auto", True), ("unity", False)])
def test_batches_are_compared_with_rollouts_only_where_rows_are_known(
    resolve_config, vec_env, is_told
):
    words = [f"vec_env={vec_env}", "n_envs=1", "n_timesteps=1001", "algo.hyperparams.n_steps=16"]
    warnings = resolve_config(*words, "algo.hyperparams.batch_size=10").warnings
    assert ("the run ends at 1008" in "".join(warnings)) == is_told
    assert ("does not divide one rollout" in "".join(warnings)) == is_told
    large = [*words, "algo.hyperparams.batch_size=48"]
    if is_told:
        with pytest.raises(ConfigError, match="batch_size=48 is above one rollout"):
            resolve_config(*large)
    else:
        resolve_config(*large)


# Unknown names


def test_an_added_key_is_refused_with_the_command_that_lists_all(resolve_config):
    with pytest.raises(ConfigError, match=r"'foo'.*rlzoo-plus train --help") as caught:
        resolve_config("+foo=1")
    assert "Did you mean" not in str(caught.value)


TOGETHER = (
    {
        "algo.hyperparams.batch_size=9000": "batch_size=9000 is above one rollout",
        "algo.hyperparams.gamma=2": "gamma=2: needs a number from 0 to 1",
        "algo.hyperparams.learning_rate=lin": "learning_rate=lin is neither a number",
        "eval.every_steps=10": "eval.every_steps=10 is below one rollout",
        "checkpoint.every_steps=20": "checkpoint.every_steps=20 is below one rollout",
        "init.which=final": "init.* says what a warm start takes",
        "network.lstm.n_layers=2": "network.lstm is for recurrent_ppo",
        "env.wrappers=[clip_rewerd]": "Did you mean 'clip_reward'?",
    },
    # Names and types come first, of all of them those outside of hyperparams.
    {"seed=-1": "seed=-1", "n_envs=0": "n_envs=0"},
    {
        "algo.hyperparams.gama=0.9": "'algo.hyperparams.gama'",
        "algo.hyperparams.n_epochs=many": "n_epochs=many",
        "algo.hyperparams.seed=1": "hyperparams.seed is not set here",
        "env.wrappers=[clip_rewerd]": "clip_rewerd",
    },
)


@pytest.mark.parametrize("mistakes", TOGETHER)
def test_mistakes_are_told_together_one_a_line(resolve_config, mistakes):
    with pytest.raises(ConfigError) as caught:
        resolve_config("algo=ppo", "tuned=none", *mistakes)
    text = str(caught.value)
    assert [part for part in mistakes.values() if part not in text] == []
    assert len(text.splitlines()) == len(mistakes)


def test_a_rollout_that_cannot_be_hides_no_other_mistake(check):
    wrong = {"algo__hyperparams__n_steps": 0, "algo__hyperparams__gae_lambda": -1}
    text = complaint(check, eval__every_steps=10, **wrong)
    assert "n_steps=0: needs a whole number" in text
    assert "gae_lambda=-1: needs" in text
    assert "eval.every_steps" not in text


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("network__activation", "rellu", "'relu'"),
        ("network__optimizer", "adamm", "'adam'"),
        ("network__features_extractor", "nature", "'nature_cnn'"),
        ("env__wrappers", ["time_featur"], "'time_feature'"),
        ("env__wrappers", [{"rescale_actoin": {"min_action": -1}}], "'rescale_action'"),
        ("algo__hyperparams__gama", 0.9, "'algo.hyperparams.gamma'"),
        ("network__net_arch", {"actr": [64], "critic": [64]}, "'actor'"),
        ("normalize", {"observaton": True}, "'normalize.observation'"),
        ("eval__episods", 3, "'eval.episodes'"),
        ("seeed", 1, "'seed'"),
        ("algo__name", "pppo", "'ppo'"),
    ],
)
def test_a_misspelled_name_gets_a_suggestion(check, key, value, expected):
    assert f"Did you mean {expected}?" in complaint(check, **{key: value})


def test_a_dotted_wrapper_is_left_to_its_import(check):
    wrappers = ["their_package.Wrapper", {"their_package.Other": {"a": 1}}, {"clip_action": None}]
    assert check(env__wrappers=wrappers).config.env.wrappers == wrappers


@pytest.mark.parametrize("device", ["auto", "cpu", "mps", "cuda", "cuda:1", "cuda:10"])
def test_a_device_is_accepted(check, device):
    assert check(device=device).config.device == device


@pytest.mark.parametrize(
    ("normalize", "observation", "reward"),
    [(True, True, True), ({"reward": False}, True, False), ({"observation": False}, False, True)],
)
def test_normalize_is_a_switch_or_a_mapping(check, normalize, observation, reward):
    config = check(normalize=normalize).config.normalize
    assert (config.observation, config.reward) == (observation, reward)
    assert check(normalize=False).config.normalize is check(normalize=None).config.normalize is None


# Hyperparameters


@pytest.mark.parametrize("key", ["policy", "env", "seed", "device", "verbose", "policy_kwargs"])
def test_a_managed_argument_is_refused_with_where_it_is_set(check, key):
    text = complaint(check, **{f"algo__hyperparams__{key}": 1})
    assert f"algo.hyperparams.{key}" in text
    assert "use " in text or "set network.policy" in text


@pytest.mark.parametrize("value", [0, 1, 0.99])
def test_a_discount_may_be_zero_or_one(check, value):
    assert check(algo__hyperparams__gamma=value).config.algo.hyperparams["gamma"] == value


def test_a_batch_above_one_rollout_is_refused_with_the_sum(check):
    text = complaint(
        check, n_envs=2, algo__hyperparams__n_steps=16, algo__hyperparams__batch_size=64
    )
    assert "batch_size=64" in text
    assert "n_steps 16 x n_envs 2 = 32" in text
    assert "at most 32" in text


def test_a_batch_of_exactly_one_rollout_is_accepted(check):
    changes = {"algo__hyperparams__n_steps": 16, "algo__hyperparams__batch_size": 32}
    assert not [w for w in check(n_envs=2, **changes).warnings if "batch_size" in w]


def test_a_batch_that_does_not_divide_the_rollout_is_only_noted(check):
    resolved = check(algo__hyperparams__n_steps=100, algo__hyperparams__batch_size=64)
    assert any("batch_size=64 does not divide" in w for w in resolved.warnings)


def test_a_batch_of_one_cannot_be_normalized(check):
    assert "batch_size=1" in complaint(check, algo__hyperparams__batch_size=1)
    both = {"algo__hyperparams__batch_size": 1, "algo__hyperparams__normalize_advantage": False}
    assert check(**both).config.algo.hyperparams["batch_size"] == 1


@pytest.mark.parametrize("value", [4, [4, "step"], [1, "episode"]])
def test_an_update_comes_after_steps_or_episodes(check, value):
    hyperparams = check("td3", algo__hyperparams__train_freq=value).config.algo.hyperparams
    assert hyperparams["train_freq"] == value


def test_updates_counted_in_episodes_need_one_environment(check):
    text = complaint(check, "td3", n_envs=2, algo__hyperparams__train_freq=[1, "episode"])
    assert "n_envs=2" in text


@pytest.mark.parametrize("algo", ["ppo", "a2c", "dqn", "ars"])
def test_action_noise_is_for_continuous_off_policy_algorithms(check, algo):
    text = complaint(check, algo, algo__action_noise={"type": "normal", "std": 0.1})
    assert algo in text
    assert "Remove it" in text


@pytest.mark.parametrize("kind", ["normal", "ou"])
def test_action_noise_is_accepted_where_it_belongs(check, kind):
    noise = check("td3", algo__action_noise={"type": kind, "std": 0.1}).config.algo.action_noise
    assert (noise.type, noise.std) == (kind, 0.1)


@pytest.mark.parametrize(
    ("noise", "expected"),
    [
        ({"type": "nrmal", "std": 0.1}, "Did you mean 'normal'?"),
        ({"type": "normal", "std": -1}, "algo.action_noise.std=-1"),
        ({"type": "normal"}, "algo.action_noise.std is not set"),
        ({"std": 0.1}, "algo.action_noise.type is not set"),
        ("normal", "algo.action_noise=normal"),
    ],
)
def test_wrong_action_noise_is_explained(check, noise, expected):
    assert expected in complaint(check, "td3", algo__action_noise=noise)


def test_a_replay_buffer_is_for_off_policy_algorithms(check):
    assert "keeps no replay buffer" in complaint(check, algo__replay_buffer="her")
    assert "Did you mean 'her'?" in complaint(check, "sac", algo__replay_buffer="herr")
    assert check("sac", algo__replay_buffer="nstep").config.algo.replay_buffer == "nstep"


# Network


def test_a_network_with_half_its_parts_is_refused_before_torch_is_needed(check):
    assert "actor" in complaint(check, network__net_arch={"actor": [64]})


def test_an_algorithm_with_one_network_takes_no_actor_and_critic(check):
    text = complaint(check, "dqn", network__net_arch={"actor": [64], "critic": [64]})
    assert "dqn has one network" in text
    text = complaint(check, "bc_dqn", network__net_arch={"actor": [64], "critic": [64]})
    assert "bc_dqn has one network" in text
    assert check("sac_discrete", network__net_arch={"actor": [64], "critic": [32]})


def test_demonstrations_do_not_go_with_another_reward_than_theirs(check):
    for other in ({"cost": {"limit": 0.1}}, {"reward_model__path": "model"}):
        text = complaint(check, "sac", data__path="demos", **other)
        assert "demonstrations have the environment's reward" in text
        assert next(iter(other)).partition("__")[0] in text


@pytest.mark.parametrize("key", ["hidden_size", "n_layers", "shared", "enable_critic"])
def test_an_lstm_is_for_recurrent_policies(check, key):
    assert "recurrent_ppo" in complaint(check, **{f"network__lstm__{key}": 1})
    assert check("recurrent_ppo", **{f"network__lstm__{key}": 1})


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"network__lstm__shared": True}, "have an LSTM each"),
        ({"network__lstm__enable_critic": False}, "have an LSTM each"),
        ({"algo__replay_buffer": "her"}, "learns from sequences, of a buffer of its own"),
        ({"algo__hyperparams__sequence_length": 0}, "a whole number from 1 to 10000"),
        ({"algo__hyperparams__burn_in": -1}, "a whole number from 0 to 10000"),
        ({"algo__symmetry": "augment"}, "batches without mirror images"),
        ({"asynchronous": True}, "recurrent_sac cannot learn from what older weights did"),
        ({"data__path": "demos"}, "recurrent_sac takes no demonstrations"),
        ({"exploration__kind": "rnd"}, "and not for recurrent_sac"),
        ({"log__actions": True}, "the actions of recurrent_sac cannot be logged"),
    ],
)
def test_what_recurrent_sac_cannot_do_is_refused(check, changes, rule):
    assert rule in complaint(check, "recurrent_sac", **changes)


def test_a_kind_of_policy_that_the_algorithm_lacks_is_refused(check):
    assert "network.policy=linear" in complaint(check, network__policy="linear")
    assert check("ars", network__policy="linear").config.network.policy == "linear"


# Cadence


@pytest.mark.parametrize(
    ("n_timesteps", "longest", "expected"),
    [
        (25_000, 1_000, (5_000, 1)),
        (1_000_000, 1_000, (100_000, 10)),
        (10_000_000, 1_000, (500_000, 20)),
        (100_000, 500, (20_000, 4)),
        (1_000_000, 150, (50_000, 20)),
        (1_000_000, None, (100_000, 10)),
    ],
)
def test_automatic_evaluations_take_a_tenth_of_the_steps_or_are_the_fewest(
    check, n_timesteps, longest, expected
):
    config = with_schedule(check("sac", n_timesteps=n_timesteps).config, lambda: longest)
    assert (config.eval.every_steps, config.eval.episodes) == expected
    assert config.eval.n_envs == min(expected[1], 10)
    share = evaluation_steps(config, longest or 1_000) / n_timesteps
    assert share <= 0.1 or expected == (n_timesteps // 5, 1)


@pytest.mark.parametrize("n_timesteps", [2_000, 33_333, 777_777, 5_000_000])
@pytest.mark.parametrize("given", [{}, {"eval__episodes": 7}, {"eval__every_steps": 5_000}])
def test_what_is_given_stays_and_the_rest_follows_from_it(check, n_timesteps, given):
    config = with_schedule(check(n_timesteps=n_timesteps, **given).config, lambda: 300)
    for key, value in given.items():
        assert getattr(config.eval, key.removeprefix("eval__")) == value
    count = -(-n_timesteps // config.eval.every_steps)
    played = evaluation_steps(config, 300)
    # Nothing automatic is above its least where that takes too much.
    is_least = config.eval.episodes == 1 or "eval__episodes" in given
    is_rare = count <= 5 or "eval__every_steps" in given
    assert played <= 0.1 * n_timesteps or (is_least and is_rare)
    assert given.get("eval__every_steps") or config.eval.every_steps >= 2048


@pytest.mark.parametrize("key", ["reward_threshold", "no_improvement_evals", None])
def test_evaluations_that_decide_play_five_episodes(check, key):
    changes = {f"stop__{key}": 3} if key else {}
    config = with_schedule(
        check(n_timesteps=10_000, n_envs=1, **changes).config, lambda: 500, decides=key is None
    )
    assert config.eval.episodes == 5


def test_an_episode_is_as_long_as_its_evaluation_lets_it_be(check):
    config = check("sac", n_timesteps=100_000, eval__max_episode_steps=100).config
    cut = with_schedule(config, lambda: 500).eval
    assert (cut.every_steps, cut.episodes) == (10_000, 10)


@pytest.mark.parametrize(
    ("algo", "n_timesteps", "n_envs", "expected"),
    [("ppo", 8_192, 8, 16_384), ("ppo", 16_384, 8, 16_384), ("sac", 1_000, 3, 1_002)],
)
def test_a_run_trains_whole_rollouts_and_at_most_one_more(
    check, algo, n_timesteps, n_envs, expected
):
    assert trained_steps(check(algo, n_timesteps=n_timesteps, n_envs=n_envs).config) == expected


def test_what_needs_no_environment_asks_for_none(check):
    config = check(eval__every_steps=5_000, eval__episodes=3).config
    assert with_schedule(config, lambda: pytest.fail("asked")) is config
    assert with_schedule(check(eval__every_steps=None).config, lambda: pytest.fail("asked"))


def test_automatic_evaluation_is_never_finer_than_a_rollout(check):
    config = with_schedule(check(n_timesteps=2048, n_envs=2).config, lambda: 10)
    assert config.eval.every_steps == 4096


@pytest.mark.parametrize(
    ("overrides", "earlier"),
    [
        (("eval.every_steps=5000", "eval.episodes=20"), "eb1ae0f37e5856fd"),
        (("eval.every_steps=null",), "9faf65e26924170b"),
        (("eval.every_steps=null", "eval.episodes=4"), "cb302fd70afe6bc5"),
    ],
)
def test_hashes_are_those_from_before_episodes_could_be_automatic(
    resolve_config, overrides, earlier
):
    assert config_hash(resolve_config(*overrides).config) == earlier


def test_without_evaluations_nothing_stays_automatic(check):
    never = check(eval__every_steps=None).config.eval
    assert (never.every_steps, never.episodes, never.n_envs) == (None, 20, 10)


@pytest.mark.parametrize("episodes", [1, 3, 20, 100])
def test_automatic_evaluation_environments_are_no_more_than_episodes(check, episodes):
    n_envs = check(eval__episodes=episodes).config.eval.n_envs
    assert isinstance(n_envs, int)
    assert 1 <= n_envs <= episodes


@pytest.mark.parametrize("key", ["eval", "checkpoint"])
def test_a_cadence_below_one_rollout_is_refused_with_the_sum(check, key):
    text = complaint(check, n_envs=4, **{f"{key}__every_steps": 1000})
    assert f"{key}.every_steps=1000" in text
    assert "n_steps 2048 x n_envs 4 = 8192" in text
    assert "at least 8192" in text
    assert check(n_envs=4, **{f"{key}__every_steps": 8192})


def test_a_cadence_below_one_off_policy_update_is_refused(check):
    changes = {"n_envs": 2, "algo__hyperparams__train_freq": 8}
    assert "at least 16" in complaint(check, "sac", eval__every_steps=10, **changes)


@pytest.mark.parametrize("key", ["reward_threshold", "no_improvement_evals"])
def test_stopping_by_evaluations_needs_evaluations(check, key):
    text = complaint(check, eval__every_steps=None, **{f"stop__{key}": 3})
    assert f"stop.{key}" in text
    assert "eval.every_steps=null" in text


def test_stopping_by_time_needs_no_evaluations(check):
    config = check(eval__every_steps=None, stop__wall_clock_minutes=3).config
    assert config.stop.wall_clock_minutes == 3


def test_a_run_that_ends_later_than_asked_says_so(check):
    assert any("the run ends at 100352" in w for w in check(n_timesteps=100_000).warnings)
    assert not check(n_timesteps=100_352).warnings


def test_a_run_that_learns_nothing_says_so(check):
    resolved = check("sac", n_timesteps=1000, algo__hyperparams__learning_starts=1000)
    assert any("nothing will be learned" in w for w in resolved.warnings)


# Names and hash


@pytest.mark.parametrize(
    ("env_id", "slug"),
    [
        ("Pendulum-v1", "pendulum-v1"),
        ("robots/CartPole-v0", "robots-cartpole-v0"),
        ("panda_gym:PandaReach-v3", "panda_gym-pandareach-v3"),
        ("../../etc", "etc"),
        ("..", "env"),
        ("", "env"),
    ],
)
def test_an_id_becomes_one_folder_name(env_id, slug):
    assert env_slug(env_id) == slug


def test_an_environment_is_named_by_its_file_or_its_id(defaults):
    assert resolve(defaults("ppo"), env_name="mine").config.env.name == "mine"
    assert resolve(defaults("ppo"), env_name="gym").config.env.name == "robots-cartpolebalance-v0"
    assert resolve(defaults("ppo")).config.env.name == "robots-cartpolebalance-v0"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run_dir", "elsewhere"),
        ("log__sb3", True),
        ("checkpoint__keep", 9),
        ("checkpoint__every_minutes", 1),
        ("report__plot", False),
        ("export__sb3_zip", True),
        ("checkpoint__every_steps", 9000),
        ("log__interval", 9),
        ("infra__workers", 7),
        ("infra__memory_gib", 2),
        ("vec_env", "dummy"),
        ("vec_env", "batched"),
    ],
)
def test_what_does_not_change_the_outcome_does_not_change_the_hash(check, key, value):
    assert config_hash(check(**{key: value}).config) == config_hash(check().config)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 1),
        ("n_envs", 2),
        ("n_timesteps", 7),
        ("normalize", True),
        ("algo__hyperparams__gamma", 0.5),
        ("network__activation", "relu"),
        ("env__kwargs__discrete", True),
        ("vec_env", "subproc"),
        ("num_threads", 2),
        ("eval__episodes", 3),
        ("stop__reward_threshold", 1),
    ],
)
def test_what_changes_the_outcome_changes_the_hash(check, key, value):
    assert config_hash(check(**{key: value}).config) != config_hash(check().config)


def test_a_resolved_configuration_read_back_has_the_same_hash(check):
    config = check(normalize=True).config
    assert config_hash(RunConfig.model_validate(config.model_dump(mode="json"))) == config_hash(
        config
    )


# All tuned files


@pytest.mark.training
@pytest.mark.parametrize("name", TUNED)
def test_a_tuned_file_resolves_and_its_evaluations_take_a_tenth_of_its_steps_or_are_the_fewest(
    compose_values, name
):
    algo, env = name.split("/")
    teacher = ("teacher.run=trained/cartpole_bullet", "teacher.observation=state")
    taught = ("env.kwargs.state=true", *teacher) if algo == "distill" else ()
    values, _ = compose_values(f"algo={algo}", f"env={env}", *taught)
    for factor in (1, 0.1, 10):
        steps = int(factor * values["n_timesteps"])
        config = scheduled(resolve(values | {"n_timesteps": steps}, env_name=env).config)
        longest = longest_episode(config)
        if config.vec_env == "pettingzoo":
            assert longest is None  # Worlds of many agents do not say.
            return
        share = evaluation_steps(config, longest) / steps
        count = -(-steps // config.eval.every_steps)
        spec = get_algorithm(algo)
        why = []
        if count < 5:
            why.append("fewer than 5 rollouts")
            assert rollout_steps(config.algo, spec, config.n_envs) == config.eval.every_steps
        if share > 0.1:
            why.append(f"{count} episodes of {longest} steps")
            assert config.eval.episodes == 1
        shown = f"{count} x {config.eval.episodes} episodes, {share:.1%}"
        print(f"{name:<40} {steps:>11,} steps: {shown} {', '.join(why)}")


def test_a_section_that_was_replaced_is_told_in_one_line(check):
    text = complaint(check, checkpoint={})
    assert "more. Change single keys" in text
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("value", ["", None, float("inf"), [1]])
def test_an_environment_that_is_no_mapping_is_told(check, value):
    assert "must be a mapping. Choose env=NAME" in complaint(check, env=value)


def test_a_value_of_two_lines_is_shown_in_one(check):
    assert len(complaint(check, network__n_critics="a\nb").splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("algo=ppo", "cf3725705cfeb486"),
        ("algo=sac env=pendulum", "2f5c21755843c900"),
        ("algo=dqn env=cartpole", "fc0e702741373a85"),
        ("algo=recurrent_ppo network.lstm.hidden_size=8", "9da138dbe8624df8"),
        ("algo=tqc env=pendulum network.n_quantiles=10", "9fe3f69b9c72373d"),
        (
            "algo=ppo fast=true freeze=[features_extractor] eval.max_episode_steps=100",
            "873e0ffda473057c",
        ),
    ],
)
def test_what_config_yaml_holds_does_not_change_the_hash(resolve_config, line, known):
    config = resolve_config(*line.split(), "tuned=none").config
    assert config_hash(config) == known
    # As runs were stored before, and as they are now.
    for stored in (config.model_dump(mode="json"), config.whole()):
        again = load_stored(yaml.safe_load(yaml.safe_dump(stored)))
        assert again == config
        assert config_hash(again) == known


def test_config_yaml_has_every_key_that_counts_and_none_of_another_algorithm(resolve_config):
    whole = resolve_config("algo=ppo", "tuned=none").config.whole()
    assert whole.keys() == RunConfig.model_fields.keys()
    assert whole["eval"].keys() == EvalConfig.model_fields.keys()
    others = {"lstm", "n_critics", "n_quantiles", "action_noise", "replay_buffer"}
    others |= {"layer_norm", "dropout"}
    assert not others & (whole["network"].keys() | whole["algo"].keys())
    sac = resolve_config("algo=tqc", "env=pendulum", "tuned=none").config.whole()
    assert others - {"lstm"} <= sac["network"].keys() | sac["algo"].keys()
