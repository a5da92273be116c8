"""What of examples/ takes part in training keeps to the suites: algorithm, callback, robot."""

from pathlib import Path

import pytest

from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.testing import RobotContract, RunContract

pytestmark = pytest.mark.training
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class TestCalmPPO(RunContract):
    folder = EXAMPLES
    overrides = ("algo=ppo", "algo.name=calm_ppo.CalmPPO", "algo.hyperparams.ent_coef=0.01")

    def test_the_weight_of_the_entropy_falls_to_zero(self):
        from calm_ppo import CalmPPO

        agent = CalmPPO("MlpPolicy", "Pendulum-v1", n_steps=64, batch_size=32, ent_coef=0.01)
        agent.learn(64)
        assert (agent.first_ent_coef, agent.ent_coef) == (0.01, 0.0)


class TestEffortCallback(RunContract):
    folder = EXAMPLES
    overrides = ("callbacks=[{effort_callback.EffortCallback: {name: effort}}]",)

    def test_its_metric_is_recorded_with_the_others(self, trained):
        rows = [r for r in read_records(trained[0].metrics_file) if r["key"] == "own/effort"]
        assert rows
        assert all(0.0 <= row["value"] <= 2.0 for row in rows)


class TestR2D2(RobotContract):
    modules = ("r2d2_robot",)

    @pytest.fixture
    def env_id(self):
        import r2d2_robot  # noqa: F401

        return "r2d2_robot/DriveToMark-v0"

    @pytest.mark.slow
    def test_ten_thousand_random_steps_stay_finite(self, env):
        super().test_ten_thousand_random_steps_stay_finite(env)


class TestTrainingR2D2(RunContract):
    folder = EXAMPLES / "own_robot"
    overrides = ("env.id=r2d2_robot/DriveToMark-v0", "packages=[r2d2_robot]", "env.time_limit=40")
