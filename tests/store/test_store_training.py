"""A training with a store beside it: as a command and from Python, to its end or its death."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import wait_for
from support.stores import use_s3
from support.training import OFF_POLICY, SMALL, TINY, make_config

import rlzoo_plus as rz
from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.plan import plan_run
from rlzoo_plus.runs.printing import plain_console
from rlzoo_plus.runs.run import Run
from rlzoo_plus.runs.store_sync import name_in_store
from rlzoo_plus.runs.train_job import run_plan
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.lease import RunLease, list_leases
from rlzoo_plus.training.callbacks import StopRequest

pytestmark = pytest.mark.training
SHORT = ("algo=ppo", "env=pendulum", *TINY[1:], *SMALL["ppo"])
SHORT += ("report.video=false", "report.plot=false", "eval.every_steps=64", "vec_env=dummy")
ENDLESS = (*SHORT, "n_timesteps=100000000", "checkpoint.every_steps=64")
NAME = "pendulum/ppo/one"


@pytest.fixture
def store(store, tmp_path, monkeypatch):
    """Return an empty store; the working directory is one of its own."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return store


@pytest.fixture
def folder(in_process):
    """Return an empty store in a folder; commands may run in this process, beside it."""
    return open_store(in_process / "store")


def _record(store, name=NAME):
    found = store.get(f"live/{name}.json", 10**6)
    return None if found is None else json.loads(found[0])


