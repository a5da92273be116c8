"""What a user who makes a mistake sees: exit code 2 and one message with the mend."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import dispatch, train
from rlzoo_plus.runs import train_job as job
from rlzoo_plus.sweeps import multirun

ROOT = Path(__file__).resolve().parents[2]
LONGEST_SCREEN = 24


class TrainedError(Exception):
    """Training would have begun."""


@pytest.fixture
def start(answer, monkeypatch):
    """Return a function: arguments of `train` to exit code and message; nothing is trained."""

    def refuse(plan, *_, **__):
        raise TrainedError(plan.config)

    def refuse_jobs(jobs, *_, **__):
        raise TrainedError(jobs[0].config)

    # What takes these functions into a name of its own must not find the replaced ones.
    for module in ("rlzoo_plus.runs.run", "rlzoo_plus.tuning.retraining"):
        importlib.import_module(module)
    monkeypatch.setattr(job, "run_plan", refuse)
    monkeypatch.setattr(multirun, "run_jobs", refuse_jobs)
    monkeypatch.setattr(multirun, "PRELOAD", ())
    return lambda *arguments, verb="train": answer(verb, *arguments)


def assert_one_screen(code, text):
    assert code == 2, text
    assert "Traceback" not in text
    assert 0 < len(text.splitlines()) <= LONGEST_SCREEN
    assert len(text) < 3000


MISTAKES = {
    "key": ("seeed=1", ["seeed", "'seed'"]),
    "added key": ("+foo=1", ["'foo'", "train --help"]),
    "algorithm": ("algo=pppo", ["algo=pppo", "'ppo'"]),
    "environment": ("env=cartpole_bulet", ["env=cartpole_bulet", "'cartpole_bullet'"]),
    "environment id": ("env.id=Pendulm-v1", ["env.id=Pendulm-v1", "'Pendulum-v1'"]),
    "malformed id": ("env.id=pendulum", ["env.id=pendulum", "'Pendulum-v1'"]),
    "experiment": ("experiment=cartpole_quik", ["cartpole_quik", "'cartpole_quick'"]),
    "tuned": ("tuned=ppo/halfcheetah_bulle", ["halfcheetah_bulle", "'ppo/halfcheetah_bullet'"]),
    "null group": ("tuned=null", ["null", "tuned=none"]),
    "action space": ("algo=dqn", ["dqn cannot act in Box", "env.kwargs.discrete=true"]),
    "own wrapper": ("env.wrappers=[nowhere.Wrapper]", ["nowhere.Wrapper", "no module nowhere"]),
    "wrapper, not a list": ("env.wrappers=time_feature", ["env.wrappers=time_feature", "list"]),
    "package": ("env.packages=[no_such_package]", ["no_such_package", "Install it"]),
    "argument of the environment": ("env.kwargs.discret=true", ["discret", "refuses"]),
    "argument, nested": ("env.kwargs.reward={alve:1}", ["'alve'", "'alive'"]),
    "kind of vector": ("vec_env=dumy", ["vec_env", "'dumy'", "'dummy'"]),
    "directory that cannot be": ("run_dir=/proc/nowhere", ["run_dir=/proc/nowhere"]),
    "missing equals sign": ("algo ppo", ["algo", "key=value"]),
    "list without brackets": ("network.net_arch=64,64", ["64,64", "network.net_arch=[64,64]"]),
    "unknown option": ("--confg-dir=x", ["--confg-dir"]),
    "missing directory": ("--config-dir=/nowhere", ["/nowhere", "not found"]),
    "sweep into one directory": ("-m seed=1,2 run_dir=x", ["run_dir", "Leave it out"]),
    "sweep over nothing": ("-m seed=range(0,0) sweep=x", ["has no jobs", "range(0,0)"]),
    "keys of a study without one": ("hpo.n_trials=3", ["hpo.n_trials", "train -m hpo=ppo"]),
    "values without a sweep": ("seed=0,1", ["several values are for a sweep. Add -m"]),
    "sweep with a wrong choice": ("-m algo=ppo,pppo", ["algo=pppo", "'ppo'"]),
    "package of algorithms": ("algo.packages=[no_such_package]", ["no_such_package"]),
    "layers inside a list": ("network=small network.net_arch.actor=[8]", ["net_arch"]),
    "no id": ("env=gym", ["env.id", "env.id="]),
    "empty directory": ("run_dir=", ["run_dir"]),
    "option of another option": ("--resolve", ["--resolve", "--cfg"]),
    "argument of a tracker": ("tracker.offline=true", ["tracker.offline", "tracker=wandb"]),
    "launcher": ("infra.name=slrum", ["infra.name", "'slrum'", "'slurm'"]),
    "wrapper that is none": ("env.wrappers=[5]", ["env.wrappers=[5]", "{name: {argument"]),
    "wrapper's arguments": ("env.wrappers=[{time_feature:5}]", ["time_feature", "{name: {arg"]),
    "wrapper of another kind": ("env.wrappers=[os.getcwd]", ["os.getcwd is not a Wrapper"]),
    "wrapper's range": (
        "env.id=CartPole-v1 env.wrappers=[{sticky_action:{repeat_action_probability:7}}]",
        ["sticky_action", "[0,1)"],
    ),
    "relative wrapper": ("env.wrappers=[.x]", ["env.wrappers: .x", "my_module.MyClass"]),
    "callback that is none": ("callbacks=[5]", ["callbacks=[5]", "dotted paths"]),
    "empty package": ('env.packages=[""]', ["env.packages", "name of a module"]),
    "package as a file": ("env.packages=['mine.py']", ["no module mine"]),
    "relative package": ("algo.packages=[.x]", ["algo.packages", "'.x'", "my_package.my_module"]),
    "module in the id": ("env.id=no_such_module:X-v0", ["env.id", "no module no_such_module"]),
    "window while training": ("env.kwargs.render_mode=human", ["render_mode", "not set here"]),
    "limit as an argument": ("env.kwargs.max_episode_steps=5", ["env.time_limit=..."]),
    "name that climbs": ("env.name=../../x", ["env.name=../../x", "letters"]),
    "name from the root": ("env.name=/tmp/x", ["env.name=/tmp/x", "letters"]),
    "file for a directory": ("run_dir=/dev/null", ["run_dir=/dev/null", "it is a file"]),
    "directory below a file": ("run_dir=/dev/null/x", ["run_dir=/dev/null/x", "Not a directory"]),
    "long name": (f"run_dir={'a' * 256}", ["256 bytes", "255"]),
    "long path": (f"run_dir={'/'.join(['a' * 200] * 20)}", ["3896"]),
    "home the shell left alone": ("run_dir=~/x", ["run_dir=~/x", "$HOME"]),
    "open bracket": ("seed=[1", ["seed=[1", "close every bracket"]),
    "army of processes": ("vec_env=subproc n_envs=5000", ["n_envs=5000", "1024"]),
    "quantiles": (
        "algo=tqc algo.hyperparams.top_quantiles_to_drop_per_net=25",
        ["top_quantiles_to_drop_per_net=25", "n_quantiles"],
    ),
    "directions": (
        "algo=ars algo.hyperparams.n_delta=2 algo.hyperparams.n_top=3",
        ["n_top=3", "n_delta=2"],
    ),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_mistake_gets_one_screen_that_names_the_value_and_a_mend(start, mistake):
    line, parts = MISTAKES[mistake]
    code, text = start(*line.split())
    assert_one_screen(code, text)
    for part in parts:
        assert any(form in text for form in part.split("|")), f"{part!r} is not in: {text}"


def test_the_case_of_nothing_wrong_reaches_training(start):
    with pytest.raises(TrainedError):
        start("algo=ppo", "env=cartpole_bullet")


@pytest.mark.parametrize(
    "line",
    [
        "env=halfcheetah_bullet network=small",
        "env=halfcheetah_bullet network.net_arch=[8]",
        "algo=sac env=halfcheetah_bullet network=separate",
        "algo=ppo --config-dir {} seed=3",
        "n_timesteps=1e6",
        "normalize.observation=true",
        "env.id='Pendulum-v1' algo=td3",
    ],
)
def test_what_is_no_mistake_reaches_training(start, tmp_path, line):
    if "halfcheetah" in line:
        pytest.importorskip("pybullet_envs_gymnasium")
    with pytest.raises(TrainedError):
        start(*line.format(tmp_path).split())


def test_options_may_stand_between_overrides(start):
    with pytest.raises(TrainedError):
        start("algo=ppo", "-m", "seed=1,2")


def test_a_mistake_leaves_no_directory_behind(start, tmp_path):
    for line in ("seeed=1", "algo=dqn", "eval.every_steps=10 run_dir=mine"):
        start(*line.split())
    assert list(tmp_path.iterdir()) == []


def test_an_existing_run_is_not_written_over(start, tmp_path):
    run = RunDir(tmp_path / "mine")
    run.start({}, "", {})
    run.write_status("finished")
    code, text = start("run_dir=mine", "resume=never")
    assert_one_screen(code, text)
    assert "run_dir=mine already holds a run (state: finished)" in text


def test_a_tuned_file_that_is_not_there_is_said_with_what_is_used_instead(start, capsys):
    with pytest.raises(TrainedError):
        start("algo=crossq", "env=reacher_bullet")
    text = capsys.readouterr().out
    assert "no tuned values for crossq/reacher_bullet" in text
    assert "conf/algo/crossq.yaml" in text


@pytest.mark.parametrize("option", ["--config-dir={}", "hydra.searchpath=[file://{}]"])
def test_a_tuned_file_of_the_users_own_is_found(start, capsys, tmp_path, option):
    for group in ("env", "tuned/ppo"):
        (tmp_path / "mine" / group).mkdir(parents=True)
    shipped = ROOT / "conf" / "env" / "cartpole.yaml"
    (tmp_path / "mine" / "env" / "my_pole.yaml").write_text(shipped.read_text())
    values = "# @package _global_\nseed: 17\n"
    (tmp_path / "mine" / "tuned" / "ppo" / "my_pole.yaml").write_text(values)
    with pytest.raises(TrainedError) as reached:
        start("env=my_pole", option.format(tmp_path / "mine"))
    assert reached.value.args[0].seed == 17
    assert "no tuned values" not in capsys.readouterr().out


def test_an_algorithm_of_the_users_own_is_registered_by_its_package(start, tmp_path, monkeypatch):
    from rlzoo_plus.config import catalog

    monkeypatch.setitem(catalog.ALGORITHMS, "mine", None)  # taken out again after the test
    del catalog.ALGORITHMS["mine"]
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_algorithms.py").write_text(
        "from rlzoo_plus import AlgorithmSpec, register_algorithm\n"
        "from rlzoo_plus.config.catalog import Family\n"
        "register_algorithm(AlgorithmSpec('mine', 'stable_baselines3.a2c.a2c:A2C',"
        " Family.ON_POLICY, ('Box',)))\n"
    )
    with pytest.raises(TrainedError) as reached:
        start("algo=a2c", "algo.name=mine", "algo.packages=[my_algorithms]")
    assert reached.value.args[0].algo.name == "mine"


def test_two_mistakes_of_a_sweep_are_both_told_once(start):
    code, text = start("-m", "seed=1,2", "algo=dqn,her")
    assert_one_screen(code, text)
    assert text.count("dqn cannot act in Box") == 1
    assert text.count("needs a goal environment") == 1


def test_an_unknown_verb_gets_a_suggestion(start):
    code, text = start(verb="trian")
    assert_one_screen(code, text)
    assert "'train'" in text


# Names of other programs

HABITS = {
    "learning_rate=1e-3": "algo.hyperparams.learning_rate",
    "lr=1e-3": "algo.hyperparams.learning_rate",
    "algo.hyperparams.lr=1e-3": "algo.hyperparams.learning_rate",
    "algo.lr=1e-3": "algo.hyperparams.learning_rate",
    "learnin_rate=1e-3": "algo.hyperparams.learning_rate",
    "gamma=0.9": "algo.hyperparams.gamma",
    "hyperparams.gamma=0.9": "algo.hyperparams.gamma",
    "algo.hyperparams.gma=0.9": "algo.hyperparams.gamma",
    "clip_coef=0.2": "algo.hyperparams.clip_range",
    "num_steps=128": "algo.hyperparams.n_steps",
    "n_steps=128": "algo.hyperparams.n_steps",
    "update_epochs=4": "algo.hyperparams.n_epochs",
    "num_minibatches=4": "algo.hyperparams.batch_size",
    "algo=sac buffer_size=1000": "algo.hyperparams.buffer_size",
    "algo=sac optimize_memory_usage=true": "algo.hyperparams.optimize_memory_usage",
    "total_timesteps=1000": "n_timesteps",
    "timesteps=1000": "n_timesteps",
    "max_epochs=10": "n_timesteps",
    "trainer.max_epochs=10": "n_timesteps",
    "n_timestep=1000": "n_timesteps",
    "num_envs=4": "n_envs",
    "frame_stack=4": "env.frame_stack",
    "env.wrappers=[framestack]": "env.frame_stack",
    "env.wrappers=[VecFrameStack]": "env.frame_stack",
    "env_id=CartPole-v1": "env.id",
    "env_kwargs.discrete=true": "env.kwargs.discrete",
    "env.kwargs.latencyy=2": "env.kwargs.latency",
    "eval.freq=100": "eval.every_steps",
    "eval.freqq=100": "eval.every_steps",
    "eval_freq=100": "eval.every_steps",
    "n_eval_episodes=5": "eval.episodes",
    "evall.episodes=5": "eval.episodes",
    "save_freq=100": "checkpoint.every_steps",
    "checkpoint.freq=100": "checkpoint.every_steps",
    "chekpoint.keep=1": "checkpoint.keep",
    "n_trials=10": "hpo.n_trials",
    "study_name=mine": "hpo.study",
    "n_jobs=2": "infra.workers",
    "policy_kwargs.net_arch=[64]": "network.net_arch",
    "activation_fn=relu": "network.activation",
    "verbose=1": "log.level",
    "tensorboard_log=here": "log.tensorboard",
    "track=true": "tracker=wandb",
    "wandb_project_name=mine": "tracker.project",
    "capture_video=true": "report.video",
    "patience=3": "stop.no_improvement_evals",
    "normalize_obs=true": "normalize.observation",
    "cuda=true": "device",
    "seeed=1": "seed",
}


@pytest.mark.parametrize("line", list(HABITS))
def test_the_first_suggestion_for_a_name_of_another_program_is_our_key(start, line):
    code, text = start(*line.split())
    assert_one_screen(code, text)
    assert re.findall("Did you mean '([^']+)'", text)[:1] == [HABITS[line]]


@pytest.mark.parametrize(
    ("verb", "line", "overrides"),
    [
        (["train", "-m"], "--env-id CartPole-v1", "env.id=CartPole-v1"),
        (
            ["train"],
            "--algo ppo --total-timesteps 500 --cfg job",
            "algo=ppo n_timesteps=500.",
        ),
    ],
)
def test_options_that_are_not_translated_are_answered_with_overrides(start, verb, line, overrides):
    code, text = start(*verb[1:], *line.split(), verb=verb[0])
    assert_one_screen(code, text)
    assert f"Write {overrides}" in text


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("n_timesteps=1M", "n_timesteps=1M: must be a whole number. Write 1e6."),
        ("n_envs=2k", "Write 2e3."),
        ("network=[64,64]", "Write network.net_arch=[64,64]."),
        ("algo.name=sac", "Write algo=sac."),
        ("algo=sac algo.hyperparams.optimize_memory_usage=true", "handle_timeout_termination"),
        ("algo=her algo.hyperparams.optimize_memory_usage=true", "HER cannot do that"),
    ],
)
def test_a_value_of_another_program_is_answered_with_ours(start, line, part):
    code, text = start(*line.split())
    assert_one_screen(code, text)
    assert part in text


def test_a_typing_error_in_latest_gets_a_suggestion(start):
    code, text = start("lastest", verb="evaluate")
    assert_one_screen(code, text)
    assert "Did you mean 'latest'?" in text


# Configuration files of one's own

OWN_FILES = {
    "tab": (b"id: Pendulum-v1\n\tkwargs: {}\n", "line 2: found character"),
    "duplicate": (b"id: Pendulum-v1\nid: Acrobot-v1\n", "line 2: found duplicate key"),
    "alias": (b"id: Pendulum-v1\nkwargs: *b\n", "line 2: found undefined alias"),
    "circle": (b"id: Pendulum-v1\nkwargs: &a {g: *a}\n", "an alias contains itself"),
    "nul": (b'id: Pendulum-v1\nname: "x\0y"\n', r"line 2: character '\x00' is not allowed"),
    "tag": (b"id: Pendulum-v1\nkwargs: !foo {a: 1}\n", "line 2: could not determine a constructor"),
    "reference": (b"id: Pendulum-v1\nname: ${env.id\n", "line 2: env.name|name=${env.id is not"),
    "latin": (b"id: Pendulum-v1\nname: \xe9\n", "line 2: byte 0xe9 is not UTF-8. Save it as UTF-8"),
    "utf16": ("id: Pendulum-v1".encode("utf-16"), "line 1: byte 0xff is not UTF-8"),
    "bom": (b"\xef\xbb\xbfid: Pendulum-v1\n", "line 1: it begins with a byte order mark"),
    "list": (b"- id\n", "line 1: the file holds a list. Write keys with values"),
    "text": (b"hello\n", "line 1: the file holds a single value"),
    "bracket": (b"id: Pendulum-v1\nkwargs: {a: 1\n", "line 2: expected"),
    "quote": (b'id: "Pendulum-v1\nkwargs: {}\n', "line 1: found unexpected end of stream"),
    "indent": (b"id: Pendulum-v1\n kwargs: {}\n", "line 2: mapping values are not allowed here"),
}


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        *((name, ["train"]) for name in OWN_FILES),
        *(("tab", verb) for verb in (["train", "-m"], ["doctor", "--no-probe"])),
    ],
)
def test_a_file_that_is_no_yaml_gets_one_line_with_file_line_and_fix(start, tmp_path, verb, name):
    content, part = OWN_FILES[name]
    file = tmp_path / "mine" / "env" / "broken.yaml"
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
    words = [*verb[1:], "--config-dir", str(tmp_path / "mine"), "env=broken"]
    code, text = start(*words, verb=verb[0])
    assert_one_screen(code, text)
    (line,) = [line for line in text.splitlines() if line.startswith("error: ")]
    assert str(file) in line
    assert any(form in line for form in part.split("|")), line


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "env=mine: env/mine.yaml sets no id"),
        ("id: Pendulum-v1\nname: ${env.idd}\n", "env.name refers to ${env.idd}"),
        ("id: Pendulum-v1\nname: ${foo:1}\n", "env.name refers to ${foo:...}"),
        ("defaults: [pendulumm]\nid: X-v0\n", "env/mine.yaml: its defaults name env/pendulumm"),
        ("id: Pendulum-v1\nwrappers: {a: 1}\n", "env/mine.yaml: a mapping stands where"),
    ],
)
def test_a_file_that_means_nothing_gets_one_line(start, tmp_path, content, part):
    (tmp_path / "own" / "env").mkdir(parents=True)
    (tmp_path / "own" / "env" / "mine.yaml").write_text(content)
    code, text = start("--config-dir", str(tmp_path / "own"), "env=mine")
    assert code == 2
    assert len(text.splitlines()) == 1
    assert part in text


@pytest.mark.parametrize("name", ["gym", "pettingzoo"])
def test_a_file_that_leaves_the_id_to_the_user_gives_an_example_of_its_kind(start, name):
    example = {"gym": "Pendulum-v1", "pettingzoo": "mpe2.simple_spread_v3"}[name]
    code, text = start(f"env={name}")
    assert code == 2
    assert f"env={name} needs an id. Add one, e.g. env.id={example}." in text


# Commands on a run


@pytest.mark.parametrize("verb", ["evaluate", "enjoy", "record"])
@pytest.mark.parametrize("option", [["--episods", "3"], ["--seed", "x"], []])
def test_a_wrong_option_of_a_command_gets_exit_code_2(start, verb, option):
    arguments = ["somewhere", *option] if option else []
    assert_one_screen(*start(*arguments, verb=verb))


@pytest.mark.parametrize(("option", "value"), [("--episodes", "0"), ("--n-envs", "-1")])
def test_a_number_of_a_command_is_above_zero(start, option, value):
    code, text = start("somewhere", option, value, verb="evaluate")
    assert_one_screen(code, text)
    assert value in text


def test_a_window_without_a_display_is_refused(start, monkeypatch):
    if not sys.platform.startswith("linux"):
        pytest.skip("other systems always have a display")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    code, text = start("somewhere", verb="enjoy")
    assert_one_screen(code, text)
    assert "rlzoo-plus record somewhere" in text


@pytest.mark.training
@pytest.mark.parametrize("verb", ["evaluate", "record"])
def test_a_run_that_is_not_there_gets_one_line(start, verb):
    code, text = start("nowhere", verb=verb)
    assert_one_screen(code, text)
    assert "nowhere: no such directory" in text
    assert len(text.splitlines()) == 1


@pytest.mark.training
@pytest.mark.parametrize("which", ["best", "final", "7", "newest"])
def test_a_policy_that_was_never_saved_gets_one_line(start, tmp_path, resolve_config, which):
    RunDir(tmp_path / "run").start(resolve_config().config.model_dump(mode="json"), "", {})
    code, text = start("run", "--which", which, verb="evaluate")
    assert_one_screen(code, text)
    assert which in text
    assert "It has saved nothing yet" in text


@pytest.mark.training
def test_a_run_that_needs_foreign_code_asks_for_trust(start, tmp_path, resolve_config):
    resolved = resolve_config("env.wrappers=[their_package.Wrapper]").config
    RunDir(tmp_path / "run").start(resolved.model_dump(mode="json"), "", {})
    code, text = start("run", verb="evaluate")
    assert_one_screen(code, text)
    assert "their_package.Wrapper" in text
    assert "--trust" in text


# As a process of its own

_PROBE = """
import sys
from rlzoo_plus.commands import dispatch
for line in sys.argv[1:]:
    code = dispatch.run("train", line.split())
    print(code, "torch" in sys.modules, "stable_baselines3" in sys.modules)
