"""Objects in Python where names stand on a command line: exact, recorded, and given again."""

import sys

import gymnasium
import numpy as np
import pytest
from stable_baselines3 import A2C
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise, OrnsteinUhlenbeckActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv
from support.training import assert_same_tree, bundle_weights
from torch import nn, optim

import rlzoo_plus as rz
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.own_code import is_harmless, own_code
from rlzoo_plus.config.python_calls import translated
from rlzoo_plus.given import digests, name_object

MODULE = """
import gymnasium, numpy as np

class PointEnv(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, mass=1.0):
        self.mass = mass

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.n = self.np_random.uniform(-1, 1, 2).astype(np.float32), 0
        return self.x.copy(), {}

    def step(self, action):
        self.x = np.clip(self.x + 0.1 * float(action[0]) / self.mass, -10, 10).astype(np.float32)
        self.n += 1
        return self.x.copy(), -float(abs(self.x).sum()), False, self.n >= 20, {}

def falling(progress_remaining):
    return 1e-3 * progress_remaining
"""
SMALL = {"tuned": "none", "n_steps": 64, "batch_size": 32, "total_timesteps": 128, "quiet": True}
SMALL |= {"eval.every_steps": None, "checkpoint.every_steps": 64, "checkpoint.every_minutes": None}
SMALL |= {"report.video": False}


