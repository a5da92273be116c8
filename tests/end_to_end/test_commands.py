"""Whole commands in processes of their own, as a user types them."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios

import pytest
import yaml
from support.processes import PLUS, ROOT, commands_in, environ_of_tests, wait_for

TRAIN = [sys.executable, str(ROOT / "train.py")]
QUICK = [
    "report.video=false", "report.plot=false", "device=cpu", "log.tensorboard=false",
    "eval.episodes=2", "network.net_arch=[8]",
]  # fmt: skip
PPO = ["algo.hyperparams.n_steps=64", "algo.hyperparams.batch_size=32"]
OFF_POLICY = [
    "algo.hyperparams.learning_starts=100", "algo.hyperparams.batch_size=16",
    "algo.hyperparams.buffer_size=1000", "algo.hyperparams.train_freq=8",
    "algo.hyperparams.gradient_steps=1",
]  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture
def start(tmp_path):
    # Output and errors apart; no window, even where there is a display.
    environ = environ_of_tests(OMP_NUM_THREADS="1")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        environ.pop(name, None)
    with commands_in(tmp_path, env=environ, stderr=subprocess.PIPE) as start_it:
        yield start_it


@pytest.fixture
def call(start):
    def _call(*words, code=0):
        process = start(*words)
        out, err = process.communicate(timeout=150)
        assert process.returncode == code, f"{out[-2000:]}\n{err[-3000:]}"
        return out, err

    return _call


def _status(path):
    try:
        return json.loads((path / "status.json").read_text())
    except (OSError, ValueError):
        return {}


def _wait_until_training(run, process):
    # The first row after the two of the head: an episode has ended.
    def trains():
        files = list((run / "monitor").glob("*.csv"))
        return bool(files) and all(len(f.read_text().splitlines()) > 3 for f in files)

    wait_for(trains, process)


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 75), (signal.SIGINT, 130), (signal.SIGHUP, 75)],
    ids=["SIGTERM", "SIGINT", "SIGHUP"],
)
def test_a_signal_ends_the_run_with_a_checkpoint_that_can_be_evaluated(
    tmp_path, start, call, number, code
):
    run = tmp_path / "run"
    process = start(*TRAIN, *QUICK, *PPO, "n_timesteps=10000000", "normalize=true", "run_dir=run")
    _wait_until_training(run, process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in err
    assert _status(run)["state"] == "interrupted"
    assert not (run / "result.json").exists()
    step = max(int(path.name) for path in (run / "checkpoints").iterdir())
    assert step == _status(run)["num_timesteps"]
    out, _ = call(*PLUS, "evaluate", "run", "--which", step, "--episodes", 2, "--json")
    assert json.loads(out)["step"] == step


def test_ctrl_c_ends_a_run_with_processes_as_cleanly(tmp_path, start):
    # A terminal sends SIGINT to the workers too.
    run = tmp_path / "run"
    process = start(
        *TRAIN, *QUICK, *PPO, "n_timesteps=10000000", "n_envs=2", "vec_env=subproc", "run_dir=run",
        start_new_session=True,
    )  # fmt: skip
    _wait_until_training(run, process)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err[-2000:]
    assert _status(run)["state"] == "interrupted"
    assert list((run / "checkpoints").iterdir())


def test_a_terminal_that_is_closed_ends_the_run_with_a_checkpoint(tmp_path):
    run = tmp_path / "run"
    words = ["n_timesteps=10000000", "n_envs=2", "vec_env=subproc", "run_dir=run"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*TRAIN, *QUICK, *PPO, *words],
        cwd=tmp_path, env=environ_of_tests(OMP_NUM_THREADS="1"),
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    try:
        os.close(theirs)
        os.set_blocking(ours, False)
        _wait_until_training(run, process)
        os.close(ours)  # as sshd does when the connection is lost
        assert process.wait(timeout=60) == 75
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert _status(run)["message"] == "stopped by SIGHUP"
    steps = [int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit()]
    assert max(steps) == _status(run)["num_timesteps"]


def test_a_signal_ends_a_whole_sweep(tmp_path, start):
    words = ["seed=1,2,3", "n_timesteps=10000000", "infra.workers=1"]
    process = start(*TRAIN, "-m", *QUICK, *PPO, *words)
    root = tmp_path / "outputs" / "sweeps" / "default" / "cartpole_bullet" / "ppo"
    wait_for(lambda: bool(list(root.glob("*/monitor/*"))), process)
    _wait_until_training(next(root.iterdir()), process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 75
    assert len(list(root.iterdir())) == 1


def test_two_runs_started_at_the_same_instant_get_two_directories(tmp_path, start):
    command = [*TRAIN, *QUICK, *PPO, "n_timesteps=64", "seed=4"]
    processes = [start(*command) for _ in range(2)]
    for process in processes:
        _, err = process.communicate(timeout=150)
        assert process.returncode == 0, err
    runs = list((tmp_path / "outputs" / "cartpole_bullet" / "ppo").iterdir())
    assert len(runs) == 2
    assert all(_status(run)["state"] == "finished" for run in runs)
    first, second = ((run / "evaluations.jsonl").read_bytes() for run in runs)
    assert first == second


def test_two_runs_given_the_same_directory_do_not_share_it(tmp_path, start):
    command = [*TRAIN, *QUICK, *PPO, "n_timesteps=64", "run_dir=run"]
    processes = [start(*command) for _ in range(2)]
    codes = []
    for process in processes:
        process.communicate(timeout=150)
        codes.append(process.returncode)
    assert sorted(codes) == [0, 2]


def test_a_sweep_runs_each_seed_in_a_directory_of_its_own(tmp_path, call):
    call(*TRAIN, "-m", *QUICK, *PPO, "seed=1,2", "n_timesteps=64")
    root = tmp_path / "outputs" / "sweeps" / "default" / "cartpole_bullet" / "ppo"
    runs = sorted(root.iterdir(), key=lambda run: run.name[-3:])
    assert [run.name[-3:] for run in runs] == ["-s1", "-s2"]
    configs = [(run / "config.yaml").read_text() for run in runs]
    assert "seed: 1" in configs[0]
    assert "seed: 2" in configs[1]


def test_any_gymnasium_environment_trains_by_its_id(tmp_path, call):
    command = [*TRAIN, *QUICK, *OFF_POLICY, "env.id=Pendulum-v1", "algo=td3"]
    call(*command, "n_timesteps=208", "run_dir=run")
    assert json.loads((tmp_path / "run" / "result.json").read_text())["num_timesteps"] == 208


def test_halfcheetah_trains_and_its_best_reproduces_the_recorded_return(tmp_path, call):
    pytest.importorskip("pybullet_envs_gymnasium")
    call(
        *TRAIN, *QUICK[:-1], "algo=ppo", "env=halfcheetah_bullet", "n_envs=1", *PPO,
        "n_timesteps=128", "env.time_limit=100", "run_dir=run",
    )  # fmt: skip
    out, _ = call(*PLUS, "evaluate", "run", "--episodes", 2, "--json")
    assert json.loads(out)["episode_lengths"] == [100, 100]


def test_panda_reach_trains_with_sac(tmp_path, call):
    pytest.importorskip("panda_gym")
    command = [*TRAIN, *QUICK, *OFF_POLICY, "algo=sac", "env=panda_reach_dense"]
    call(*command, "n_timesteps=160", "eval.every_steps=80", "run_dir=run")
    # What the simulator prints must not get between a program and its JSON.
    out, _ = call(*PLUS, "evaluate", "run", "--episodes", 2, "--json")
    assert json.loads(out)["success_rate"] is not None


@pytest.fixture
def trained(tmp_path, call):
    """Return a short run on the cart-pole."""
    call(*TRAIN, *QUICK, *PPO, "n_timesteps=128", "normalize=true", "run_dir=run")
    return tmp_path / "run"


def test_evaluate_prints_one_json_object_that_can_be_repeated(trained, call):
    command = [*PLUS, "evaluate", "run", "--episodes", 4, "--json"]
    first, second = call(*command)[0], call(*command, "--n-envs", 1)[0]
    record = json.loads(first)
    assert set(record) >= {"returns", "mean_return", "std_return", "iqm_return", "episode_lengths"}
    assert len(record["returns"]) == 4
    assert json.loads(second)["returns"] == pytest.approx(record["returns"], rel=1e-4)


def test_a_negative_number_of_held_out_episodes_is_no_traceback(trained, call):
    _, err = call(*PLUS, "evaluate", "run", "--seed", -3, "--episodes", 1, code=2)
    assert "Traceback" not in err


def test_record_makes_a_video(trained, call):
    call(*PLUS, "record", "run", "--out", "video.mp4", "--seconds", 0.3)
    data = (trained.parent / "video.mp4").read_bytes()
    assert data[4:8] == b"ftyp"


def test_a_damaged_run_gets_one_clear_line(trained, call):
    (trained / "best" / "tensors.safetensors").write_bytes(b"\0" * 10)
    _, err = call(*PLUS, "evaluate", "run", code=2)
    assert len(err.strip().splitlines()) == 1
    assert "damaged" in err
    (trained / "config.yaml").write_text("seed: [")
    _, err = call(*PLUS, "evaluate", "run", code=2)
    assert len(err.strip().splitlines()) == 1


def test_the_module_is_the_same_as_the_console_script(call):
    out, _ = call(*PLUS)
    assert "-m rlzoo_plus VERB" in out
    assert "rlzoo-plus" in call(*PLUS, "--version")[0]


def test_a_configuration_directory_of_the_user_is_found(tmp_path, call):
    (tmp_path / "mine" / "env").mkdir(parents=True)
    (tmp_path / "mine" / "env" / "my_pole.yaml").write_text(
        "id: robots/CartPoleBalance-v0\npackages: [robots]\nkwargs: {episode_s: 1.0}\n"
        "wrappers: []\nframe_stack: 1\ntime_limit: null\nwarmup_resets: 0\nmax_return: 50\n"
        "solved_return: null\n"
    )
    call(
        *PLUS, "train", "--config-dir", "mine", "env=my_pole", *QUICK, *PPO, "n_timesteps=64",
        "run_dir=run",
    )  # fmt: skip
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert max(result["best"]["episode_lengths"]) <= 50


def test_a_wrapper_of_the_user_trains_and_needs_trust_afterwards(tmp_path, call):
    (tmp_path / "my_wrappers.py").write_text(
        "import gymnasium as gym\n\n\nclass Tripled(gym.RewardWrapper):\n"
        "    def reward(self, reward):\n        return 3 * reward\n"
    )
    # `-m` puts the folder of the user on the path, a script only its own.
    call(
        *PLUS, "train", *QUICK, *PPO, "env.wrappers=[my_wrappers.Tripled]", "n_timesteps=64",
        "run_dir=run",
    )  # fmt: skip
    _, err = call(*PLUS, "evaluate", "run", "--episodes", 1, code=2)
    assert "my_wrappers.Tripled" in err
    assert "--trust" in err
    call(*PLUS, "evaluate", "run", "--episodes", 1, "--trust")


def test_layers_can_be_set_over_those_of_a_tuned_file(call):
    # The tuned file of this pair names them for actor and critic.
    layers = "network.net_arch=[8]"
    out, _ = call(*TRAIN, "--cfg", "job", "algo=ppo", "env=halfcheetah_bullet", layers)
    assert yaml.safe_load(out)["network"]["net_arch"] == [8]


def test_a_list_of_layers_is_replaced_by_one_for_each_part(call):
    layers = "network.net_arch={actor: [8], critic: [9]}"
    assert "critic:" in call(*TRAIN, "--cfg", "job", "network=large", layers)[0]


def test_flags_may_stand_between_overrides(call):
    out, _ = call(*TRAIN, "seed=3", "--cfg", "job", "n_envs=2")
    assert "seed: 3" in out
    assert "n_envs: 2" in out


def test_a_pipe_to_a_worker_that_breaks_is_no_success(call):
    code = (
        "import sys, types\n"
        "from rlzoo_plus.commands import dispatch\n"
        "def main(arguments):\n"
        "    raise BrokenPipeError(32, 'Broken pipe')\n"
        "sys.modules['broken_verb'] = types.SimpleNamespace(main=main)\n"
        "dispatch.VERBS['broken'] = ('broken_verb', '')\n"
        "sys.exit(dispatch.run('broken', []))\n"
    )
    call(sys.executable, "-c", code, code=1)


def test_observations_that_no_policy_can_use_are_a_user_error(call):
    _, err = call(*TRAIN, *QUICK, "env.id=Blackjack-v1", "n_timesteps=2048", code=2)
    assert "Blackjack-v1" in err
    assert "Traceback" not in err


def test_a_ddpg_run_can_be_evaluated(tmp_path, call):
    command = [*TRAIN, *QUICK, *OFF_POLICY, "algo=ddpg", "n_timesteps=120", "run_dir=run"]
    call(*command)
    call(*PLUS, "evaluate", "run", "--episodes", 1)
