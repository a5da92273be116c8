"""A whole folder of rl_zoo3 becomes a folder of configuration files, and each entry composes."""

import json
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf, open_dict

from rlzoo_plus.commands.import_zoo import main
from rlzoo_plus.config.catalog import ALGORITHM_OF_STEM, WRAPPERS
from rlzoo_plus.config.literals import schedule_of_lambda
from rlzoo_plus.config.resolve import resolve
from rlzoo_plus.config.search_path import conf_dir, searched_first
from rlzoo_plus.config.zoo_files import GENERIC_ENTRIES, RENAMED
from rlzoo_plus.config.zoo_import import convert_entry, read_zoo_file
from rlzoo_plus.errors import ConfigError

VALUES = json.loads((Path(__file__).parent / "fixtures" / "rl_zoo3_values.json").read_text())
FILES = VALUES["files"]
# Written for an rl_zoo3 of before Stable-Baselines3 1.1, which 2.9.2 does not read either.
OLD = {"her"}
ENTRIES = [(stem, entry) for stem, entries in FILES.items() for entry in entries]
# One of each kind: long ids, tuples, wrappers, no velocities, generic, renamed, shipped.
SAMPLE = [
    ("ppo", "LunarLanderContinuous-v3"), ("ppo", "MiniGrid-ObstructedMaze-2Dlh-v0"),
    ("ddpg", "HumanoidBulletEnv-v0"), ("sac", "donkey-generated-track-v0"),
    ("ppo_lstm", "LunarLanderContinuousNoVel-v2"), ("qrdqn", "atari"), ("ars", "default"),
    ("tqc", "PandaPickAndPlace-v1"), ("tqc", "FetchReach-v1"), ("sac", "CarRacing-v3"),
]  # fmt: skip


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Return the folder that one command wrote, and the file of each environment id."""
    folder = tmp_path_factory.mktemp("rl_zoo3")
    for stem, entries in FILES.items():
        (folder / f"{stem}.yml").write_text(yaml.safe_dump(entries, sort_keys=False))
    out = folder / "my conf"
    assert main([str(folder), "--out", str(out)]) == 0
    names = {}
    for path in [*(conf_dir() / "env").glob("[!_]*.yaml"), *(out / "env").glob("*.yaml")]:
        names.setdefault(yaml.safe_load(path.read_text())["id"], path.stem)
    return out, names


def composed(imported, stem, entry):
    """Return the checked configuration that the command line of an entry gives, and its choices."""
    out, names = imported
    algorithm = ALGORITHM_OF_STEM.get(stem, stem)
    env_id = RENAMED.get(entry, entry)
    words = [f"algo={algorithm}", f"env={names.get(env_id)}"]
    if entry in GENERIC_ENTRIES:
        words = [f"algo={algorithm}", f"tuned={algorithm}/{entry}", "env=gym", "env.id=Any-v0"]
    with searched_first([out]), initialize_config_dir(str(conf_dir()), version_base="1.3"):
        cfg = compose("config", words, return_hydra_config=True)
    choices = dict(cfg.hydra.runtime.choices)
    with open_dict(cfg):
        del cfg["hydra"]
    values = OmegaConf.to_container(cfg, resolve=True)
    return resolve(values, env_name=choices["env"]).config, choices


def check(imported, stem, entry):
    config, choices = composed(imported, stem, entry)
    algorithm, wanted = ALGORITHM_OF_STEM.get(stem, stem), FILES[stem][entry]
    assert choices["tuned"].startswith(f"{algorithm}/")
    assert (imported[0] / "tuned" / f"{choices['tuned']}.yaml").is_file()
    assert config.n_timesteps == wanted["n_timesteps"]
    if entry not in GENERIC_ENTRIES:
        assert config.env.id == RENAMED.get(entry, entry)
    if isinstance(wanted.get("gamma"), float):
        assert config.algo.hyperparams["gamma"] == wanted["gamma"]
    return config


def test_the_values_are_those_of_all_files_of_rl_zoo3():
    assert len(FILES) == 13
    assert len(ENTRIES) == 283
    assert sum(entry not in GENERIC_ENTRIES and stem not in OLD for stem, entry in ENTRIES) == 259


def test_one_command_converts_every_entry_but_the_old_ones(imported, capsys):
    out, _ = imported
    written = {path.relative_to(out / "tuned").as_posix() for path in out.glob("tuned/*/*.yaml")}
    assert len(written) == len(ENTRIES) - len(FILES["her"])
    main([str(out.parent), "--out", str(out)])
    captured = capsys.readouterr()
    assert "276 entries of 13 files converted, 7 left out" in captured.out
    assert "wrote" not in captured.out
    left_out = [line for line in captured.err.splitlines() if line.startswith("left out: ")]
    assert len(left_out) == 7
    assert all("her.yml" in line and "before Stable-Baselines3 1.1" in line for line in left_out)


def test_each_id_has_one_environment_file_and_states_it_in_full(imported):
    out, _ = imported
    shipped = {yaml.safe_load(p.read_text())["id"] for p in conf_dir().glob("env/[!_]*.yaml")}
    new = [yaml.safe_load(path.read_text())["id"] for path in out.glob("env/*.yaml")]
    assert len({*shipped, *new}) == len([*shipped, *new])
    known = {RENAMED.get(entry, entry) for _, entry in ENTRIES}
    assert set(new) <= known


@pytest.mark.parametrize(("stem", "entry"), SAMPLE, ids=[f"{s}-{e}" for s, e in SAMPLE])
def test_an_entry_composes(imported, stem, entry):
    check(imported, stem, entry)


@pytest.mark.slow
@pytest.mark.parametrize("stem", sorted(FILES.keys() - OLD))
def test_all_entries_of_a_file_compose(imported, stem):
    for entry in FILES[stem]:
        check(imported, stem, entry)


WRAPPERS_OF_RL_ZOO3 = {
    "rl_zoo3.wrappers.FrameSkip": "frame_skip",
    "rl_zoo3.wrappers.HistoryWrapper": "history",
    "rl_zoo3.wrappers.HistoryWrapperObsDict": "history",
    "rl_zoo3.wrappers.ActionNoiseWrapper": "noisy_action",
    "rl_zoo3.wrappers.ActionSmoothingWrapper": "smooth_action",
    "rl_zoo3.wrappers.DelayedRewardWrapper": "delayed_reward",
    "rl_zoo3.wrappers.TruncatedOnSuccessWrapper": "truncate_on_success",
    "rl_zoo3.wrappers.MaskVelocityWrapper": "mask_velocity",
    "rl_zoo3.wrappers.YAMLCompatResizeObservation": "resize_observation",
    "utils.wrappers.TimeFeatureWrapper": "time_feature",
    "sb3_contrib.common.wrappers.TimeFeatureWrapper": "time_feature",
    "sb3_contrib.common.wrappers.time_feature.TimeFeatureWrapper": "time_feature",
    "stable_baselines3.common.atari_wrappers.AtariWrapper": "atari",
    "gymnasium.wrappers.transform_observation.GrayscaleObservation": "grayscale_observation",
    "gymnasium.wrappers.RescaleAction": "rescale_action",
}


@pytest.mark.parametrize(("path", "name"), WRAPPERS_OF_RL_ZOO3.items())
def test_a_wrapper_of_rl_zoo3_has_a_counterpart(path, name):
    converted = convert_entry("sac", {"env_wrapper": path})
    assert converted.values["env"] == {"wrappers": [name]}
    assert converted.warnings == []
    assert name in WRAPPERS


def test_a_wrapper_of_gymnasium_without_a_name_gets_its_path_of_today():
    entry = {"env_wrapper": "gymnasium.wrappers.transform_reward.NormalizeReward"}
    env = convert_entry("sac", entry).values["env"]
    assert env["wrappers"] == ["gymnasium.wrappers.NormalizeReward"]


def test_an_innermost_time_limit_becomes_that_of_the_environment():
    limit = {"gymnasium.wrappers.time_limit.TimeLimit": {"max_episode_steps": 500}}
    env = convert_entry("sac", {"env_wrapper": [limit, "rl_zoo3.wrappers.FrameSkip"]}).values["env"]
    assert env == {"time_limit": 500, "wrappers": ["frame_skip"]}
    env = convert_entry("sac", {"env_wrapper": ["rl_zoo3.wrappers.FrameSkip", limit]}).values["env"]
    assert list(env["wrappers"][1]) == ["gymnasium.wrappers.TimeLimit"]


TUPLES = ["[1, episode]", "\"(1, 'episode')\"", "\"[1, 'episode']\"", "!!python/tuple [1, episode]"]


@pytest.mark.parametrize("text", TUPLES)
def test_a_tuple_is_read_in_every_spelling(tmp_path, text):
    (tmp_path / "sac.yml").write_text(f"Arm-v0: {{train_freq: {text}}}\n")
    entry = read_zoo_file(tmp_path / "sac.yml")["Arm-v0"]
    assert convert_entry("sac", entry).values["algo"]["hyperparams"]["train_freq"] == [1, "episode"]


def test_updates_after_an_episode_are_read_as_version_1_0_wrote_them():
    old = {"train_freq": -1, "n_episodes_rollout": 2}
    assert convert_entry("td3", old).values["algo"]["hyperparams"]["train_freq"] == [2, "episode"]
    converted = convert_entry("td3", {"train_freq": 4, "n_episodes_rollout": -1})
    assert converted.values["algo"]["hyperparams"] == {"train_freq": 4}
    assert converted.warnings == []


LINES = {
    "lambda p: p * 3e-4": "lin_0.0003",
    "lambda progress: 2.5e-4 * progress": "lin_0.00025",
    "lambda _: 0.2": 0.2,
    "lambda p: 1e-5 + p * (3e-4 - 1e-5)": "lin_0.0003_1e-05",
    "lambda x: 3e-4 * (1 - (1 - x))": "lin_0.0003",
    "lambda x: -x / -4": "lin_0.25",
}


@pytest.mark.parametrize(("text", "schedule"), LINES.items())
def test_a_function_that_is_a_straight_line_becomes_a_schedule(text, schedule):
    assert schedule_of_lambda("learning_rate", text) == schedule


@pytest.mark.parametrize("text", [
    "lambda p: p ** 2", "lambda p: p * p", "lambda p: 1 / p", "lambda p: open('x')", "lambda: 1",
    "lambda p, q: p", "lambda p: q", "lambda p: p / 0", "lambda p: p if p else 1", "lambda p",
    "lambda p: 9 ** 9 ** 9", "lambda p: True", "lambda p: " + "-" * 9000 + "p",
])  # fmt: skip
def test_any_other_function_is_refused_and_never_run(text):
    with pytest.raises(ConfigError, match="straight lines"):
        schedule_of_lambda("learning_rate", text)


def test_an_entry_with_another_function_is_listed_and_the_others_are_converted(tmp_path, capsys):
    (tmp_path / "ppo.yml").write_text(
        'A-v0: {clip_range: "lambda p: p ** 2"}\nB-v0: {clip_range: "lambda p: 0.2 * p"}\n'
    )
    main([str(tmp_path / "ppo.yml"), "--out", str(tmp_path / "conf")])
    tuned = yaml.safe_load((tmp_path / "conf/tuned/ppo/b.yaml").read_text())
    assert tuned["algo"]["hyperparams"]["clip_range"] == "lin_0.2"
    assert "left out: ppo.yml: A-v0: clip_range=" in capsys.readouterr().err


def test_a_folder_may_hold_one_folder_for_each_algorithm(tmp_path, capsys):
    for name in ("ppo/Arm-v0", "ppo_lstm/Arm-v0", "notes/Arm-v0"):
        path = tmp_path / "zoo" / f"{name}.yml"
        path.parent.mkdir(parents=True)
        path.write_text("Arm-v0: {gamma: 0.9}\n")
    main([str(tmp_path / "zoo"), "--out", str(tmp_path / "conf")])
    written = {p.parent.name for p in (tmp_path / "conf").glob("tuned/*/arm.yaml")}
    assert written == {"ppo", "recurrent_ppo"}
    captured = capsys.readouterr()
    assert "left out: notes/Arm-v0.yml: there is no algorithm Arm-v0; give --algo" in captured.err
    assert "2 entries of 3 files converted, 1 left out" in captured.out


def test_of_two_files_with_one_entry_the_second_is_named(tmp_path, capsys):
    (tmp_path / "zoo" / "ppo").mkdir(parents=True)
    (tmp_path / "zoo" / "ppo.yml").write_text("Arm-v0: {gamma: 0.9}\n")
    (tmp_path / "zoo" / "ppo" / "arm.yml").write_text("Arm-v0: {gamma: 0.8}\n")
    main([str(tmp_path / "zoo"), "--out", str(tmp_path / "conf")])
    assert "gamma: 0.9" in (tmp_path / "conf/tuned/ppo/arm.yaml").read_text()
    assert "left out: ppo/arm.yml: Arm-v0: another file has an entry" in capsys.readouterr().err


PYTHON = """
import torch
open("ran", "w")
hyperparams = {
    "Arm-v0": dict(
        n_timesteps=2e4,
        replay_buffer_class=HerReplayBuffer,
        policy_kwargs=dict(activation_fn=torch.nn.ELU, net_arch=[8]),
    ),
    "Leg-v0": dict(learning_rate=linear_schedule(3e-4)),
}
hyperparams["Hand-v0"] = {"gamma": 0.9}
"""


@pytest.mark.parametrize("folder", ["", "sac"])
def test_a_python_file_is_read_by_its_literals_and_never_run(tmp_path, capsys, monkeypatch, folder):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "zoo" / folder / ("mine.py" if folder else "sac.py")
    path.parent.mkdir(parents=True)
    path.write_text(PYTHON)
    (path.parent / "other_code.py").write_bytes("print('é')\n".encode("latin1"))
    main([str(tmp_path / "zoo"), "--out", str(tmp_path / "conf")])
    tuned = yaml.safe_load((tmp_path / "conf/tuned/sac/arm.yaml").read_text())
    assert (tuned["n_timesteps"], tuned["network"]["activation"]) == (20_000, "elu")
    assert tuned["algo"]["replay_buffer"] == "her"
    captured = capsys.readouterr()
    assert "2 entries of 1 file converted, 1 left out" in captured.out
    assert "Leg-v0: 'linear_schedule(0.0003)' is code" in captured.err
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1", "does not assign a dictionary to hyperparams"),
        ("hyperparams = make()", "does not assign a dictionary to hyperparams"),
        ("hyperparams = {**base}", r"the key \*\* of hyperparams is not a text"),
        ("hyperparams = {\nfor x in y: hyperparams[x] = {}", "never closed"),
    ],
)
def test_a_python_file_without_literals_is_refused_with_the_reason(tmp_path, text, reason):
    (tmp_path / "ppo.py").write_text(text)
    with pytest.raises(ConfigError, match=f"{reason}.*Its code is not run"):
        main([str(tmp_path / "ppo.py"), "--out", str(tmp_path / "conf")])


NONE = {
    **dict.fromkeys(("policy_kwargs", "env_kwargs", "frame_stack", "noise_type"), "None"),
    **dict.fromkeys(("normalize", "replay_buffer_class", "replay_buffer_kwargs"), "None"),
    "env_wrapper": " None",
}


def test_none_written_as_python_writes_it_is_null():
    plain = convert_entry("sac", {})
    converted = convert_entry("sac", NONE)
    hyperparams = converted.values.pop("algo")["hyperparams"]
    assert (converted.values, converted.warnings) == (plain.values, plain.warnings)
    assert hyperparams == {"replay_buffer_kwargs": {}}
    wrapper = {"env_wrapper": [{"rl_zoo3.wrappers.FrameSkip": "None"}]}
    assert convert_entry("sac", wrapper).values["env"]["wrappers"] == ["frame_skip"]


def test_arguments_of_hindsight_replay_that_are_gone_are_named():
    kwargs = "dict(online_sampling=True, n_sampled_goal=4)"
    converted = convert_entry("sac", {"replay_buffer_kwargs": kwargs})
    hyperparams = converted.values["algo"]["hyperparams"]
    assert hyperparams["replay_buffer_kwargs"] == {"n_sampled_goal": 4}
    (warning,) = converted.warnings
    assert "online_sampling=True: Stable-Baselines3 2 has no such argument" in warning


def test_an_ordered_dictionary_as_the_rl_zoo_saves_one_is_read_as_data(tmp_path):
    path = tmp_path / "args.yml"
    tag = "!!python/object/apply:collections.OrderedDict\n"
    path.write_text(f"{tag}- - - algo\n    - ppo\n  - - hyperparams\n    - {{gamma: 0.9}}\n")
    assert read_zoo_file(path) == {"algo": "ppo", "hyperparams": {"gamma": 0.9}}
    for wrong in ("- 3", "- - - [a]\n    - b", "- []\n- []", "{a: 1}"):
        path.write_text(f"{tag}{wrong}\n")
        with pytest.raises(ConfigError):
            read_zoo_file(path)


def test_a_folder_without_files_is_named(tmp_path):
    with pytest.raises(ConfigError, match="holds no"):
        main([str(tmp_path), "--out", str(tmp_path / "conf")])


def test_nothing_is_written_if_a_file_of_a_later_source_stands_in_the_way(tmp_path):
    for name in ("ppo", "sac"):
        (tmp_path / f"{name}.yml").write_text("Arm-v0: {gamma: 0.9}\n")
    blocked = tmp_path / "conf" / "tuned" / "sac" / "arm.yaml"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("mine")
    with pytest.raises(ConfigError, match="Nothing was written"):
        main(
            [*(str(tmp_path / f"{n}.yml") for n in ("ppo", "sac")), "--out", str(tmp_path / "conf")]
        )
    assert [p for p in (tmp_path / "conf").rglob("*") if p.is_file()] == [blocked]


NAMES = {
    "LunarLanderContinuous-v3": "lunar_lander_continuous",
    "None-v0": "none_v0",
    "2048-v0": "env_2048",
    "Atari-v1": "atari_v1",
    "default-v0": "default_v0",
    "-v1": "env",
}


@pytest.mark.parametrize(("env_id", "name"), NAMES.items())
def test_a_file_has_a_name_that_hydra_takes_for_one(tmp_path, env_id, name):
    (tmp_path / "sac.yml").write_text(f'"{env_id}": {{gamma: 0.9}}\n')
    main([str(tmp_path / "sac.yml"), "--out", str(tmp_path / "conf")])
    (path,) = (tmp_path / "conf" / "env").iterdir()
    assert path.stem == name
    assert yaml.safe_load(path.read_text()) == {"id": env_id}
    assert (tmp_path / "conf" / "tuned" / "sac" / path.name).is_file()


def test_files_of_other_content_never_exhaust_the_names(tmp_path):
    folder = tmp_path / "conf" / "env"
    folder.mkdir(parents=True)
    for name in ("arm", "arm_v0", "arm_v0_2"):
        (folder / f"{name}.yaml").write_text("id: Other-v0\n")
    (tmp_path / "sac.yml").write_text("Arm-v0: {gamma: 0.9}\n")
    main([str(tmp_path / "sac.yml"), "--out", str(tmp_path / "conf")])
    assert (tmp_path / "conf/tuned/sac/arm_v0_3.yaml").is_file()
