"""`export --format c` from the command line, of a run with stacked frames."""

import pytest

import rlzoo_plus as rz

pytest.importorskip("onnxscript")

SMALL = (
    *("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "algo.hyperparams.n_steps=64"),
    *("n_timesteps=64", "eval.every_steps=64", "eval.episodes=1", "report.video=false"),
    *("report.plot=false", "log.tensorboard=false", "env.frame_stack=2"),
)


@pytest.mark.training
def test_the_command_writes_a_checked_file(answer, here, monkeypatch):
    rz.train(*SMALL, run_dir="run", quiet=True)
    code, text = answer("export", "run", "--format", "c")
    assert code == 0, text
    assert "wrote run/export/best/policy.c" in text
    written = (here / "run/export/best/policy.c").read_text()
    # The newest of two frames of five numbers.
    assert "observation: float[5]" in written
    if "not checked" not in text:
        assert "checked against the policy: largest difference" in text
        assert "the slowest of 10,000 decisions took" in text
    monkeypatch.setattr("shutil.which", lambda name: None)
    code, text = answer("export", "run", "--format", "c", "--output", "other.c")
    assert (code, "not checked: no C compiler" in text) == (0, True), text
    assert (here / "other.c").read_text() == written
