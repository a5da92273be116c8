"""The importer of rl_zoo3's hyperparameters and the tuned files it wrote."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from rlzoo_plus.commands.import_zoo import main
from rlzoo_plus.config.catalog import ACTIVATIONS, ALGORITHMS, OPTIMIZERS, REPLAY_BUFFERS, WRAPPERS
from rlzoo_plus.config.literals import Symbol, parse_literal, parse_symbol
from rlzoo_plus.config.zoo_files import EnvFile, ZooImport, load_env_files
from rlzoo_plus.config.zoo_import import convert_entry, read_zoo_file
from rlzoo_plus.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
# Environments of this project: tuned here, not by rl_zoo3.
OURS = {p.stem for p in (CONF / "env").glob("*.yaml") if "\nid: robots" in p.read_text()}
TUNED = sorted(p for p in (CONF / "tuned").glob("*/*.yaml") if p.stem not in OURS)
NETWORK_KEYS = {
    *("policy", "net_arch", "activation", "log_std_init", "ortho_init", "full_std", "use_expln"),
    *("squash_output", "n_critics", "n_quantiles", "share_features_extractor", "optimizer"),
    *("optimizer_kwargs", "lstm", "policy_kwargs"),
}
NORMALIZE_KEYS = {"observation", "reward", "clip_observation", "clip_reward", "epsilon"}
ENTRY = """
Base-v0: &base
  normalize: "dict(norm_obs=True, norm_reward=False, gamma=0.9)"
  n_envs: 4
  n_timesteps: 1e6
  policy: 'MlpPolicy'
  learning_rate: lin_7.3e-4
  tau: 1e-2
  buffer_size: !!float 3e5
  train_freq: [1, "episode"]
  noise_type: 'ornstein-uhlenbeck'
  noise_std: 0.5
Arm-v0:
  <<: *base
  env_wrapper:
    - sb3_contrib.common.wrappers.TimeFeatureWrapper:
        test_mode: True
    - my_robots.wrappers.History
  frame_stack: 2
  env_kwargs: "dict(goal='near')"
  replay_buffer_class: HerReplayBuffer
  replay_buffer_kwargs: "dict(goal_selection_strategy='future', n_sampled_goal=4,)"
  tau: 5e-2
  policy_kwargs: "dict(log_std_init=-2.5, net_arch=dict(pi=[256, 256], qf=[64]),
                       activation_fn=nn.ELU, n_critics=2, optimizer_class=th.optim.AdamW,
                       optimizer_kwargs=dict(eps=1e-5), normalize_images=False)"
