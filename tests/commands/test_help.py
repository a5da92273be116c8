"""What the commands say about themselves, and what a shell completes."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rlzoo_plus.commands import dispatch
from rlzoo_plus.commands.completion import options
from rlzoo_plus.commands.train_help import train_help
from rlzoo_plus.commands.verbs import GROUPS as GROUPS_OF_VERBS
from rlzoo_plus.config.conf_keys import GROUPS
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.search_path import conf_dir, group_options

ROOT = Path(__file__).resolve().parents[2]
MODULE = ["-m", "rlzoo_plus"]
ALL = ["--help", "all"]
SCRIPT = [str(ROOT / "train.py")]


def start(*arguments, cwd, **environ):
    environment = {**os.environ, **environ}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_overview_names_every_verb():
    text = dispatch.usage()
    for verb, about in dispatch.VERBS.items():
        assert f"  {verb} " in text
        assert about in text
    assert "-sc install=bash" in text


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_without_a_verb_the_overview_is_shown(monkeypatch, capsys, arguments):
    monkeypatch.setattr(sys, "argv", ["rlzoo-plus", *arguments])
    with pytest.raises(SystemExit) as stop:
        dispatch.entry_point()
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == dispatch.usage()


def test_the_version_is_told(monkeypatch, capsys):
    import rlzoo_plus

    monkeypatch.setattr(sys, "argv", ["rlzoo-plus", "--version"])
    with pytest.raises(SystemExit) as stop:
        dispatch.entry_point()
    assert stop.value.code == 0
    assert rlzoo_plus.__version__ in capsys.readouterr().out


@pytest.mark.parametrize("verb", sorted(dispatch.VERBS))
def test_every_verb_has_a_help_with_an_example(capsys, verb):
    try:
        code = dispatch.run(verb, ["--help"])
    except SystemExit as stop:
        code = stop.code
    text = capsys.readouterr().out
    assert code == 0
    assert verb in text
    assert f"rlzoo-plus {verb}" in text


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_help_of_train_comes_wherever_it_is_asked_for(capsys, option):
    assert dispatch.run("train", ["algo=sac", option]) == 0
    assert "Train an agent" in capsys.readouterr().out


def test_the_help_of_train_lists_every_group_and_choice():
    words = train_help(ALL).split()
    for group in GROUPS:
        assert group in words
        if group != "tuned":
            assert set(group_options(group, [conf_dir()])) <= set(words)


def test_the_help_of_train_lists_every_key_with_its_default_and_meaning():
    text = train_help(ALL)
    config = yaml.safe_load((conf_dir() / "config.yaml").read_text())
    keys = {}
    for key, value in config.items():
        if key in ("defaults", "hydra"):
            continue
        nested = isinstance(value, dict) and value
        keys |= {f"{key}.{k}": v for k, v in value.items()} if nested else {key: value}
    assert {key.split(".")[0] for key in keys} >= set(RunConfig.model_fields) - set(GROUPS)
    for key, value in keys.items():
        if isinstance(value, dict) and value:
            continue
        line = next((x for x in text.splitlines() if x.strip().startswith(f"{key}=")), None)
        assert line is not None, f"{key} is not in the help"
        if not key.startswith(("network.lstm", "tracker", "hpo")):
            assert len(line.split()) > 1


def test_the_help_of_train_is_one_screen_and_names_real_keys():
    text = train_help(["--help"])
    assert 24 <= len(text.splitlines()) <= 30
    assert max(map(len, text.splitlines())) <= 100
    whole = train_help(ALL)
    for key in ("n_timesteps", "eval.every_steps", "network.net_arch", "report.video"):
        assert key in text
        assert f"{key}=" in whole


@pytest.mark.parametrize(
    ("key", "parts"),
    [
        ("n_envs", ["environments stepped in parallel", "whole number from 1 to", "default  1"]),
        ("eval.every_steps", ["default  auto", "whole number"]),
        ("resume", ["auto | never"]),
        ("gamma", ["algo.hyperparams.gamma: discount", "ppo", "0.99"]),
        ("algo.hyperparams.tau", ["sac", "0.005"]),
        ("algo", ["ppo", "sac", "tqc"]),
        ("checkpoint", ["checkpoint.keep_best"]),
        ("env.frame_stack", ["stacked observations", "whole number from 1", "default  1"]),
        ("env.kwargs.force_n", ["env.kwargs: passed to gymnasium.make"]),
        ("network.lstm", ["network.lstm.hidden_size", "network.lstm.shared"]),
        ("normalize.clip_reward", ["number above 0"]),
        ("algo.hyperparams", ["algo.hyperparams.gamma"]),
        ("algo.action_noise", ["{type: normal, std: 0.1}"]),
        ("hpo.n_trials", ["total number of trials", "default  50"]),
    ],
)
def test_the_help_of_one_key_tells_meaning_type_and_default(capsys, key, parts):
    assert dispatch.run("train", ["--help", key]) == 0
    text = capsys.readouterr().out
    for part in parts:
        assert part in text, text


@pytest.mark.parametrize(
    ("key", "meant"),
    [("n_env", "n_envs"), ("lr", "algo.hyperparams.learning_rate"), ("eval_freq", "eval.every")],
)
def test_the_help_of_an_unknown_key_has_a_suggestion(capsys, key, meant):
    assert dispatch.run("train", ["--help", key]) == 2
    assert f"Did you mean '{meant}" in capsys.readouterr().err


def test_each_verb_is_in_one_group():
    grouped = [verb for verbs in GROUPS_OF_VERBS.values() for verb in verbs]
    assert sorted(grouped) == sorted(dispatch.VERBS)


def test_the_help_of_train_shows_files_of_the_users_own(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "my_robot.yaml").touch()
    assert "my_robot" in train_help(["--config-dir", str(tmp_path), *ALL])


def test_the_help_of_train_imports_neither_hydra_nor_torch(tmp_path):
    code = (
        "import sys; from rlzoo_plus.commands import dispatch\n"
        "dispatch.run('train', ['--help', 'all'])\n"
        "print([m for m in ('hydra', 'torch', 'stable_baselines3', 'gymnasium', 'pybullet')"
        " if m in sys.modules])"
    )
    assert start("-c", code, cwd=tmp_path).splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", [[*MODULE, "train"], SCRIPT], ids=["verb", "train.py"])
def test_the_whole_configuration_is_printed_as_yaml(tmp_path, command):
    text = start(*command, "algo=sac", "seed=3", "--cfg", "job", cwd=tmp_path)
    config = yaml.safe_load(text)
    assert set(config) == set(RunConfig.model_fields)
    assert (config["algo"]["name"], config["seed"]) == ("sac", 3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [MODULE, SCRIPT], ids=["verb", "train.py"])
def test_the_shell_gets_a_completion_function(tmp_path, command):
    text = start(*command, "-sc", "install=bash", cwd=tmp_path)
    assert "complete" in text
    assert "query=bash" in text


@pytest.mark.parametrize("line", ["train.py algo=p", "python train.py algo=p"])
def test_the_shell_completes_what_follows_the_script(tmp_path, line):
    found = start(*SCRIPT, "-sc", "query=bash", cwd=tmp_path, COMP_LINE=line).split()
    assert "algo=ppo" in found
    assert "algo=sac" not in found


@pytest.fixture
def complete(in_process, monkeypatch, capsys):
    """Return a function: a line to what the shell offers behind it."""

    def complete_it(line):
        monkeypatch.setenv("COMP_LINE", line)
        monkeypatch.setattr(sys, "argv", ["rlzoo-plus", "-sc", "query=bash"])
        with pytest.raises(SystemExit) as stop:
            dispatch.entry_point()
        assert not stop.value.code
        return capsys.readouterr().out.split()

    return complete_it


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("train algo=p", "algo=ppo"),
        ("train algo=ppo env=cartpole_b", "env=cartpole_bullet"),
        ("train checkpoint.ev", "checkpoint.every_steps="),
        ("train algo.hyperparams.gae", "algo.hyperparams.gae_lambda="),
    ],
)
def test_the_shell_completes_groups_choices_and_keys(complete, line, expected):
    found = complete(f"rlzoo-plus {line}")
    assert expected in found
    assert "algo=sac" not in found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ev", ["evaluate"]),
        # No keys of train.
        ("evaluate algo=p", []),
        ("evaluate --ep", ["--episodes"]),
        ("sweep re", ["resume", "retry-failed"]),
        ("resume outputs/car", ["outputs/cartpole/"]),
        ("doctor --no", ["--no-probe"]),
        ("inspect algo=pp", ["algo=ppo"]),
        ("verify-resume env=cartpole_b", ["env=cartpole_bullet"]),
    ],
)
def test_the_shell_completes_what_follows_each_verb(in_process, complete, line, expected):
    (in_process / "outputs" / "cartpole").mkdir(parents=True)
    assert complete(f"rlzoo-plus {line}") == expected


def test_the_shell_completes_files_of_the_users_own(in_process, complete):
    (in_process / "mine" / "env").mkdir(parents=True)
    (in_process / "mine" / "env" / "my_robot.yaml").touch()
    assert complete("rlzoo-plus train --config-dir mine env=my_") == ["env=my_robot"]


@pytest.mark.parametrize(
    ("word", "expected"), [("algo=p", "algo=ppo"), ("--config", "--config-dir")]
)
def test_the_shell_completes_a_word_without_imports(tmp_path, word, expected):
    code = (
        "import sys; from rlzoo_plus.commands import dispatch\n"
        "dispatch.complete(['-sc', 'query=bash'])\n"
        "print([m for m in ('hydra', 'omegaconf', 'numpy', 'torch') if m in sys.modules])"
    )
    line = f"rlzoo-plus train {word}"
    assert start("-c", code, cwd=tmp_path, COMP_LINE=line).splitlines() == [expected, "[]"]


@pytest.mark.parametrize("verb", sorted(dispatch.VERBS))
def test_every_verb_offers_what_its_help_has(verb):
    script = runpy.run_path(str(ROOT / "scripts" / "renew_completion.py"))
    offered = f"{verb}: {' '.join(options()[verb])}\n"
    assert offered == script["line_of"](verb), "run python scripts/renew_completion.py"
    assert "--help" in offered


def test_the_script_is_known_to_hydras_completion_function():
    # Its bash function completes `python train.py` only where it finds this text in the file.
    assert "@hydra.main" in (ROOT / "train.py").read_text()