@pytest.fixture
def points(tmp_path, monkeypatch):
    """Work in a folder with a module of one's own; return the module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "points_of_mine.py").write_text(MODULE)
    yield __import__("points_of_mine")
    del sys.modules["points_of_mine"]


class Count(BaseCallback):
    """Counts its calls."""

    def __init__(self, count=0):
        super().__init__()
        self.count = count

    def _on_step(self):
        self.count += 1
        return True


def test_classes_are_stored_as_the_names_of_a_command_line(points):
    config = rz.compose(
        ["ppo", points.PointEnv],
        total_timesteps=4096,
        policy_kwargs={"activation_fn": nn.ReLU, "optimizer_class": optim.RMSprop, "net_arch": [8]},
        learning_rate=points.falling,
        callback=Count,
        wrappers=[gymnasium.wrappers.ClipAction],
        vec_env=DummyVecEnv,
    )
    assert (config.env.id, config.env.name) == ("points_of_mine:PointEnv", "pointenv")
    assert (config.network.activation, config.network.optimizer) == ("relu", "rmsprop")
    assert config.network.net_arch == [8]
    assert config.algo.hyperparams["learning_rate"] == "points_of_mine.falling"
    assert config.callbacks == [f"{__name__}.Count"]
    assert (config.env.wrappers, config.vec_env) == (["clip_action"], "dummy")
    assert config.n_timesteps == 4096
    assert set(own_code(config)) == {"points_of_mine", f"{__name__}.Count"}


def test_algorithms_environments_and_noise_have_their_shipped_names():
    config = rz.compose([A2C, "CartPole-v1"], seed=3, gamma=0.9)
    assert (config.algo.name, config.env.id) == ("a2c", "CartPole-v1")
    assert (config.seed, config.algo.hyperparams["gamma"]) == (3, 0.9)
    sigma = np.full(1, 0.2)
    for noise, kind in (
        (NormalActionNoise(np.zeros(1), sigma), "normal"),
        (OrnsteinUhlenbeckActionNoise(np.zeros(1), sigma), "ou"),
    ):
        config = rz.compose(["td3", "Pendulum-v1"], action_noise=noise)
        assert (config.algo.action_noise.type, config.algo.action_noise.std) == (kind, 0.2)


def test_an_instance_of_gymnasium_is_its_id_with_its_arguments():
    config = rz.compose(["sac"], env=gymnasium.make("Pendulum-v1", g=9.0))
    assert (config.env.id, config.env.kwargs) == ("Pendulum-v1", {"g": 9.0})


def test_layers_by_key_replace_those_that_a_file_names():
    layers = {"actor": [8], "critic": [9]}
    for values in ({"network.net_arch": layers}, {"network": {"net_arch": layers}}):
        config = rz.compose(["algo=ppo", "network=large"], **values)
        assert config.network.net_arch == layers
    config = rz.compose(
        ["ppo", "halfcheetah_bullet"], policy_kwargs={"net_arch": {"pi": [8], "vf": [9]}}
    )
    assert config.network.net_arch == layers


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"env": DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])}, "n_envs=N"),
        ({"env": lambda: None, "vec_env": "subproc"}, "vec_env=subproc: its processes import"),
        ({"algo": "sca"}, "algo=sca: unknown algo 'sca'. Did you mean 'sac'"),
        ({"env": 3}, "env expects a name, an id, a class or a function"),
        ({"env": "points_of_mine.Nothing"}, "points_of_mine has no Nothing"),
        ({"algo": nn.Module}, "env expects|algo"),
        ({"callbacks": [int]}, "is not a BaseCallback"),
        ({"learning_rate": lambda progress: progress / 0}, "division by zero"),
        ({"learning_rate": "points_of_mine.nothing"}, "is not a function"),
        ({"network.activation": Count}, "is not a Module"),
    ],
)
def test_an_object_of_another_kind_is_told_in_one_line(points, values, text):
    with pytest.raises(rz.ConfigError, match=text) as caught:
        rz.train(**{"env": points.PointEnv, **SMALL, **values})
    assert "\n" not in str(caught.value)


def test_jobs_in_other_processes_import_what_they_use(points):
    with pytest.raises(rz.ConfigError, match="at the top level of a module"):
        rz.sweep(["algo=ppo"], env=lambda: points.PointEnv())


@pytest.mark.parametrize(
    "override",
    ["env.id=points.PointEnv", "algo.hyperparams.learning_rate=points.falling"],
)
def test_what_names_code_is_no_harmless_override(override):
    assert not is_harmless(override)
    assert is_harmless("algo.hyperparams.learning_rate=lin_0.5_1.5e-3")
    assert is_harmless("env.id=CartPole-v1")


def test_the_typed_overrides_are_the_keys_of_a_run():
    typed = rz.Overrides.__annotations__.keys()
    assert rz.RunConfig.model_fields.keys() <= typed
    for name in typed - rz.RunConfig.model_fields.keys() - {"policy_kwargs"}:
        algo = "sac" if name in ("buffer_size", "action_noise") else "ppo"
        # A name of Stable-Baselines3 that is unknown would stay as it is.
        assert name not in translated({"algo": algo, name: "x"})


@pytest.mark.training
def test_a_class_trains_what_its_name_trains(points):
    by_class = rz.train("ppo", points.PointEnv, learning_rate=points.falling, **SMALL)
    schedule = "algo.hyperparams.learning_rate=points_of_mine.falling"
    for env_id in ("points_of_mine:PointEnv", "points_of_mine.PointEnv"):
        by_name = rz.train("algo=ppo", f"env.id={env_id}", schedule, **SMALL)
        assert_same_tree(
            bundle_weights(by_class.path / "final"), bundle_weights(by_name.path / "final")
        )
    assert by_class.result["exact"] is True
    assert "objects" not in RunDir(by_class.path).read_provenance()


@pytest.mark.training
def test_what_cannot_be_imported_is_recorded_and_given_again(points):
    class Heavy(points.PointEnv):
        """An environment of a notebook."""

    def run(**more):
        rates = {"learning_rate": lambda progress: 1e-3 * progress}
        return rz.train("ppo", Heavy, callback=Count(), **rates, **SMALL | more)

    whole = run(total_timesteps=256)
    assert whole.result["exact"] == "no difference found"
    recorded = RunDir(whole.path).read_provenance()["objects"]
    assert any("An environment of a notebook" in text for text in recorded.values())
    part = run()
    # Another process knows none of the objects.
    from rlzoo_plus import given

    given._objects.clear()
    again = rz.Run.open(part.path)
    with pytest.raises(rz.ConfigError, match=r"Heavy was an object .*resume\(env=\.\.\.\)"):
        again.resume(n_timesteps=256, quiet=True)
    assert given._objects == {}
    counted = Count()
    again.resume(
        n_timesteps=256,
        quiet=True,
        env=Heavy,
        callbacks=[counted],
        learning_rate=lambda progress: 1e-3 * progress,
    )
    assert counted.count == 256
    assert again.result["num_timesteps"] == 256


@pytest.mark.training
def test_an_instance_trains_and_is_left_as_it_was(points):
    env = points.PointEnv(mass=2.0)
    run = rz.train("ppo", env, **SMALL)
    same = rz.train("ppo", points.PointEnv, **{"env.kwargs": {"mass": 2.0}}, **SMALL)
    assert not hasattr(env, "n")
    assert_same_tree(bundle_weights(run.path / "final"), bundle_weights(same.path / "final"))


def test_the_code_of_a_run_is_that_of_its_own_objects():
    mine, other = (name_object(value) for value in (lambda: 1, lambda: 2))
    assert mine != other
    assert list(digests({"callbacks": [{mine: {}}]})) == [mine.replace(".", " ", 1)]
