"""A dry run as a command: no account, no network, nothing left behind."""

import os
import socket
import sys
from pathlib import Path

import pytest

from rlzoo_plus.cloud import cloud_launcher as launcher
from rlzoo_plus.commands import dispatch
from rlzoo_plus.sweeps.estimate import JobTime

SWEEP = (
    *("env.id=tests/TinyReach-v0", "env.packages=[support.tiny_envs]", "tuned=none", "algo=ppo"),
    *("algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16", "n_timesteps=64"),
    *("seed=range(0,3)", "infra=aws_batch"),
)


@pytest.fixture
def without_account(in_process, monkeypatch):
    """No setting of AWS, no boto3, and no connection to anywhere."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "RLZOO_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(in_process / "none"))
    monkeypatch.setitem(sys.modules, "boto3", None)
    connect = socket.socket.connect

    def only_here(self, address):
        assert self.family == socket.AF_UNIX, f"a connection to {address}"
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", only_here)
    return in_process


def _run(capsys, *words):
    try:
        code = dispatch.run(words[0], list(words[1:]))
    except SystemExit as stop:
        code = stop.code
    told = capsys.readouterr()
    assert "Traceback" not in told.out + told.err
    return code, told.out + told.err


@pytest.mark.training
def test_a_dry_run_tells_the_plan_and_leaves_nothing(without_account, capsys, monkeypatch):
    monkeypatch.setattr(
        launcher, "measure", lambda configs: [JobTime(3600.0, 0.0) for _ in configs]
    )
    code, text = _run(capsys, "train", "-m", *SWEEP, "infra.dry_run=true", "infra.max_usd=2")
    assert code == 0
    assert "runs: 3 on AWS Batch, Spot machines of c7a, 1 vCPU each" in text
    assert "time: 1h00m a run" in text
    assert "cap: $2.00 for machines, $0.67 for each run" in text
    assert "nothing was started, and nobody was asked" in text
    assert list(Path(without_account).iterdir()) == []


@pytest.mark.training
def test_without_an_account_a_sweep_is_refused_with_a_mend(without_account, capsys):
    code, text = _run(capsys, "train", "-m", *SWEEP)
    assert code == 2
    assert "cloud deploy" in text or "pip install 'rlzoo-plus[aws]'" in text
    assert list(Path(without_account).iterdir()) == []


@pytest.mark.training
def test_doctor_warns_of_what_a_spot_machine_is_bad_for(without_account, capsys):
    words = (*SWEEP, "infra.dry_run=true", "checkpoint.every_minutes=null")
    code, text = _run(capsys, "doctor", "--no-probe", *words)
    assert code == 0
    assert "a machine that ends without notice takes the whole run with it" in text
    assert "runs: 3 on AWS Batch" in text
    assert "time: not known, the runs were not measured here" in text
    code, text = _run(capsys, "doctor", "--no-probe", *words, "infra.spot=false")
    assert code == 0
    assert "without notice" not in text


@pytest.mark.training
def test_a_mistake_is_told_before_anything_is_measured(without_account, capsys, monkeypatch):
    monkeypatch.setattr(launcher, "measure", lambda _: pytest.fail("measured"))
    code, text = _run(capsys, "train", "-m", *SWEEP, "infra.dry_run=true", "infra.families=[c7b]")
    assert code == 2
    assert "unknown instance family 'c7b'" in text


@pytest.mark.training
def test_a_dry_run_of_one_run_never_trains_it(without_account, capsys):
    words = [word for word in SWEEP if not word.startswith("seed=")]
    code, text = _run(capsys, "train", *words, "infra.dry_run=true")
    assert code == 2
    assert "Add -m." in text


@pytest.mark.training
@pytest.mark.parametrize(
    "word",
    [
        "infra.secrets={WANDB_API_KEY: /rlzoo/lab/wandb}",
        "infra.secrets={WANDB_API_KEY:/rlzoo/lab/wandb,B: '/rlzoo/lab/deep/b'}",
        "infra.secrets.WANDB_API_KEY=/rlzoo/lab/wandb",
        "+infra.secrets.WANDB_API_KEY=/rlzoo/lab/wandb",
        "infra.secrets={}",
    ],
)
def test_the_name_of_a_parameter_is_no_secret(without_account, capsys, monkeypatch, word):
    monkeypatch.setattr(launcher, "measure", lambda configs: [])
    code, text = _run(capsys, "train", "-m", *SWEEP, "infra.dry_run=true", word)
    assert code == 0, text


@pytest.mark.parametrize(
    "word",
    [
        "infra.secrets={WANDB_API_KEY: Zx81-qwerty}",
        "infra.secrets={WANDB_API_KEY: /rlzoo/lab/wandb, B: Zx81-qwerty}",
        "infra.secrets={WANDB_API_KEY: Zx81-qwerty/rlzoo/lab/wandb}",
        "infra.secrets.WANDB_API_KEY=Zx81-qwerty",
        "infra.secrets.WANDB_API_KEY=/Zx81-qwerty",
        "+infra.secrets.ANYTHING=Zx81-qwerty",
    ],
)
def test_a_secret_itself_is_refused_and_not_repeated(without_account, capsys, word):
    code, text = _run(capsys, "train", "-m", *SWEEP, "infra.dry_run=true", word)
    assert code == 2
    assert "infra.secrets={NAME: /rlzoo/PROJECT/name}" in text
    assert "qwerty" not in text


@pytest.mark.training
def test_a_dry_run_of_a_finished_sweep_asks_nobody(without_account, capsys):
    sweep = [word for word in SWEEP if not word.startswith(("infra", "seed"))] + ["seed=0,1"]
    assert _run(capsys, "train", "-m", *sweep, "infra=debug", "report.video=false")[0] == 0
    words = ("infra=aws_batch", "infra.dry_run=true", "report.video=false")
    code, text = _run(capsys, "train", "-m", *sweep, *words)
    assert code == 0, text
    assert "every run is finished: no machine would start" in text
