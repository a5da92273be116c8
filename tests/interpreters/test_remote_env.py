"""An environment in another interpreter steps, resumes, fails and ends as one of this process."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from support.interpreters import OLD_GYM, OLD_NUMPY, interpreter

from rlzoo_plus.analysis.find_run import require_trust
from rlzoo_plus.config.own_code import is_harmless, own_code
from rlzoo_plus.envs.exactness import replay_problem
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.runs.load import load


def played(env, n_steps=60, seed=7):
    """Play with random actions; return everything that came back."""
    env.action_space.seed(seed)
    found = [env.reset(seed=seed)]
    for _ in range(n_steps):
        found.append(env.step(env.action_space.sample()))
        if found[-1][2] or found[-1][3]:
            found.append(env.reset())
    return found


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().split()[2] != "Z"


def ended(pid, timeout_s=30.0):
    until = time.monotonic() + timeout_s
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_alive(pid)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "Taxi-v4"])
def test_it_gives_what_the_same_environment_gives_here(spec, name):
    elsewhere, here = make_env(spec(name)), make_env(spec(name, python=None))
    assert elsewhere.observation_space == here.observation_space
    assert elsewhere.action_space == here.action_space
    for one, other in zip(played(elsewhere), played(here), strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        assert np.asarray(one[0]).dtype == np.asarray(other[0]).dtype
        assert len(one) == len(other)
        assert len(one) == 2 or one[1:4] == other[1:4]
    elsewhere.close()


def test_dictionaries_infos_methods_and_options_cross(worlds, spec, capfd):
    env = make_env(spec("their_worlds:Walk", stage=2))
    assert list(env.observation_space.spaces) == ["at", "on", "seen", "way"]
    observation, info = env.reset(seed=1, options={"level": 3})
    # Gymnasium sorts the keys of a space, and not those of an observation.
    assert env.observation_space.contains(dict(sorted(observation.items())))
    assert info == {"options": {"level": 3}}
    _, reward, terminated, truncated, info = env.step(np.array([0.5], np.float32))
    assert type(reward) is float
    assert (terminated, truncated) == (False, False)
    assert type(info["cost"]) is np.float32
    assert info["pair"][1].tolist() == [0, 1]
    assert "thing" not in info
    assert env.get_wrapper_attr("set_stage")(3).tolist() == [3, 3]
    masks, rest = env.get_wrapper_attr("action_masks")()
    assert (masks.dtype, rest) == (np.dtype(bool), [1, "two", None])
    assert not env.has_wrapper_attr("has_no_such_method")
    env.close()
    # What an environment prints goes where errors go, and disturbs no message.
    assert "noise 1" in capfd.readouterr().err


def test_an_environment_of_the_old_interface_is_read(worlds, spec):
    env = make_env(spec("their_worlds.OldWalk"))
    found = played(env)
    cuts = [step for step in found if len(step) == 5 and step[3]]
    assert cuts
    assert not any(step[2] for step in cuts)
    # The first reset's seed decides everything.
    for one, other in zip(found, played(env), strict=True):
        assert one[0] == other[0]
    env.close()


def test_a_time_limit_holds_there_and_here(worlds, spec):
    short, long = make_env(spec("CartPole-v1", time_limit=5)), make_env(spec("CartPole-v1"))
    assert short.unwrapped.max_episode_steps == 5
    assert long.unwrapped.max_episode_steps == 500
    assert all(step[3] for step in played(short)[5:6])
    walk = make_env(spec("their_worlds:Walk", time_limit=7))
    assert [len(step) == 5 and step[3] for step in played(walk, 7)][-2]
    for env in (short, long, walk):
        env.close()


def test_an_episode_is_replayed_exactly_in_a_process_of_its_own(worlds, spec):
    assert replay_problem(spec("their_worlds:Walk")) is None
    # Two that share a process share what the global generators give.
    assert "differs" in replay_problem(spec("their_worlds:Walk", worlds_per_process=2))
    assert replay_problem(spec("CartPole-v1", worlds_per_process=2)) is None


def test_what_lasts_longer_than_an_episode_needs_a_state_dict(worlds, spec):
    assert replay_problem(spec("their_worlds:Counting")) is None
    assert "reward of step 1 of the episode differs" in replay_problem(
        spec("their_worlds:Forgetful")
    )


@pytest.mark.parametrize("worlds_per_process", [1, 2, 3])
def test_steps_together_are_the_steps_one_after_the_other(worlds_per_process):
    found = {}
    for vec_env in ("dummy", "batched", "auto"):
        words = ["env.id=CartPole-v1", f"env.python={sys.executable}", "algo=ppo", "n_envs=3"]
        words += [f"env.worlds_per_process={worlds_per_process}", f"vec_env={vec_env}"]
        venv = make_train_env(load([*words, "env=gym"]), seed=5)
        draw, seen = np.random.default_rng(0), [venv.reset()]
        for _ in range(60):
            observations, rewards, dones, infos = venv.step(draw.integers(2, size=3))
            seen += [observations, rewards, dones]
            seen += [info["terminal_observation"] for info in infos if "episode" in info]
        digests = [state["episode"]["observation"] for state in venv.env_method("episode_state")]
        pids = {there.process.pid for there, _ in venv.env_method("place")}
        assert len(pids) == -(-3 // worlds_per_process)
        found[vec_env] = [*(array.tobytes() for array in seen), *digests]
        venv.close()
        assert all(ended(pid) for pid in pids)
    assert found["dummy"] == found["batched"] == found["auto"]
    assert len(found["dummy"]) > 3 * 60


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "raise",
            r"raises ValueError: the gripper is stuck \(their_worlds.py, line \d+, in step >",
        ),
        ("exit", "raises SystemExit: 3"),
        ("crash", r"was killed by SIGSEGV: Fatal Python error: Segmentation fault; .*string_at"),
        ("kill", "was killed by SIGKILL"),
    ],
)
def test_a_failure_there_is_one_line_with_its_place(worlds, spec, how, said):
    env = make_env(spec("their_worlds:Walk", how=how, when=10))
    with pytest.raises(RunError, match=said) as caught:
        played(env)
    assert "\n" not in str(caught.value)
    if how == "raise":
        assert "Traceback (most recent call last)" in caught.value.__notes__[0]
    pid = env.unwrapped.place()[0].process.pid
    env.close()
    assert ended(pid)


@pytest.mark.parametrize(
    ("env_id", "python", "said"),
    [
        ("CartPole-v1", "/nowhere/python", "there is no such program. Give the path"),
        ("CartPole-v1", "/bin/false", "ended by itself, with exit code 1"),
        ("Nowhere-v0", sys.executable, "env.id=Nowhere-v0 cannot be made by env.python=.*Nowhere"),
        ("no_module:Env-v0", sys.executable, "ModuleNotFoundError: No module named 'no_module'"),
        ("their_worlds:Odd", sys.executable, "a space of kind .* is not sent"),
    ],
)
def test_a_mistake_is_one_line(worlds, spec, env_id, python, said):
    with pytest.raises(ConfigError, match=said):
        make_env(spec(env_id, python=python))


def test_a_process_ends_with_the_one_that_started_it(worlds, spec):
    script = (
        "import sys, numpy as np\n"
        "from rlzoo_plus.interpreters.remote_env import RemoteEnv\n"
        "env = RemoteEnv(python=sys.executable, env_id='their_worlds:Walk', packages=[],\n"
        "    time_limit=None, arguments={'how': 'hang', 'when': 1}, worlds_per_process=1)\n"
        "env.reset(seed=1)\n"
        "print(env.place()[0].process.pid, flush=True)\n"
        "env.step(np.zeros(1, np.float32))\n"
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    pid = int(process.stdout.readline())
    # In the middle of a step that never ends.
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert ended(pid)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["env.worlds_per_process=2"],
            "is for environments of another interpreter. Set env.python",
        ),
        (
            ["env.python=python3", "vec_env=gymnasium"],
            "env.python=python3: vec_env=gymnasium steps",
        ),
        (["env.python=''"], "env.python"),
        (["env.python=python3", "env.worlds_per_process=0"], "env.worlds_per_process"),
    ],
)
def test_keys_that_do_not_fit_are_refused(words, said):
    with pytest.raises(ConfigError, match=said):
        load(["env=gym", "env.id=CartPole-v1", "algo=ppo", *words])


def test_an_interpreter_is_code_of_the_user(worlds):
    words = ["env=gym", "env.id=their_worlds:Walk", "algo=ppo", "env.python=/opt/python"]
    config = load(words)
    assert own_code(config) == ["/opt/python"]
    assert own_code(config, "play") == ["/opt/python"]
    assert own_code(config, "act") == []
    assert not is_harmless("env.python=/opt/python")
    with pytest.raises(ConfigError, match=r"needs what rlzoo_plus does not ship: /opt/python\."):
        require_trust(config, worlds, trust=False)
    require_trust(config, worlds, trust=True)


def test_versions_and_hashes_of_what_runs_there_are_known(worlds, spec):
    env = make_env(spec("their_worlds:Walk"))
    code = env.unwrapped.interpreters_code()
    assert code["package python of env.python"] == sys.version.split()[0]
    assert code["package numpy of env.python"] == np.__version__
    assert [key for key in code if "module" in key] == ["env.python: module their_worlds"]
    before = code["env.python: module their_worlds"]
    (worlds / "their_worlds.py").write_text("\n" + (worlds / "their_worlds.py").read_text())
    assert env.unwrapped.interpreters_code()["env.python: module their_worlds"] != before
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "versions"), [(OLD_GYM, {"gym": "0.21.0"}), (OLD_NUMPY, {"numpy": "1."})]
)
def test_other_versions_play_and_are_replayed(worlds, spec, tmp_path_factory, wanted, versions):
    python = interpreter(str(tmp_path_factory.getbasetemp()), *wanted)
    for env_id in ("CartPole-v1", "their_worlds:OldWalk"):
        env = make_env(spec(env_id, python=python))
        for name, version in versions.items():
            assert env.unwrapped.versions[name].startswith(version)
        assert len(played(env)) > 60
        env.close()
        assert replay_problem(spec(env_id, python=python)) is None
