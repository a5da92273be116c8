"""Videos on machines that cannot draw."""

import pytest
from support.training import tiny_config, train_run

from robots.engines.mujoco import pictures
from robots.simulation import RendererError


@pytest.mark.training
def test_a_machine_without_a_driver_says_so_in_a_line(tmp_path, answer, monkeypatch):
    config = tiny_config(
        "ppo", "robots/CartPoleBalance-v0", "env.packages=[robots]", "+env.kwargs.engine=mujoco"
    )
    run_dir, _ = train_run(tmp_path / "run", config)

    def cannot_draw(*args, **kwargs):
        raise RendererError("MuJoCo cannot draw here. Install libegl1.")

    monkeypatch.setattr(pictures.Pictures, "take", cannot_draw)
    code, text = answer("record", str(run_dir.path), "--seconds", "0.1")
    assert code == 2
    assert text.splitlines()[-1] == "error: MuJoCo cannot draw here. Install libegl1."