"""


def zoo_file(folder, text=ENTRY, name="sac.yml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def bring(folder, text=ENTRY, *options, name="sac.yml"):
    """Import a file into conf/ of a folder."""
    main([str(zoo_file(folder, text, name)), "--out", str(folder / "conf"), *options])


def files_of(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("dict(net_arch=[400, 300])", {"net_arch": [400, 300]}),
        (
            "dict(log_std_init=-3.29, ortho_init=False)",
            {"log_std_init": -3.29, "ortho_init": False},
        ),
        ("{'norm_obs': True, 'norm_reward': False}", {"norm_obs": True, "norm_reward": False}),
        ("dict(net_arch=dict(pi=[], vf=[]),)", {"net_arch": {"pi": [], "vf": []}}),
        ("dict( optimizer_kwargs=dict(eps=1e-5) )", {"optimizer_kwargs": {"eps": 1e-5}}),
        ("dict(activation_fn=nn.ReLU)", {"activation_fn": Symbol("activation", "relu")}),
        ("dict(o=RMSpropTFLike)", {"o": Symbol("optimizer", "rmsprop_tf")}),
        ("dict()", {}),
        ("(1, 'episode')", [1, "episode"]),
        ("  None ", None),
    ],
)
def test_the_literal_reader_accepts_the_forms_found_in_rl_zoo3(text, value):
    assert parse_literal(text) == value


@pytest.mark.parametrize("name", ["nn.ReLU", "th.nn.ReLU", "torch.nn.ReLU"])
def test_an_activation_may_be_named_in_the_usual_ways(name):
    assert parse_symbol(name, "activation") == "relu"


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "dict(a=__import__('os'))",
        "open('/etc/hostname')",
        "dict(a=().__class__.__bases__)",
        "nn.ReLU.__init__",
        "nn.ReLU()",
        "os.environ",
        "[x for x in (1, 2)]",
        "dict(a=[1 for _ in range(3)])",
        "f'{1}'",
        "lambda: 1",
        "dict(a=lambda: 1)",
        "1 + 1",
        "2 ** 99999999",
        "[1][0]",
        "dict([('a', 1)])",
        "dict(**{'a': 1})",
        "{**{'a': 1}}",
        "{1: 2}",
        "[*[1]]",
        "dict(a=1, a=2)",
        "(a := 1)",
        "1 if True else 2",
        "b'bytes'",
        "1j",
        "...",
        "-True",
        "{1, 2}",
        "import os",
        "",
        "dict(",
        "'\x00'",
        "(" * 5000 + ")" * 5000,
        "-" * 9000 + "1",
        "[" * 90 + "]" * 90 + " " * 10_000 + "1",
    ],
)
def test_the_literal_reader_refuses_code(text):
    with pytest.raises(ConfigError):
        parse_literal(text)


def test_an_unknown_name_in_a_literal_gets_a_suggestion():
    with pytest.raises(ConfigError, match=r"nn\.Relu.*Did you mean nn\.ReLU"):
        parse_literal("dict(activation_fn=nn.Relu)")


def test_a_yaml_tag_that_builds_a_python_object_is_refused(tmp_path):
    marker = tmp_path / "ran"
    text = f"Env-v0: !!python/object/apply:os.mkdir ['{marker}']\n"
    with pytest.raises(ConfigError, match="Python objects are refused"):
        read_zoo_file(zoo_file(tmp_path, text))
    assert not marker.exists()


@pytest.mark.parametrize("text", ["- a\n- b\n", "", "1: {}\n", "a: [\n", "a: *b\n"])
def test_a_file_that_is_no_mapping_of_entries_is_refused(tmp_path, text):
    source = zoo_file(tmp_path, text)
    with pytest.raises(ConfigError):
        read_zoo_file(source)


def test_an_entry_that_contains_itself_is_refused(tmp_path):
    source = zoo_file(tmp_path, "a:\n  policy_kwargs: &a {net_arch: [*a]}\n")
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_zoo_file(source)


def test_anchors_that_expand_to_billions_of_values_are_refused(tmp_path):
    levels = "".join(f"  l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 15))
    source = zoo_file(tmp_path, f"a:\n  l0: &l0 [1]\n{levels}")
    with pytest.raises(ConfigError, match="anchors expand to more than"):
        read_zoo_file(source)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nowhere\.yml cannot be read"):
        read_zoo_file(tmp_path / "nowhere.yml")


def test_a_full_entry_is_converted(tmp_path):
    converted = convert_entry("sac", read_zoo_file(zoo_file(tmp_path))["Arm-v0"])
    assert converted.values == {
        "n_timesteps": 1_000_000,
        "n_envs": 4,
        "normalize": {"observation": True, "reward": False},
        "env": {
            "wrappers": [{"time_feature": {"test_mode": True}}, "my_robots.wrappers.History"],
            "frame_stack": 2,
            "kwargs": {"goal": "near"},
        },
        "algo": {
            "action_noise": {"type": "ou", "std": 0.5},
            "replay_buffer": "her",
            "hyperparams": {
                "buffer_size": 300_000,
                "learning_rate": "lin_7.3e-4",
                "replay_buffer_kwargs": {"goal_selection_strategy": "future", "n_sampled_goal": 4},
                "tau": 0.05,
                "train_freq": [1, "episode"],
            },
        },
        "network": {
            "net_arch": {"pi": [256, 256], "qf": [64]},
            "activation": "elu",
            "log_std_init": -2.5,
            "n_critics": 2,
            "optimizer": "adamw",
            "optimizer_kwargs": {"eps": 1e-5},
            "policy_kwargs": {"normalize_images": False},
        },
    }
    assert isinstance(converted.values["n_timesteps"], int)
    assert isinstance(converted.values["algo"]["hyperparams"]["buffer_size"], int)
    assert converted.warnings == [
        "normalize.gamma=0.9: the algorithm's is used.",
        "env_wrapper=my_robots.wrappers.History: it needs the package my_robots.",
    ]


LSTM = "dict(lstm_hidden_size=64, enable_critic_lstm=True, n_lstm_layers=2, shared_lstm=False)"
CONVERTED = {
    "one environment and no normalization are written out": ("sac", {}, {}),
    "td3 without noise in the source has none here": ("td3", {}, {"algo": {"action_noise": None}}),
    "recurrent arguments go to the LSTM": (
        "recurrent_ppo",
        {"policy_kwargs": LSTM},
        {
            "network": {
                "lstm": {"hidden_size": 64, "n_layers": 2, "shared": False, "enable_critic": True}
            }
        },
    ),
    "the linear policy of ARS": (
        "ars",
        {"policy": "LinearPolicy"},
        {"network": {"policy": "linear"}},
    ),
    "an automatic policy": ("ppo", {"policy": "MultiInputPolicy"}, {}),
    "the old list of separate networks": (
        "ppo",
        {"policy_kwargs": "dict(net_arch=[dict(pi=[8], vf=[4])])"},
        {"network": {"net_arch": {"pi": [8], "vf": [4]}}},
    ),
}


@pytest.mark.parametrize(("algo", "entry", "expected"), CONVERTED.values(), ids=CONVERTED)
def test_an_entry_means_here_what_rl_zoo3_means(algo, entry, expected):
    converted = convert_entry(algo, entry)
    assert converted.values == {"n_envs": 1, "normalize": False, **expected}
    assert converted.warnings == []


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        ({"policy": "my.Policy"}, "my.Policy"),
        ({"callback": ["rl_zoo3.callbacks.ParallelTrainCallback"]}, "callback"),
        ({"vec_env_wrapper": "a.B"}, "vec_env_wrapper"),
        ({"n_stepz": 8}, "n_stepz"),
        ({"seed": 3}, "seed"),
        ({"noise_std": 0.1}, "noise_std"),
        ({"normalize": "dict(norm_obs_keys=['a'])"}, "norm_obs_keys"),
        ({"env_wrapper": "ae.wrapper.AutoencoderWrapper"}, "needs the package ae"),
    ],
)
def test_what_cannot_be_expressed_is_reported(entry, word):
    converted = convert_entry("ppo", entry)
    assert len(converted.warnings) == 1
    assert word in converted.warnings[0]


@pytest.mark.parametrize(
    "entry",
    [
        "text",
        {"n_envs": 0},
        {"n_timesteps": 1.5},
        {"n_timesteps": True},
        {"noise_type": "pink", "noise_std": 0.1},
        {"noise_type": "normal"},
        {"policy_kwargs": "dict(features_extractor_class=MyExtractor)"},
        {"policy_kwargs": "dict(net_arch=nn.ReLU)"},
        {"policy_kwargs": "dict(net_arch=[64, dict(pi=[8], vf=[4])])"},
        {"policy_kwargs": 3},
        {"replay_buffer_class": "nn.ReLU"},
        {"learning_rate": "${oc.env:HOME}"},
        {"env_kwargs": {"a": {1: 2}}},
        {"env_wrapper": [3]},
        {"env_wrapper": "rl_zoo3.wrappers.NoSuchWrapper"},
        {"env_wrapper": "FrameSkip"},
        {"learning_rate": "lambda p: open(p)"},
        {"n_steps": "(1, open('x'))"},
        {"model_class": "tqc"},
        {"gamma": float("nan")},
    ],
)
def test_an_entry_that_cannot_be_read_is_refused(entry):
    with pytest.raises(ConfigError):
        convert_entry("ppo", entry)


def test_a_part_of_net_arch_that_stable_baselines3_ignores_is_named():
    kwargs = {"net_arch": {"pi": [8], "vf": [4], "shared": [16]}}
    converted = convert_entry("ppo", {"policy_kwargs": kwargs})
    assert converted.values["network"]["net_arch"] == {"pi": [8], "vf": [4]}
    assert "net_arch.shared=[16]: Stable-Baselines3 ignores it" in converted.warnings[0]
    assert kwargs["net_arch"]["shared"] == [16]


def test_a_warning_is_written_into_the_tuned_file(tmp_path):
    bring(tmp_path, "Arm-v0: {callback: my.Callback, gamma: 0.9}\n")
    text = (tmp_path / "conf/tuned/sac/arm.yaml").read_text(encoding="utf-8")
    assert "# Note: callback='my.Callback'" in text
    assert yaml.safe_load(text)["algo"]["hyperparams"] == {"gamma": 0.9}


def test_importing_twice_changes_no_byte(tmp_path):
    bring(tmp_path)
    first = files_of(tmp_path / "conf")
    bring(tmp_path)
    assert files_of(tmp_path / "conf") == first
    assert len(first) == 4


def test_an_environment_file_of_the_user_names_the_tuned_file(tmp_path):
    env_dir = tmp_path / "conf/env"
    env_dir.mkdir(parents=True)
    (env_dir / "my_robot.yaml").write_text("id: Arm-v0\nwrappers: [clip_action]\n")
    bring(tmp_path, ENTRY, "--only", "Arm-v0")
    tuned = yaml.safe_load((tmp_path / "conf/tuned/sac/my_robot.yaml").read_text(encoding="utf-8"))
    assert [p.name for p in env_dir.iterdir()] == ["my_robot.yaml"]
    assert tuned["env"]["wrappers"][0] == "clip_action"


def test_two_versions_of_an_environment_do_not_share_a_file(tmp_path):
    bring(tmp_path, "Arm-v0: {gamma: 0.9}\nArm-v1: {gamma: 0.8}\n")
    assert {p.stem for p in (tmp_path / "conf/tuned/sac").iterdir()} == {"arm", "arm_v1"}


def test_an_environment_id_cannot_leave_the_output_folder(tmp_path):
    bring(tmp_path, '"../../up\\nid: x-v0": {gamma: 0.9}\n')
    assert sorted(p.name for p in tmp_path.iterdir()) == ["conf", "sac.yml"]
    (env_path,) = (tmp_path / "conf/env").iterdir()
    assert yaml.safe_load(env_path.read_text(encoding="utf-8"))["id"] == "../../up\nid: x-v0"


def test_a_file_with_other_content_is_kept_unless_overwrite_is_given(tmp_path):
    bring(tmp_path)
    edited = tmp_path / "conf/tuned/sac/arm.yaml"
    edited.write_text("n_envs: 2\n")
    with pytest.raises(ConfigError, match="--overwrite"):
        bring(tmp_path)
    assert edited.read_text() == "n_envs: 2\n"
    bring(tmp_path, ENTRY, "--overwrite")
    assert edited.read_text() != "n_envs: 2\n"


def test_a_misspelt_id_or_algorithm_gets_a_suggestion(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'Arm-v0'"):
        bring(tmp_path, ENTRY, "--only", "Arn-v0")
    with pytest.raises(ConfigError, match="Did you mean 'tqc'"):
        bring(tmp_path, ENTRY, "--algo", "tqcc")


def test_a_renamed_entry_says_so_and_yields_to_an_entry_of_that_name(tmp_path):
    def imported(entries):
        known, renamed = {"Arm-v3": EnvFile("arm")}, {"Arm-v1": "Arm-v3"}
        done = ZooImport(tmp_path, known, renamed=renamed, create_env_files=False)
        done.add(entries, "sac", "here")
        done.write(overwrite=True)
        return done

    done = imported({"Arm-v1": {"gamma": 0.9}, "Leg-v0": {}})
    assert done.warnings == [("Arm-v1", "The values were tuned on Arm-v1, an older version.")]
    assert done.left_out == [("Leg-v0", "no environment file has this id")]
    done = imported({"Arm-v1": {"gamma": 0.9}, "Arm-v3": {"gamma": 0.9}})
    assert done.left_out == [("Arm-v1", "Arm-v3 has an entry of its own")]


def test_the_script_shows_a_mistake_without_a_traceback(tmp_path):
    command = [sys.executable, "scripts/import_zoo_hyperparams.py", str(tmp_path), "--commit", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr


def test_every_algorithm_of_rl_zoo3_has_tuned_files():
    without = {"her", "maskable_ppo", "mappo", "sac_discrete", "recurrent_sac"}
    of_torch = {n for n, spec in ALGORITHMS.items() if spec.backend == "torch" and not spec.clones}
    assert {path.parent.name for path in TUNED} == of_torch - without


def test_none_holds_the_package_line_and_comments_only():
    text = (CONF / "tuned/none.yaml").read_text(encoding="utf-8")
    assert text.startswith("# @package _global_\n")
    assert yaml.safe_load(text) is None


@pytest.mark.parametrize("path", TUNED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_shipped_tuned_file_holds_only_known_keys_and_names_its_source(path):
    text = path.read_text(encoding="utf-8")
    head = " ".join(line.lstrip("# ") for line in text.split("\n\n")[0].splitlines())
    assert text.startswith("# @package _global_\n")
    assert "rl_zoo3 (MIT licence, commit 22e3ff2)" in head
    assert (CONF / "env" / path.name).is_file()
    values = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    assert values == yaml.safe_load(text)
    known = {"n_timesteps", "n_envs", "normalize", "env", "algo", "network", "eval"}
    assert values.keys() <= known
    assert type(values["n_timesteps"]) is type(values["n_envs"]) is int
    normalize = values["normalize"]
    assert isinstance(normalize, bool) or normalize.keys() <= NORMALIZE_KEYS
    assert values.get("env", {}).keys() <= {"wrappers", "frame_stack", "kwargs"}
    assert set(values.get("env", {}).get("wrappers", [])) <= WRAPPERS.keys()
    assert values["algo"].keys() <= {"hyperparams", "action_noise", "replay_buffer"}
    assert values["algo"].get("replay_buffer", "her") in REPLAY_BUFFERS
    network = values.get("network", {})
    assert network.keys() <= NETWORK_KEYS
    assert network.get("activation", "relu") in ACTIVATIONS
    assert network.get("optimizer", "adam") in OPTIMIZERS


def test_the_shipped_environment_files_have_one_id_each_or_add_arguments_to_it():
    found = load_env_files(CONF / "env")
    assert found["HalfCheetahBulletEnv-v0"].name == "halfcheetah_bullet"
    assert found["robots/HuskyDrive-v1"].name == "husky_drive"
    others = {path.stem for path in (CONF / "env").glob("[!_]*.yaml")} - {
        file.name for file in found.values()
    }
    assert others == {"a1_walk_free", "gym", "husky_avoid", "pettingzoo", "racecar_avoid"}
