"""A stand-in of the Hub, and a tiny run that was pushed to it."""

import contextlib
import copy
import os

import pytest

import rlzoo_plus as rz
from rlzoo_plus.errors import ConfigError

pytest.importorskip("huggingface_hub")

from huggingface_hub import constants
from support.hub import REPO, RUN, TOKEN, StandIn

from rlzoo_plus.commands import dispatch

SMALL = (
    *("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "algo.hyperparams.n_steps=64"),
    *("n_timesteps=64", "eval.every_steps=64", "eval.episodes=1", "report.video=false"),
    *("report.plot=false", "log.tensorboard=false"),
)


def _refuse(*_, **__):
    raise ConfigError("left out by the test")


@pytest.fixture(scope="module")
def hub_once():
    server = StandIn()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", server.url)
        # The library reads these once, when it is imported.
        patch.setattr(constants, "ENDPOINT", server.url)
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_OIDC_RESOURCE"):
            patch.delenv(name, raising=False)
        patch.setattr(constants, "HF_TOKEN_PATH", os.devnull)
        yield server
    server.close()


@pytest.fixture(scope="module")
def pushed_once(hub_once, tmp_path_factory):
    """Train a run and push it, with its checkpoint, without what takes long."""
    folder = tmp_path_factory.mktemp("pushed")
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        rz.train(*SMALL, run_dir=RUN, quiet=True)
        patch.setattr(rz.Run, "export", _refuse)
        patch.setenv("HF_TOKEN", TOKEN)
        words = ["push", RUN, REPO, "--episodes", "3", "--state", "--no-video"]
        assert dispatch.run("hub", words) == 0
    return folder


@pytest.fixture
def hub(hub_once, here):
    """Return the stand-in; what a test changes there is undone."""
    before = copy.copy(hub_once.repos)
    commits = {name: list(repo.commits) for name, repo in before.items()}
    hub_once.requests.clear()
    yield hub_once
    hub_once.sizes.clear()
    hub_once.contents.clear()
    hub_once.before_download = lambda: None
    hub_once.repos.clear()
    hub_once.repos.update(before)
    for name, repo in before.items():
        repo.commits[:] = commits[name]


@pytest.fixture
def pushed(pushed_once, hub):
    """Return the stand-in with the tiny run as `REPO`."""
    return hub


@pytest.fixture
def files(pushed):
    """Return the contents of that run's files by name."""
    return {name: file.content for name, file in pushed.repos[REPO].commits[-1][1].items()}


@pytest.fixture
def without_onnx(monkeypatch):
    """Leave out what takes seconds."""
    monkeypatch.setattr(rz.Run, "export", _refuse)
