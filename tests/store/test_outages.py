"""A training whose S3 is gone, or breaks connections: it ends, and says what is missing."""

import os
from pathlib import Path

import pytest
from support.proxies import FlakyProxy
from support.stores import s3_server
from support.training import SMALL, TINY

import rlzoo_plus as rz
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.runs.store_sync import StoreSync
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.pull import pull_run

pytestmark = pytest.mark.training
SHORT = ("algo=ppo", "env=pendulum", *TINY[1:-1], *SMALL["ppo"], "n_timesteps=512")
SHORT += ("report.video=false", "report.plot=false", "eval.every_steps=128", "vec_env=dummy")
SHORT += ("checkpoint.every_steps=128",)
NAME = "pendulum/ppo/one"
PATH = Path("outputs") / NAME
OFTEN = {"beat_s": 0.1, "push_s": 0.2, "stall_s": 4.0}


class Lab:
    """A store behind a proxy: how trainings reach it, and how it really is."""

    def __init__(self, url, proxy, direct):
        self.url, self.proxy, self.direct = url, proxy, direct

    def names(self):
        return [entry.name for entry in self.direct.list("runs/")]

    def check_is_whole(self, tmp_path):
        """Check that the run here and in the store are the same, and that it can be resumed."""
        steps = RunDir(PATH).checkpoints().steps()
        brought = tmp_path / "brought"
        assert pull_run(self.direct, NAME, brought) == steps[-1]
        for file in ("config.yaml", "metrics.jsonl", "evaluations.jsonl", "status.json"):
            assert (brought / file).read_bytes() == (PATH / file).read_bytes()
        for folder in ("best", "final", f"checkpoints/{steps[-1]:012d}"):
            for file in (PATH / folder).iterdir():
                assert (brought / folder / file.name).read_bytes() == file.read_bytes()


@pytest.fixture
def lab(in_process, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(in_process / "cache"))
    monkeypatch.setattr(StoreSync, "intervals", OFTEN)
    with s3_server(monkeypatch) as url:
        direct = open_store(url)
        proxy = FlakyProxy(int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        yield Lab(url, proxy, direct)
        proxy.close()


def _train(lab, capsys):
    run = rz.train(*SHORT, f"run_dir={PATH}", store=lab.url)
    assert (run.status, run.result["num_timesteps"], run.result["exact"]) == ("finished", 512, True)
    return capsys.readouterr().out


def _push_later(lab, capsys, out, tmp_path):
    """Run the command that was printed; the store is complete then."""
    command = f"rlzoo-plus push {PATH} {lab.url}"
    assert out.rstrip().endswith(f"Send it later: {command}")
    assert run_verb("push", command.split()[2:]) == 0
    assert capsys.readouterr().out.endswith(f"{lab.url}/runs/{NAME}\n")
    lab.check_is_whole(tmp_path)


def test_a_store_that_is_gone_all_the_time_is_said_and_filled_later(lab, capsys, tmp_path):
    lab.proxy.leave()
    out = _train(lab, capsys)
    assert f"not all of the run is in {lab.url}/runs/{NAME}" in out
    assert out.count("training goes on, and this is tried again") == 1
    assert lab.names() == []
    lab.proxy.come_back()
    _push_later(lab, capsys, out, tmp_path)


def test_no_upload_that_broke_half_way_is_in_the_store(lab, capsys, tmp_path):
    # Beats are smaller: the lease is held all the time.
    lab.proxy.breaks_from = 1500
    out = _train(lab, capsys)
    assert "not all of the run is in" in out
    sent = [entry for entry in lab.direct.list("runs/") if entry.name.startswith(f"runs/{NAME}")]
    assert sent
    for entry in sent:
        # Of what was sent, each byte is there; larger objects are not there at all.
        data, _ = lab.direct.get(entry.name, 10**8)
        assert len(data) < 1500
        local = PATH / entry.name.removeprefix(f"runs/{NAME}/")
        assert local.read_bytes().startswith(data)
    assert list(lab.direct.list("state/")) == []
    lab.proxy.breaks_from = None
    _push_later(lab, capsys, out, tmp_path)
