"""A run whose robots are stepped in one pass is the run that steps them one by one, bit for bit."""

import pytest
from support.resuming import StopAfter
from support.training import start_run, tiny_config, train_run

from rlzoo_plus.config.compare import continued_config
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.envs.batching import ENOUGH
from rlzoo_plus.training.exp_manager import ExpManager
from robots.engines.compiling import SWITCH

pytestmark = pytest.mark.training


def _config(kind, algo="ppo", *overrides):
    return tiny_config(
        algo,
        "robots/CartPoleBalance-v0",
        "env.packages=[]",
        f"n_envs={ENOUGH}",
        "n_timesteps=320" if algo == "sac" else "n_timesteps=1280",
        "eval.every_steps=128" if algo == "sac" else "eval.every_steps=512",
        "log.tensorboard=true",
        f"vec_env={kind}",
        *overrides,
    )


@pytest.mark.parametrize("algo", ["ppo", "sac"])
def test_every_part_of_a_run_is_the_same(tmp_path, algo):
    found = []
    for kind in ("dummy", "batched"):
        run_dir, result = train_run(tmp_path / kind, _config(kind, algo, "normalize=true"))
        assert result.state == "finished"
        found.append(run_digests(run_dir))
    assert "monitor rows" in found[0]
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train_run(tmp_path_factory.mktemp("whole"), _config("batched"))[0]


def test_a_run_may_go_on_with_the_other_kind(tmp_path, whole):
    run_dir = start_run(tmp_path / "mixed", _config("dummy"))
    for kind in ("dummy", "batched", "dummy", "auto"):
        config = continued_config(_config("dummy"), _config(kind), "x")
        assert config.vec_env == kind
        last = kind == "auto"
        result = ExpManager(config, run_dir, None if last else StopAfter(2)).train()
        assert result.state == ("finished" if last else "interrupted")
    assert result.exact, result.inexact_because
    assert len(result.resumed_at) == 3
    assert run_digests(run_dir) == run_digests(whole)


def test_a_run_may_go_on_without_the_plugin(tmp_path, whole, monkeypatch):
    config = _config("batched")
    run_dir = start_run(tmp_path / "mixed", config)
    for switch, callback in (("1", StopAfter(2)), ("0", None)):
        monkeypatch.setenv(SWITCH, switch)
        result = ExpManager(config, run_dir, callback).train()
    assert result.state == "finished"
    assert result.exact, result.inexact_because
    assert run_digests(run_dir) == run_digests(whole)
