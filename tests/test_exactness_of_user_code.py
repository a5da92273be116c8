"""A run with code of a user's is never called exact without reason."""

import pytest
import support.forgetful_envs  # noqa: F401
from support.resuming import assert_same_in_pieces
from support.training import tiny_config

pytestmark = pytest.mark.training
PACKAGE = "env.packages=[support.forgetful_envs]"
SHORT = ("n_timesteps=192", "eval.every_steps=64")


def _config(env, *overrides, algo="ppo"):
    chosen = {override.partition("=")[0] for override in overrides}
    short = [override for override in SHORT if override.partition("=")[0] not in chosen]
    return tiny_config(algo, f"tests/{env}-v0", PACKAGE, *short, *overrides)


@pytest.mark.slow
def test_global_generators_of_worker_processes_are_seeded(tmp_path):
    config = _config("Dice", "vec_env=subproc", "eval.every_steps=96")
    assert_same_in_pieces(tmp_path, config)
