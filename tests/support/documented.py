"""The files that the commands of README.md and docs/ name as the user's own."""

import contextlib
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
_ROBOTS = """import gymnasium
from support.tiny_envs import TinyReach

for name in ("my_robots/Crawler-v0", "my_robots/ArmPosture-v0", "mine/Point-v0", "mine/Robot-v0"):
    gymnasium.register(name, entry_point=TinyReach)
"""
_CROWD = """import gymnasium
import numpy as np
from gymnasium import spaces


class Crowd(gymnasium.Env):
    observation_space = spaces.Dict(
        robot=spaces.Box(-np.inf, np.inf, (4,), np.float32),
        obstacles=spaces.Box(-np.inf, np.inf, (16, 3), np.float32),
        is_there=spaces.MultiBinary(16),
    )
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observe(), {}

    def step(self, action):
        self.steps += 1
        return self.observe(), 0.0, False, self.steps >= 8, {}

    def observe(self):
        draw = self.np_random
        return {
            "robot": draw.normal(size=4).astype(np.float32),
            "obstacles": draw.normal(size=(16, 3)).astype(np.float32),
            "is_there": np.ones(16, np.int8),
        }


gymnasium.register("Crowd-v0", entry_point=Crowd)
"""
_MJCF = """<mujoco><worldbody><body><geom size="0.1"/><body><joint axis="0 1 0"/>
<geom type="capsule" size="0.02" fromto="0 0 0 0 0 0.3"/></body></body></worldbody></mujoco>"""
_URDF = """<robot name="arm">
  <link name="base"/>
  <link name="upper">
    <inertial>
      <mass value="1"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/>
    </inertial>
    <visual><geometry><box size="0.1 0.1 0.4"/></geometry></visual>
    <collision><geometry><box size="0.1 0.1 0.4"/></geometry></collision>
  </link>
  <joint name="shoulder" type="revolute">
    <parent link="base"/><child link="upper"/><axis xyz="0 1 0"/>
    <limit lower="-1.5" upper="1.5" effort="20" velocity="3"/>
  </joint>
</robot>
"""
_MINE = """# @package _global_
defaults:
  - override /env: cartpole_bullet
  - override /algo: ppo

n_timesteps: 2048
"""
_CALM = """name: calm_ppo
packages: [calm_ppo]
action_noise: null
replay_buffer: null
hyperparams: {n_steps: 64, batch_size: 64, n_epochs: 2, initial_ent_coef: 0.01}
"""
_RESULTS = {
    "timesteps": np.array([1000, 2000]),
    "results": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "ep_lengths": np.array([[10, 20], [30, 40]]),
}
_ZOO = """CartPole-v1:
  n_timesteps: !!float 1e5
  policy: MlpPolicy
"""


# `my_module.py`: and then a block with its text.
SHOWN = re.compile(
    r"^`([\w./]+\.(?:py|yaml))`[^`]*:\n\n```(?:python|yaml)\n(.*?)```", re.MULTILINE | re.DOTALL
)


def prepare_files(folder, page):
    """Write the user's working directory: modules, configurations, a URDF and the like.

    Args:
        folder: Where.
        page: A page; files that it shows are written as they stand there.
    """
    for file in [*(ROOT / "examples").glob("*.py")]:
        shutil.copy(file, folder)
    shutil.copy(ROOT / "constraints.txt", folder)
    env = {
        "mine": ("mine/Robot-v0", "my_robots"),
        "arm_posture": ("my_robots/ArmPosture-v0", "my_robots"),
    }
    texts = {
        "my_robots/__init__.py": _ROBOTS,
        "my_crowd.py": _CROWD,
        "my_module.py": "from point_mass_vec_env import PointMasses as MyVecEnv  # noqa: F401\n",
        "wrappers.py": "",
        "robot.urdf": _URDF,
        "path/to/robot.urdf": _URDF,
        "path/to/scene.xml": _MJCF,
        "more.txt": "",
        "my.yaml": "latency: [0, 1]\n",
        "experiment/identified.yaml": "# @package _global_\nenv: {kwargs: {latency: 1}}\n",
        "rl-baselines3-zoo/hyperparams/ppo.yml": _ZOO,
    }
    for conf in ("conf", "my_conf"):
        for name, (env_id, package) in env.items():
            texts[f"{conf}/env/{name}.yaml"] = f"id: {env_id}\npackages: [{package}]\n"
        texts[f"{conf}/experiment/mine.yaml"] = _MINE
        texts[f"{conf}/algo/calm_ppo.yaml"] = _CALM
    texts |= dict(SHOWN.findall(page.read_text(encoding="utf-8")))
    for name, text in texts.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if page.name == "identification.md":
        _write_log(Path(folder) / "log.csv")
    logs = Path(folder) / "rl-baselines3-zoo" / "logs" / "ppo" / "HopperBulletEnv-v0_1"
    logs.mkdir(parents=True)
    np.savez(logs / "evaluations.npz", **_RESULTS)


def _write_log(path, steps=400):
    """Write what a cart-pole was told and did."""
    import gymnasium

    from rlzoo_plus.identify.logs import state_of

    made = gymnasium.make("robots:robots/CartPoleSwingUp-v0")
    with contextlib.closing(made):
        env = made.unwrapped
        env.reset(seed=0)
        joints = [joint.name for joint in env.robot.joints]
        heads = [f"{what}/{name}" for what in ("position", "velocity") for name in joints]
        lines = [",".join(["action/0", *heads])]
        for step in range(steps):
            action = 0.8 * np.sin(0.35 * step) * np.cos(0.05 * step)
            lines.append(",".join(map(repr, [float(action), *map(float, state_of(env))])))
            env.step(np.array([action], np.float32))
    path.write_text("\n".join(lines) + "\n")


def run_command(words, folder, timeout_s=300):
    """Run `rlzoo-plus`; return its exit code, and its output and errors."""
    with running_command(words, folder) as (process, output):
        process.join(timeout_s)
        return process.exitcode, output.read_text()


@contextlib.contextmanager
def running_command(words, folder):
    """Run `rlzoo-plus` in a process of its own, forked from one that has the libraries.

    Yields the process, which is killed at the end of the block, and the file with its output.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rlzoo_plus.runs.preload", "matplotlib.pyplot"])
    output = Path(tempfile.mkdtemp()) / "output.txt"
    process = context.Process(target=_be_command, args=(words, folder, output, dict(os.environ)))
    process.start()
    try:
        yield process, output
    finally:
        process.kill()
        process.join()
        shutil.rmtree(output.parent)


def _be_command(words, folder, output, environ):
    from rlzoo_plus.commands.dispatch import entry_point

    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    with open(output, "w") as file, open(os.devnull) as nothing:
        for stream, number in ((nothing, 0), (file, 1), (file, 2)):
            os.dup2(stream.fileno(), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.argv = ["rlzoo-plus", *words]
    entry_point()