"""


def test_mistakes_are_answered_without_importing_torch(tmp_path):
    lines = ["seeed=1", "algo=pppo", "algo.hyperparams.gama=0.9", "env.id=Pendulm-v1", "algo=dqn"]
    command = [sys.executable, "-c", _PROBE, *lines]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["2 False False"] * len(lines)
    assert done.stderr.count("error: ") == len(lines)


@pytest.mark.parametrize(
    "command",
    [[str(ROOT / "train.py"), "seeed=1"], ["-m", "rlzoo_plus", "train", "seeed=1"]],
    ids=["train.py", "python -m"],
)
def test_the_process_ends_with_2_and_only_the_message(tmp_path, command):
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "Did you mean 'seed'?" in done.stderr


@pytest.mark.training
@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("device=cuda:99", "device=cuda:99"),
        ("network.net_arch=[1000000000000]", "net_arch=[1000000000000]: the agent needs more"),
        ("algo=sac algo.hyperparams.buffer_size=1e13", "buffer_size=10000000000000"),
        (
            "algo=recurrent_ppo network.lstm.hidden_size=1e9 algo.hyperparams.batch_size=8",
            "network.lstm.hidden_size=1000000000",
        ),
        ("network.policy=cnn", "network.policy=cnn reads images"),
        ("network.lstm.shared=true algo=recurrent_ppo", "shared LSTM"),
    ],
)
def test_a_mistake_that_needs_torch_is_answered_too(in_process, capsys, line, part):
    code = dispatch.run("train", [*line.split(), "report.video=false", "report.plot=false"])
    captured = capsys.readouterr()
    assert_one_screen(code, captured.out + captured.err)
    assert part in captured.err


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("hydra.run.dir=mine", "run_dir=DIRECTORY"),
        ("hydra.sweep.dir=mine", "sweep=NAME"),
        ("hydra.sweep.subdir=${hydra.job.num}", "sweep=NAME"),
        ("hydra.job.chdir=true", "run_dir=DIRECTORY"),
    ],
)
@pytest.mark.parametrize("multirun", [[], ["-m"]])
def test_hydras_own_places_are_refused_with_the_key_that_counts(
    answer, tmp_path, monkeypatch, word, instead, multirun
):
    monkeypatch.chdir(tmp_path)
    code, text = answer("train", *multirun, word)
    assert code == 2
    assert f"{word.split('=')[0]}=" in text
    assert instead in text
    assert list(tmp_path.iterdir()) == []


def test_hydras_own_places_are_refused_in_a_file_too(answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "own" / "experiment" / "mine.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# @package _global_\nhydra: {sweep: {dir: elsewhere}}\n")
    code, text = answer("train", "--config-dir", "own", "experiment=mine")
    assert code == 2
    assert "sweep=NAME" in text


@pytest.mark.parametrize("multirun", [[], ["-m"]])
@pytest.mark.parametrize("word", ["tracker.name=wandbb", "tracker.kwargs.proyect=x"])
def test_a_mistake_in_the_tracker_is_answered_before_anything_is_made(
    answer, tmp_path, monkeypatch, multirun, word
):
    pytest.importorskip("wandb", reason="needs the extra wandb")
    monkeypatch.chdir(tmp_path)
    code, text = answer("train", *multirun, "env=cartpole_bullet", "tracker=wandb", word)
    assert code == 2
    assert word.partition("=")[2] in text or "proyect" in text
    # Of a sweep, Hydra has written the command.
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} <= {"multirun.yaml"}


def test_a_directory_without_permission_is_told_before_training(start, monkeypatch):
    monkeypatch.setattr(job.os, "access", lambda *_: False)
    code, text = start("run_dir=mine")
    assert_one_screen(code, text)
    assert "run_dir=mine cannot be written to" in text


def test_a_path_that_fails_only_when_it_is_used_is_told_in_one_line(answer, monkeypatch):
    def fail(*_):
        raise PermissionError(13, "Permission denied", "/there/config.yaml")

    monkeypatch.setattr(train, "plan_run", fail)
    code, text = answer("train")
    assert code == 2
    assert "error: /there/config.yaml: Permission denied. Choose another path" in text
    assert "Traceback" not in text


def test_an_error_that_is_no_path_of_the_user_s_keeps_its_traceback(answer, monkeypatch):
    def fail(*_):
        raise FileNotFoundError(2, "No such file or directory", "/ours")

    monkeypatch.setattr(train, "plan_run", fail)
    with pytest.raises(FileNotFoundError):
        answer("train")


@pytest.mark.parametrize(
    "line",
    [
        *("evaluate {file}", "evaluate {folder}", "evaluate {long}", "evaluate {none}"),
        *("evaluate {folder} --episodes 999999999999", "record {folder} --seconds nan"),
        *("record {folder} --seconds -1", "enjoy {none}", "plot {file}", "plot {long}"),
        *("runs {none}", "resume {folder}", "resume {long}", "export {folder} --to foo"),
        *("import-sb3 {file}", "import-sb3 {long}", "checkpoint {folder}", "checkpoint {long}"),
        *("sweep", "sweep foo", "sweep status {folder}", "sweep status {long}"),
        *("study", "study show {folder}", "study show {long}", "study best {file}"),
        *("doctor algo=pppo", "inspect nothing_there", "new-robot {file}", "new-robot {long}"),
        *("verify-resume algo=pppo", "import-zoo {folder}", "import-zoo {none}", "foo"),
    ],
)
def test_a_mistake_in_an_argument_of_any_verb_ends_in_two(answer, tmp_path, line):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file.txt").write_text("x: [")
    places = {
        "file": str(tmp_path / "file.txt"),
        "folder": str(tmp_path / "folder"),
        "none": str(tmp_path / "nowhere"),
        "long": str(tmp_path / ("a" * 300)),
    }
    verb, *arguments = line.format(**places).split()
    code, text = answer(verb, *arguments)
    assert code == 2, text
    assert "Traceback" not in text
    assert text.strip()
