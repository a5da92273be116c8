"""A run held in Python: composed, trained, opened by many names, evaluated, read."""

import json
import logging
import shutil
import signal
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import yaml
from support.processes import wait_for
from support.training import assert_same_tree, bundle_weights

import rlzoo_plus as rz
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.overrides import as_arguments

SMALL = (
    *("env=cartpole_bullet", "tuned=none", "algo=ppo", "n_envs=1", "algo.hyperparams.n_steps=64"),
    *("n_timesteps=256", "eval.every_steps=128", "eval.episodes=2", "log.interval=1"),
    *("checkpoint.every_minutes=null", "checkpoint.every_steps=64", "report.video=false"),
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the path of a small run, to look at only."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    return rz.train(*SMALL, run_dir=str(folder), quiet=True).path


def leave_run(folder, started_at, *, algo="ppo"):
    """Write what a finished run consists of, but for its policy."""
    run = RunDir(folder)
    run.path.mkdir(parents=True)
    config = rz.compose(["tuned=none", f"algo={algo}"])
    run.start(config.model_dump(mode="json"), "a test", {})
    run.write_status("finished", started_at=started_at)
    return run


# What is imported, and what there is


def test_importing_the_package_is_light_and_lists_all_it_offers():
    code = (
        "import sys, rlzoo_plus as rz; names = dir(rz)\n"
        "assert {'compose', 'train', 'Run', 'Policy', 'runs', 'load_policy', 'seed_all'} <= "
        "set(names), names\n"
        "assert not {'torch', 'hydra', 'pydantic', 'gymnasium'} & set(sys.modules)\n"
        "assert all(hasattr(rz, name) for name in rz.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = rz.trian


# Composing


def test_a_composed_configuration_is_that_of_the_command(resolve_config):
    words = ["algo=sac", "env=cartpole_bullet", "seed=3", "algo.hyperparams.gamma=0.9"]
    expected = resolve_config(*words).config
    assert rz.compose(words) == expected
    by_keywords = rz.compose(
        algo="sac", env="cartpole_bullet", seed=3, **{"algo.hyperparams.gamma": 0.9}
    )
    assert by_keywords == expected
    assert rz.compose(words[:3], **{"algo.hyperparams": {"gamma": 0.9}}) == expected


def test_a_key_under_two_names_is_refused():
    for names in (("n_timesteps", "total_timesteps"), ("total_timesteps", "n_timesteps")):
        with pytest.raises(rz.ConfigError, match="n_timesteps is given twice"):
            rz.compose(["env=cartpole"], **dict.fromkeys(names, 300))


def test_composing_leaves_argv_and_hydra_as_they_were():
    from hydra.core.global_hydra import GlobalHydra

    before, argv = GlobalHydra.instance().is_initialized(), list(sys.argv)
    rz.compose(["algo=dqn", "env=cartpole"])
    assert (GlobalHydra.instance().is_initialized(), sys.argv) == (before, argv)


def test_composing_works_in_threads():
    configs = {}

    def compose(seed):
        configs[seed] = rz.compose(seed=seed)

    threads = [threading.Thread(target=compose, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {seed: config.seed for seed, config in configs.items()} == {0: 0, 1: 1, 2: 2}


VALUES = [3, -1.5e-7, True, None, "3", "a b", "it's", "back\\slash", "end\\", "q\\'x", "${seed}"]
VALUES += ["true", "", "x/y.z", [1, [2.5, "x, y"]], [{"a": "b c"}], Path("a b"), np.float64(0.1)]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_keyword_argument_reaches_hydra_as_the_value_that_it_is(value):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (word,) = as_arguments((), None, {"key": value})
    read = OverridesParser.create().parse_overrides([word])[0].value()
    assert getattr(read, "text", read) == (str(value) if isinstance(value, Path) else value)


def test_an_own_folder_of_configuration_comes_first(tmp_path):
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").write_text("id: Pendulum-v1\nname: mine\n")
    config = rz.compose(["env=mine"], config_dir=tmp_path)
    assert (config.env.id, config.env.name) == ("Pendulum-v1", "mine")


@pytest.mark.parametrize(
    ("word", "layers"),
    [
        # The tuned file of this environment names them for actor and critic.
        ("env=halfcheetah_bullet", "[8]"),
        ("network=large", "{actor: [8], critic: [9]}"),
    ],
)
def test_layers_replace_those_that_a_file_names(word, layers):
    config = rz.compose(["algo=ppo", word, f"network.net_arch={layers}"])
    assert config.network.net_arch == yaml.safe_load(layers)


MISTAKES = {
    "unknown algorithm": (["algo=sca"], {}, "Did you mean 'sac'"),
    "unknown key": ([], {"sed": 3}, "Did you mean 'seed'"),
    "an option": (["--cfg"], {}, "an override is a text like"),
    "no text": ([3], {}, "an override is a text like"),
    "one text": ("algo=sac", {}, "give a list of overrides"),
    "an object": ([], {"seed": object()}, "not an object of object"),
    "no folder": ([], {"config_dir": "nowhere"}, "config_dir=nowhere: no such directory"),
    "a study": (["hpo=ppo"], {}, "add -m"),
}


@pytest.mark.parametrize("mistake", list(MISTAKES))
def test_a_mistake_is_a_configuration_error_with_its_text(mistake):
    overrides, values, text = MISTAKES[mistake]
    with pytest.raises(rz.ConfigError) as caught:
        rz.compose(overrides, **values)
    assert text in str(caught.value)


# Opening


def test_a_run_is_found_by_latest_and_by_the_end_of_its_path(here):
    old = leave_run(here / "outputs/pole/ppo/day-1", 10.0)
    new = leave_run(here / "outputs/pole/sac/day-2", 20.0, algo="sac")
    relative = new.path.relative_to(here)
    for name in ("latest", "day-2", "sac/day-2", "2", str(relative), str(new.path)):
        assert rz.Run.open(name).path.resolve() == new.path, name
    assert rz.Run.open("day-1").config.algo.name == "ppo"
    assert [run.path.resolve() for run in rz.runs()] == [new.path, old.path]
    assert "finished: sac on" in repr(rz.Run.open("latest"))


def test_a_run_of_someone_else_is_read_without_trust_and_not_trained(here):
    run = leave_run(here / "run", 1.0)
    data = run.read_config()
    data["callbacks"] = ["their_module.Callback"]
    data["env"]["packages"] = ["their_package"]
    run.start(data, "theirs", {})
    opened = rz.Run.open("run")
    assert (opened.status, len(opened.evaluations())) == ("finished", 0)
    for act in (opened.env, opened.resume, lambda: opened.evaluate(1)):
        with pytest.raises(rz.ConfigError, match=r"their_package.*trust=True"):
            act()
    with pytest.raises(rz.ConfigError, match=r"their_module"):
        opened.resume()


def test_a_new_run_writes_nothing_before_it_is_trained(here):
    run = rz.Run.create(rz.compose(["tuned=none"]))
    assert (run.path, run.status, list(here.iterdir())) == (None, "new", [])
    assert repr(run).startswith("<Run new: ppo on cartpole_bullet, seed 0")
    with pytest.raises(rz.ConfigError, match="has not begun"):
        run.metrics()


# Trained


@pytest.mark.training
def test_a_trained_run_acts_and_is_read(trained):
    run = rz.Run.open(trained)
    assert (run.status, run.result["num_timesteps"]) == ("finished", 256)
    policy = run.policy()
    assert policy.observation_space.shape == (5,)
    assert (policy.step, policy.config.algo.name) == (run.result["best"]["step"], "ppo")
    assert repr(policy).startswith("<Policy ppo on robots/CartPoleBalance-v0, step ")
    venv = run.env(n_envs=2)
    actions, _ = policy.predict(venv.reset())
    assert actions.shape == (2, 1)
    assert run.policy("final").step == 256
    assert rz.load_policy(trained / "final").step == 256
    command = (trained / "command.txt").read_text()
    assert command.startswith("rlzoo_plus.train('env=cartpole_bullet', 'tuned=none', ")


@pytest.mark.training
def test_the_curve_is_a_list_of_rows_without_pandas_and_a_frame_with_it(trained, monkeypatch):
    run = rz.Run.open(trained)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert [row["step"] for row in run.evaluations()] == [128, 256]
    metrics = run.metrics()
    assert metrics[-1]["step"] == 256
    assert np.isfinite(metrics[-1]["train/value_loss"])
    # What is asked of pandas is its frame of rows.
    pandas = type(sys)("pandas")
    pandas.DataFrame = lambda rows: ("frame", rows)
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert run.metrics() == ("frame", metrics)


@pytest.mark.training
def test_evaluating_gives_what_the_command_prints(trained, capsys):
    from rlzoo_plus.commands import dispatch

    options = ["--episodes", "3", "--json", "--which", "final"]
    assert dispatch.run("evaluate", [str(trained), *options]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert rz.Run.open(trained).evaluate(3, which="final") == printed
    with pytest.raises(rz.ConfigError, match="at least 1"):
        rz.Run.open(trained).evaluate(0)


@pytest.mark.training
def test_a_bundle_acts_alone_as_a_folder_and_as_a_zip(trained, here):
    shutil.copytree(trained / "best", here / "handed_on")
    shutil.make_archive("in_a_folder", "zip", trained, "best")
    shutil.make_archive("at_the_root", "zip", trained / "best")
    observation = np.ones(5, np.float32)
    expected, _ = rz.load_policy(trained).predict(observation)
    for name in ("handed_on", "in_a_folder.zip", "at_the_root.zip"):
        run = rz.Run.open(name)
        assert (run.status, run.config.algo.name) == ("bundle", "ppo")
        np.testing.assert_array_equal(run.policy().predict(observation)[0], expected)
        for act in (run.resume, run.metrics, lambda run=run: run.policy("final")):
            with pytest.raises(rz.ConfigError, match="is a bundle"):
                act()


@pytest.mark.training
def test_a_zip_that_holds_no_bundle_is_a_mistake(trained, here):
    best = trained / "best"
    with zipfile.ZipFile("large.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for file in best.iterdir():
            archive.write(file, file.name)
        archive.writestr("policy.json", b" " * (2**22 + 1))
    with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("policy.json", b" " * (2**22 + 1))
        for name in ("MANIFEST.json", "state.json", "tensors.safetensors"):
            archive.write(best / name, name)
    with zipfile.ZipFile("other.zip", "w") as archive:
        archive.writestr("data", b"pickled")
    Path("text.zip").write_bytes(b"no zip")
    whole = Path(shutil.make_archive("whole", "zip", best)).read_bytes()
    Path("cut.zip").write_bytes(whole[: len(whole) // 2])
    changed = bytearray(whole)
    changed[len(whole) // 3] ^= 1
    Path("changed.zip").write_bytes(changed)
    for name in ("large", "bomb", "other", "text", "cut", "changed"):
        with pytest.raises(rz.ConfigError, match=r"zip is damaged"):
            rz.load_policy(f"{name}.zip")


@pytest.mark.training
def test_a_quiet_training_prints_nothing_and_leaves_logging_and_signals_alone(here, capsys):
    root, own = logging.getLogger(), logging.getLogger("rlzoo_plus")
    before = list(root.handlers), list(own.handlers), own.level
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    argv = list(sys.argv)
    run = rz.train(*SMALL, n_timesteps=64, quiet=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (list(root.handlers), list(own.handlers), own.level) == before
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    assert sys.argv == argv
    assert run.path.parts[:3] == ("outputs", "cartpole_bullet", "ppo")


@pytest.mark.training
def test_a_run_is_shown_as_lines_and_says_first_that_it_trains_whole_rollouts(here, capsys):
    rz.train(*SMALL, n_timesteps=65)
    out = capsys.readouterr().out
    assert "128 steps (n_timesteps=65, rounded up to whole rollouts)" in out.split("evaluation:")[0]
    assert "step 128/128" in out
    assert "128/65" not in out
    assert "run directory: outputs/cartpole_bullet/ppo/" in out
    assert "\x1b" not in out


@pytest.mark.training
@pytest.mark.parametrize(
    ("most", "said"),
    [
        ("auto", "2 episodes of unknown length, cut after 10,000 steps"),
        (50, "2 episodes: at most 100 steps, 78% of the training steps"),
    ],
)
def test_the_share_of_evaluations_is_said_only_where_the_length_of_an_episode_is_known(
    here, capsys, most, said
):
    env = ("env.id=tests/TinyReach-v0", "env.packages=[support.tiny_envs]")
    rz.train(*SMALL[1:], *env, f"eval.max_episode_steps={most}", n_timesteps=128)
    assert said in capsys.readouterr().out


@pytest.mark.training
def test_a_mistake_in_training_leaves_no_directory(here):
    with pytest.raises(rz.ConfigError):
        rz.train(*SMALL, **{"env.kwargs.no_such_argument": 1}, quiet=True)
    assert not (here / "outputs").exists()


INTERRUPTED = """
import _thread, sys, threading, time
from pathlib import Path
import rlzoo_plus as rz

def press():
    while not list(Path().glob("run/checkpoints/0*")):
        time.sleep(0.02)
    _thread.interrupt_main()

threading.Thread(target=press, daemon=True).start()
try:
    rz.train(*sys.argv[1:], run_dir="run", quiet=True)
except KeyboardInterrupt:
    run = rz.Run.open("run")
    print(run.status, run.run_dir.read_status()["num_timesteps"], run.run_dir.checkpoints().steps())
"""


@pytest.mark.training
def test_an_interrupted_cell_saves_a_checkpoint_and_goes_on(here):
    words = [word for word in SMALL if not word.startswith("n_timesteps=")]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *words, "n_timesteps=1000000", "eval.every_steps=null"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    state, steps, saved = done.stdout.strip().split(" ", 2)
    assert state == "interrupted", done.stderr
    assert json.loads(saved)[-1] == int(steps)


KILLED = """
import sys
import rlzoo_plus as rz
rz.train(*sys.argv[1:], run_dir="killed", quiet=True)
"""


@pytest.mark.training
def test_a_killed_script_is_resumed_to_the_weights_of_one_that_was_not(here):
    words = [*SMALL, "n_timesteps=640", "eval.every_steps=null"]
    process = subprocess.Popen([sys.executable, "-c", KILLED, *words], cwd=here)
    checkpoints = here / "killed" / "checkpoints"
    wait_for(lambda: list(checkpoints.glob("0*")) or process.poll() is not None)
    process.kill()
    process.wait()
    run = rz.Run.open("killed")
    if run.status != "finished":
        assert run.status == "died"
        run.resume(quiet=True)
        assert run.result["exact"] in (True, "no difference found")
    whole = rz.train(*words, run_dir="whole", quiet=True)
    assert_same_tree(bundle_weights(run.path / "final"), bundle_weights(whole.path / "final"))


@pytest.mark.training
def test_a_script_without_a_guard_trains_with_processes_of_environments(here):
    words = [*SMALL, "n_envs=2", "vec_env=subproc", "checkpoint.every_steps=128"]
    script = here / "script.py"
    script.write_text(
        "import rlzoo_plus as rz\nprint('begin', flush=True)\n"
        f"print(rz.train(*{words!r}, run_dir='run', quiet=True).status)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["begin", "finished"], done.stderr


@pytest.mark.training
def test_python_and_the_command_train_the_same_weights_into_the_same_files(here):
    ours = rz.train(*SMALL, run_dir="python", quiet=True).path
    command = [sys.executable, "-m", "rlzoo_plus", "train", *SMALL, "run_dir=command"]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    theirs = Path("command")
    assert_same_tree(bundle_weights(ours / "final"), bundle_weights(theirs / "final"))
    assert (ours / "evaluations.jsonl").read_bytes() == (theirs / "evaluations.jsonl").read_bytes()
    names = [{str(p.relative_to(run)) for p in run.glob("*")} for run in (ours, theirs)]
    assert names[0] == names[1]
    # Either goes on with what the other has made.
    assert rz.Run.open("command").resume(n_timesteps=320, quiet=True).status == "finished"
    longer = [sys.executable, "-m", "rlzoo_plus", "resume", "python", "n_timesteps=320"]
    subprocess.run(longer, check=True, capture_output=True, timeout=300)
    assert_same_tree(bundle_weights(ours / "final"), bundle_weights(theirs / "final"))


# Seeds


def test_seeding_sets_what_a_run_sets_and_counts_environments_up():
    import gymnasium

    from rlzoo_plus.envs.seeding import SeedStreams

    envs = [gymnasium.make("CartPole-v1"), gymnasium.make_vec("CartPole-v1", num_envs=2)]
    report = rz.seed_all(3, envs)
    streams = SeedStreams.from_seed(3)
    assert report["torch"] == streams.agent
    assert report["environments"] == [streams.train + rank for rank in range(3)]
    first = envs[0].action_space.sample()
    rz.seed_all(3, envs)
    assert envs[0].action_space.sample() == first


@pytest.mark.training
def test_config_yaml_tells_the_defaults_of_the_environment(here):
    weights = {"env.kwargs.reward.effort": 0.5}
    run = rz.train(*SMALL, run_dir="run", quiet=True, **weights)
    text = (run.path / "config.yaml").read_text()
    _, comments = text.split("# Defaults of the environment; env.kwargs.NAME changes one.\n")
    defaults = yaml.safe_load("\n".join(line.removeprefix("# ") for line in comments.splitlines()))
    assert defaults["reward"] == {"alive": 0.5, "centred": 0.5}
    assert (defaults["episode_s"], defaults["latency"]) == (10.0, 0)
    assert "discrete" not in defaults
    assert yaml.safe_load(text)["env"]["kwargs"] == {"discrete": False, "reward": {"effort": 0.5}}
    longer = rz.Run.open("run").resume(quiet=True, n_timesteps=320)
    assert "# reward:" in (longer.path / "config.yaml").read_text()