def _start(store, *more):
    """Start the command in a process of its own."""
    arguments = [*ENDLESS, f"run_dir=outputs/{NAME}", f"store={store.url}", *more]
    return subprocess.Popen(
        [sys.executable, "-m", "rlzoo_plus", "train", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _senders_of(pid):
    """Return the processes below a process that send to a store."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children]


def test_a_run_is_in_its_store_when_it_ends(store, capsys):
    run = rz.train(*SHORT, f"run_dir=outputs/{NAME}", store=store.url)
    assert f"stored            {store.url}/runs/{NAME}" in capsys.readouterr().out
    record = _record(store)
    assert (record["state"], record["steps"], record["algo"]) == ("finished", 64, "ppo")
    assert record["best"]["mean_return"] == run.result["best"]["mean_return"]
    assert record["reason"] == "all steps taken"
    stored = {entry.name.removeprefix(f"runs/{NAME}/") for entry in store.list(f"runs/{NAME}/")}
    assert {"config.yaml", "evaluations.jsonl", "best.zip", "final.zip", "result.json"} <= stored
    assert "store" in (run.path / "config.yaml").read_text()
    for which in ("best", "final"):
        for file in (run.path / which).iterdir():
            assert store.url.encode() not in file.read_bytes(), "a bundle names no store"


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_run_goes_on_from_its_url(store, tmp_path, monkeypatch):
    rz.train(*SHORT, f"run_dir=outputs/{NAME}", store=store.url, quiet=True)
    url = f"{store.url}/runs/{NAME}"
    with pytest.raises(ConfigError, match=f"resume outputs/{NAME} store={store.url}"):
        Run.open(url).resume(quiet=True, n_timesteps=128)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    # Its own store was typed, as part of the URL; what it says itself is not used.
    run = Run.open(url).resume(quiet=True, n_timesteps=128)
    assert str(run.path) == f"outputs/{NAME}"
    assert run.config.store == store.url
    assert run.result["num_timesteps"] == 128
    assert _record(store)["steps"] == 128
    assert [record["step"] for record in read_records(run.run_dir.evaluations_file)] == [64, 128]


@pytest.mark.parametrize("algo", ["ppo", "sac"])
@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_an_interrupted_run_goes_on_elsewhere_bit_for_bit(algo, store):
    small = SMALL["ppo"] if algo == "ppo" else OFF_POLICY
    job = [f"algo={algo}", *SHORT[1 : len(TINY)], *small, "report.video=false", "report.plot=false"]
    job += ["eval.every_steps=32", "vec_env=dummy", "n_timesteps=128"]
    whole = rz.train(*job, "run_dir=whole/ppo/one", quiet=True)
    plan = plan_run(make_config(*job, "run_dir=here/ppo/one", f"store={store.url}"))
    stop = StopRequest(reason="enough")
    _, result, code = run_plan(plan, None, plain_console(), "train", stop=stop)
    assert (result.state, code) == ("interrupted", 74)
    assert _record(store, "ppo/one")["state"] == "released"
    run = Run.open(f"{store.url}/runs/ppo/one").resume(quiet=True)
    assert str(run.path) == "outputs/ppo/one"
    assert run_digests(run.run_dir) == run_digests(whole.run_dir)


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_run_that_a_worker_has_is_not_brought_here(store):
    rz.train(*SHORT, "run_dir=elsewhere/ppo/one", store=store.url, quiet=True)
    lease = RunLease(store, "ppo/one", "worker-7")
    assert lease.claim(list_leases(store, "ppo"), take_ended=True)
    with pytest.raises(ConfigError, match="worker-7 trains this run now"):
        Run.open(f"{store.url}/runs/ppo/one").resume(quiet=True, n_timesteps=128)
    assert not Path("outputs").exists()


def test_sigterm_to_the_command_sends_the_last_checkpoint(store):
    process = _start(store)
    wait_for(lambda: _record(store))
    wait_for(lambda: RunDir(Path("outputs") / NAME).checkpoints().steps())
    process.terminate()
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 75, out
    assert f"stored            {store.url}/runs/{NAME}" in out
    assert "--trust" in out
    record, steps = _record(store), RunDir(Path("outputs") / NAME).checkpoints().steps()
    assert (record["state"], record["reason"]) == ("released", "stopped by SIGTERM")
    assert store.get(f"state/{NAME}/{steps[-1]:012d}.zip", 10**8) is not None


def test_the_process_beside_ends_when_the_training_is_killed(folder):
    process = _start(folder)
    wait_for(lambda: _record(folder))
    wait_for(lambda: RunDir(Path("outputs") / NAME).checkpoints().steps())
    (sender,) = _senders_of(process.pid)
    process.kill()
    process.communicate()
    wait_for(lambda: not Path(f"/proc/{sender}").exists())
    assert _record(folder)["state"] == "released"
    assert folder.get(f"state/{NAME}/checkpoints.json", 10**6) is not None


def test_ctrl_c_is_for_the_training_alone(folder):
    process = _start(folder)
    wait_for(lambda: _record(folder))
    wait_for(lambda: RunDir(Path("outputs") / NAME).checkpoints().steps())
    (sender,) = _senders_of(process.pid)
    assert os.getsid(sender) != os.getsid(process.pid)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(sender, number)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "stored   " in out


def test_ctrl_c_ends_the_wait_for_a_store_that_is_gone(in_process, monkeypatch):
    pytest.importorskip("boto3", reason="needs the extra aws")
    use_s3(monkeypatch, "http://127.0.0.1:9")
    arguments = [*SHORT, f"run_dir=outputs/{NAME}", "store=s3://bucket/lab"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rlzoo_plus", "train", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    sender = 0
    try:
        for line in process.stdout:
            if line.startswith("run directory"):
                (sender,) = wait_for(lambda: _senders_of(process.pid))
            if line.startswith("sending the rest to s3://bucket/lab"):
                break
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        # It still tries, for a minute.
        assert Path(f"/proc/{sender}").exists()
    finally:
        process.kill()
        if sender:
            os.kill(sender, signal.SIGKILL)
    assert "the rest is still being sent to s3://bucket/lab" in out
    assert RunDir(Path("outputs") / NAME).read_status()["state"] == "finished"


def test_another_worker_with_the_run_ends_the_training_with_a_checkpoint(folder):
    assert RunLease(folder, NAME, "worker-7").claim({})
    process = _start(folder)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 73
    assert f"worker-7 has the run {NAME}" in out
    run = RunDir(Path("outputs") / NAME)
    assert run.read_status()["state"] == "interrupted"
    assert run.checkpoints().steps()
    assert not list(folder.list("runs/"))
    assert "rlzoo-plus push" not in out


def test_an_ended_run_of_the_same_name_is_not_overwritten(folder):
    rz.train(*SHORT, f"run_dir=outputs/{NAME}", store=folder.url, quiet=True)
    before = _record(folder)
    os.rename("outputs", "elsewhere")
    process = _start(folder)
    out, _ = process.communicate(timeout=120)
    assert "which is finished; choose another run_dir" in out
    assert _record(folder) == before


def test_a_run_that_went_further_elsewhere_is_not_set_back(folder, tmp_path, capsys):
    run = rz.train(*SHORT, f"run_dir=outputs/{NAME}", store=folder.url, quiet=True)
    head = folder.get(f"state/{NAME}/checkpoints.json", 10**6)[0]
    (listed,) = json.loads(head)["checkpoints"].values()
    further = {"checkpoints": {f"{128:012d}": listed}}
    folder.put(f"state/{NAME}/checkpoints.json", json.dumps(further).encode())
    longer = "n_timesteps=100000000"
    code = run_verb("resume", [str(run.path), longer, "--trust"])
    assert code == 73
    assert "up to step 128, and here is step 64" in capsys.readouterr().out
    assert json.loads(folder.get(f"state/{NAME}/checkpoints.json", 10**6)[0]) == further


@pytest.mark.parametrize(
    ("store", "text"),
    [
        ("s3://UPPER/x", "is no URL of S3"),
        ("https://bucket.example/x", "is neither s3://"),
        ("taken", "store=taken cannot be used: there is a file"),
        ("taken/below", "store=taken/below cannot be used: there is a file"),
        ("~/store", "~ is not expanded"),
    ],
)
def test_a_wrong_store_is_refused_before_anything_is_made(store, text, folder):
    Path("taken").touch()
    with pytest.raises(ConfigError, match="store") as caught:
        rz.train(*SHORT, store=store, quiet=True)
    assert text in str(caught.value)
    assert not Path("outputs").exists()


def test_s3_without_credentials_is_refused_before_anything_is_made(folder, monkeypatch):
    pytest.importorskip("boto3", reason="needs the extra aws")
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
    monkeypatch.setenv("AWS_CONFIG_FILE", "none")
    with pytest.raises(ConfigError, match="there are no credentials"):
        rz.train(*SHORT, store="s3://bucket/lab", quiet=True)
    assert not Path("outputs").exists()


def test_the_jobs_of_a_sweep_are_below_its_name(folder, capsys):
    arguments = ["-m", *SHORT, "seed=0,1", "sweep=two", f"store={folder.url}"]
    assert run_verb("train", arguments) == 0
    assert "not all in" not in capsys.readouterr().out
    names = {entry.name for entry in folder.list("live/two/")}
    assert sorted(name[-8:] for name in names) == ["-s0.json", "-s1.json"]
    assert all(name.startswith("live/two/pendulum/ppo/") for name in names)


@pytest.mark.slow
def test_a_sweep_says_which_runs_are_not_in_its_store(folder, capsys):
    # Another machine trains one of them.
    jobs = ["-m", *SHORT, "seed=0,1", "sweep=two"]
    assert run_verb("train", jobs) == 0
    (key,) = (path.parent for path in Path("outputs/sweeps/two").rglob("*-s1/config.yaml"))
    name = key.relative_to("outputs/sweeps").as_posix()
    assert RunLease(folder, name, "worker-7").claim({})
    for run in Path("outputs/sweeps/two/pendulum/ppo").iterdir():
        shutil.rmtree(run)
    capsys.readouterr()
    run_verb("train", [*jobs, f"store={folder.url}"])
    out = capsys.readouterr().out
    assert f"1 of these runs are not all in {folder.url}" in out
    assert f"rlzoo-plus push {key} {folder.url}" in out


def test_the_store_of_somebody_elses_run_needs_trust(folder):
    run = rz.train(*SHORT, f"run_dir=outputs/{NAME}", store=folder.url, quiet=True)
    with pytest.raises(ConfigError, match=f"store {folder.url}.*--trust"):
        Run.open(run.path).resume(quiet=True, n_timesteps=128)
    # Reading and playing send nothing.
    assert Run.open(run.path).evaluate(1, n_envs=1)["episodes"] == 1
    plan = Run.open(run.path).plan_to_resume(["n_timesteps=128", "store=null"])
    assert plan.config.store is None
    plan = Run.open(run.path).plan_to_resume(["n_timesteps=128", "store=mine"])
    assert plan.config.store == "mine"
    # With it, an extension is sent to the same place.
    Run.open(run.path, trust=True).resume(quiet=True, n_timesteps=128)
    assert (_record(folder)["state"], _record(folder)["steps"]) == ("finished", 128)


@pytest.mark.parametrize(
    ("path", "sweep", "name"),
    [
        ("outputs/cartpole/ppo/x", None, "cartpole/ppo/x"),
        ("outputs/sweeps/a/cartpole/ppo/x", None, "a/cartpole/ppo/x"),
        ("outputs/sweeps/a/cartpole/ppo/x", "outputs/sweeps/a", "a/cartpole/ppo/x"),
        ("lab/a/cartpole/ppo/x", "lab/a", "a/cartpole/ppo/x"),
        ("moved/ppo/x", "lab/a", "ppo/x"),
        ("lab/study/trials/0003/s0", None, "study/trials/0003/s0"),
        ("somewhere/x", None, "somewhere/x"),
    ],
)
def test_the_name_of_a_run_in_a_store(path, sweep, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert name_in_store(Path(path), sweep) == name
