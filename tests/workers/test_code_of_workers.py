"""An environment of the user's own goes to workers which do not have it, if they trust it."""

import os

import pytest
from support.processes import PLUS, ROOT, commands_in

from rlzoo_plus.artifacts.run_dir import RunDir

pytestmark = [
    pytest.mark.training,
    pytest.mark.skipif(os.name == "nt", reason="workers need sessions"),
]
OWN = """
import gymnasium as gym
import numpy as np
from my_robots.gears import RATIO

class Point(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        return np.zeros(2, np.float32), RATIO * float(action[0]), False, self.left == 0, {}

gym.register("mine/Point-v0", Point)
"""
TRAIN = (
    *("train", "-m", "seed=0,1", "algo=ppo", "env.id=mine/Point-v0", "env.packages=[my_robots]"),
    *("tuned=none", "n_timesteps=64", "n_envs=2", "vec_env=subproc", "network.net_arch=[4]"),
    *("algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=32", "eval.episodes=2"),
    *("eval.every_steps=64", "report.plot=false", "report.video=false", "log.tensorboard=false"),
    *("infra=workers", "infra.wait=false", "sweep=own"),
)


@pytest.fixture
def say(tmp_path):
    """Return a function: a folder and the words of a command to its exit code and its output."""
    # No folder of the tests: workers have what is installed, and what the store brings.
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environ["GIT_CEILING_DIRECTORIES"] = str(tmp_path)
    with commands_in(tmp_path, env=environ) as start:

        def say_it(folder, *words):
            process = start(*PLUS, *words, cwd=folder)
            out, err = process.communicate(timeout=300)
            return process.returncode, f"{out}\n{err or ''}"

        yield say_it


def test_own_code_trains_in_a_folder_that_lacks_it(say, tmp_path):
    lab, elsewhere = tmp_path / "lab", tmp_path / "elsewhere"
    for folder in (lab / "my_robots", elsewhere):
        folder.mkdir(parents=True)
    (lab / "my_robots/__init__.py").write_text(OWN)
    (lab / "my_robots/gears.py").write_text("RATIO = 3.0\n")
    code, said = say(lab, *TRAIN, f"store={tmp_path}/store")
    assert code == 0, said
    assert "workers need my_robots from here: infra.code=[my_robots]" in said
    code, said = say(lab, *TRAIN, "infra.code=[my_robots]", f"store={tmp_path}/store")
    assert code == 0, said
    assert "from here" not in said
    assert len(list((tmp_path / "store/code/own").glob("[!.]*.zip"))) == 1
    where = f"{tmp_path}/store/own"
    code, said = say(elsewhere, "worker", where, "--slots", "1")
    assert code == 1
    assert "my_robots, the code in the store" in said
    assert "--trust" in said
    assert "Traceback" not in said
    assert not list(elsewhere.rglob("*.py"))
    code, said = say(elsewhere, "worker", where, "--slots", "1", "--trust")
    assert code == 0, said
    runs = sorted((elsewhere / "outputs/workers/own").glob("*/*/*-s?"))
    assert [RunDir(path).read_status()["state"] for path in runs] == ["finished"] * 2
    # What is trained is found, and played with the code that is here.
    best = ("pull", where, "--best", "--episodes", "20")
    code, said = say(elsewhere, *best)
    assert code == 2
    assert "--trust" in said
    code, said = say(lab, *best, "--trust")
    assert code == 0, said
    assert "2 finished runs" in said
