"""The version of an environment changes with what it does, and with nothing else."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from support import environment_digests
from support.serving import Server
from support.training import make_config

import rlzoo_plus as rz
import robots
from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.commands import dispatch
from rlzoo_plus.envs import environment_version as module
from rlzoo_plus.envs.environment_version import differences, environment_version
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.models.model_copies import resolve

SMALL = (
    *("algo=ppo", "tuned=none", "n_envs=1", "algo.hyperparams.n_steps=64", "n_timesteps=64"),
    *("eval.every_steps=64", "eval.episodes=1", "report.video=false", "report.plot=false"),
    "log.tensorboard=false",
)
OWN = '''"""Mine."""
import gymnasium as gym
import numpy as np
from versioned_helper import shape
from versioned_package import deep
from versioned_starred import *

GAIN = 1.0
TABLE = {"b": 1}


class PointEnv(gym.Env):
    """A point."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    model = "point.urdf"

    def reset(self, seed: int | None = None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.n += 1
        reward = GAIN * shape(action) * FACTOR
        is_over = self.n >= min(10, deep.LIMIT)
        return np.zeros(1, np.float32), reward, TABLE["b"] > 5, is_over, {}


class OtherEnv(PointEnv):
    pass
'''
WRAPPER = """import gymnasium as gym


class Doubled(gym.RewardWrapper):
    def reward(self, reward):
        return 2 * reward
"""
HELPER = "def shape(action):\n    return 0.1 * float(action)\n"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return a function that writes an environment and returns its version."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(
        env=OWN,
        helper=HELPER,
        model="<robot/>",
        deep="LIMIT = 10\n",
        starred="FACTOR = 1\n",
        wrapper=WRAPPER,
        package="",
        **kwargs,
    ):
        texts = {"env": env, "helper": helper, "starred": starred, "wrapper": wrapper}
        texts |= {"package/__init__": package, "package/deep": deep}
        Path("versioned_package").mkdir(exist_ok=True)
        for name, text in texts.items():
            Path(f"versioned_{name}.py").write_text(text)
        for name in [name for name in sys.modules if name.startswith("versioned_")]:
            monkeypatch.delitem(sys.modules, name)
        Path("point.urdf").write_text(model)
        module._source.cache_clear()
        monkeypatch.setattr(module, "_known", {})
        spec = make_config("env=cartpole_bullet", "tuned=none").env
        update = {"id": "versioned_env:PointEnv", "packages": [], "kwargs": kwargs}
        update["wrappers"] = ["versioned_wrapper.Doubled"]
        return environment_version(spec.model_copy(update=update))

    yield write
    module._source.cache_clear()


def test_a_shipped_robot_whose_code_changed_needs_a_new_version_of_its_id():
    stored = environment_digests.load(environment_digests.VERSIONS)
    assert environment_digests.renamed(stored, environment_digests.versions()) == []


def test_a_reward_that_changes_by_one_bit_is_seen(tmp_path, monkeypatch):
    real, copy = module._file, tmp_path / "cartpole.py"
    shutil.copy(robots.__path__[0] + "/cartpole.py", copy)
    monkeypatch.setattr(
        module, "_file", lambda name: copy if name == "robots.cartpole" else real(name)
    )
    stored = environment_digests.load(environment_digests.VERSIONS)

    def changed():
        module._source.cache_clear()
        monkeypatch.setattr(module, "_known", {})
        return environment_digests.renamed(stored, environment_digests.versions())

    text = copy.read_text()
    copy.write_text(text.replace('"""Balance the pole', '# A comment.\n    """Balance a pole', 1))
    assert changed() == []
    assert '"centred": 0.5' in text
    copy.write_text(text.replace('"centred": 0.5', '"centred": 0.5000000000000001', 1))
    found = changed()
    module._source.cache_clear()
    assert found
    assert all("robots.cartpole.CartPoleBalance changed" in line for line in found)
    assert any("robots/CartPoleBalance-v0" in line for line in found)
    assert not any("A1Walk" in line for line in found)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"env": OWN.replace("A point.", "Points.").replace("GAIN = ", "# gain\nGAIN = ")}, []),
        ({"env": OWN.replace(": int | None", "")}, []),
        ({"env": OWN.replace("    pass", "    reset = None")}, []),
        ({"env": OWN.replace("1.0", "1.0000000000000002")}, ["code of versioned_env.GAIN"]),
        ({"env": OWN.replace(">= min", "> min")}, ["code of versioned_env.PointEnv"]),
        ({"helper": HELPER.replace("0.1", "0.2")}, ["code of versioned_helper.shape"]),
        ({"model": "<robot name='b'/>"}, ["model of point.urdf"]),
        ({"mass": 2.0}, ["env.kwargs differ"]),
        ({"env": f"{OWN}GAIN *= 2\n"}, ["code of versioned_env.GAIN"]),
        ({"env": OWN + "TABLE['b'] = 2\n"}, ["code of versioned_env.TABLE"]),
        ({"deep": "LIMIT = 11\n"}, ["code of versioned_package.deep.LIMIT"]),
        ({"starred": "FACTOR = 2\n"}, ["code of versioned_starred.FACTOR"]),
        ({"wrapper": WRAPPER.replace("2 *", "3 *")}, ["code of versioned_wrapper.Doubled"]),
    ],
)
def test_what_decides_an_environment_counts_and_nothing_else(own, change, said):
    before = own()
    found = differences(before, own(**change))
    assert [text.removesuffix(" was changed") for text in found] == said
    assert (own(**change)["version"] == before["version"]) == (not said)


def test_modules_that_import_from_themselves_and_each_other_come_to_an_end(own):
    circle = {
        "package": "from . import deep\n",
        "starred": "from versioned_helper import *\nFACTOR = 1\n",
        "helper": "from versioned_starred import *\n" + HELPER.replace("0.1", "0.1 * missing"),
    }
    before = own(**circle)
    assert differences(before, own(**circle, deep="LIMIT = 11\n")) == [
        "code of versioned_package.deep.LIMIT was changed"
    ]


def test_engines_count_up_to_what_mends_mistakes():
    before = {"id": "a", "engine": "mujoco 3.3.1", "kwargs": "", "code": {}, "assets": {}}
    assert differences(before, {**before, "engine": "mujoco 3.3.7"}) == []
    assert differences(before, {**before, "engine": "mujoco 3.4.0"})
    assert differences(before, {**before, "engine": "bullet 3.3.1"})


@pytest.mark.parametrize("damaged", [None, [], "x", {"code": 3}, {"code": {"a": []}, "id": "\x1b"}])
def test_a_damaged_record_is_no_traceback(own, damaged):
    assert all(text.isprintable() for text in differences(damaged, own()))


def check_what_is_written(capsys):
    """Check that files of a policy are refused in another environment, or say that it is."""
    for verb, words in {
        "export": ["--format", "onnx", "--output", "policy.onnx"],
        "deploy": ["--out", "robot"],
        "model": [],
    }.items():
        command = [*words, "run", "--trust"]
        if verb == "model":
            command = ["register", *command, "--name", "point", "--episodes", "10"]
        assert dispatch.run(verb, command) == 2
        assert "versioned_helper.shape was changed" in capsys.readouterr().err
        assert not Path(words[-1] if words else "registry/models/point/versions").exists()
        assert dispatch.run(verb, [*command, "--other-env"]) == 0
    with pytest.raises(ConfigError, match="--other-env"):
        rz.Run.open("run", trust=True).export("torchscript", "policy.pt")
    about = json.loads(Path("robot/deploy.json").read_text())
    deployed = resolve("point@1").path / "deploy" / "deploy.json"
    provenance = json.loads(Path("run/provenance.json").read_text())["environment"]
    for one in (about, json.loads(deployed.read_text())):
        assert one["environment_version"] == f"versioned_env:PointEnv {provenance['version']}"
        assert one["other_environment"] == "code of versioned_helper.shape was changed"
    assert load_bundle(deployed.parents[1] / "best").about["environment"] == provenance
    with Server("robot") as server:
        assert "another environment than in training: code of" in server.output


@pytest.mark.training
def test_playing_in_another_environment_is_refused_and_can_be_allowed(
    own, capsys, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("RLZOO_MODELS", raising=False)
    own()
    rz.train(*SMALL, "env.id=versioned_env:PointEnv", run_dir="run", quiet=True)
    assert json.loads(Path("run/provenance.json").read_text())["environment"]["code"]
    record = rz.Run.open("run", trust=True).evaluate(1)
    assert record["environment"].startswith("versioned_env:PointEnv ")
    assert record["other_environment"] == []
    own(helper=HELPER.replace("0.1", "0.2"))
    for run in ("run", "run/best"):
        opened = rz.Run.open(run, trust=True)
        with pytest.raises(ConfigError, match=r"versioned_helper.shape was changed.*--other-env"):
            opened.evaluate(1)
        with pytest.raises(ConfigError, match="--other-env"):
            opened.env()
    told = rz.Run.open("run", trust=True, other_env=True).evaluate(1)["other_environment"]
    assert told == ["code of versioned_helper.shape was changed"]
    words = ["run", "--trust", "--other-env", "--episodes", "1"]
    assert dispatch.run("evaluate", words) == 0
    assert "another than in training" in capsys.readouterr().out
    check_what_is_written(capsys)
    # A run from before versions were recorded opens as it did.
    known = json.loads(Path("run/provenance.json").read_text())
    del known["environment"]
    Path("run/provenance.json").write_text(json.dumps(known))
    assert rz.Run.open("run", trust=True).evaluate(1)["other_environment"] == []
