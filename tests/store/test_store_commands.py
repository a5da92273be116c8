"""`push`, `pull` and the verbs that take `s3://...` as a user types them."""

import json
import re
import shutil

import pytest
from support.processes import wait_for
from support.training import make_config

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.runs.run import Run
from rlzoo_plus.store.contract import StoreError


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a finished run of a few steps, and its folder of runs."""
    path = tmp_path_factory.mktemp("trained") / "outputs" / "pendulum" / "ppo" / "first"
    import rlzoo_plus as rz

    overrides = ("algo=ppo", "env=pendulum", "tuned=none", "n_timesteps=64", "n_envs=1")
    overrides += ("algo.hyperparams.n_steps=64", "eval.every_steps=64", "eval.episodes=1")
    overrides += ("report.video=false", "report.plot=false", f"run_dir={path}")
    rz.train(*overrides, quiet=True)
    return path


@pytest.fixture
def url(here, s3):
    return s3.url


@pytest.mark.training
def test_a_run_goes_to_s3_and_comes_back_to_be_resumed(trained, url, tmp_path, say):
    code, out, _ = say("push", trained, url)
    assert code == 0
    run_url = out.splitlines()[-1]
    assert run_url == f"{url}/runs/ppo/first"
    code, out, _ = say("pull", run_url, "--state", "--to", tmp_path / "back")
    assert code == 0
    assert f"rlzoo-plus resume {tmp_path / 'back'}" in out
    old, new = RunDir(trained), RunDir(tmp_path / "back")
    assert new.evaluations_file.read_bytes() == old.evaluations_file.read_bytes()
    assert new.checkpoints().load_newest().step == 64
    longer = Run.open(tmp_path / "back").resume(n_timesteps=128)
    assert longer.result["num_timesteps"] == 128


@pytest.mark.training
def test_runs_of_a_store_are_listed_evaluated_and_exported(trained, url, tmp_path, say):
    say("push", trained, url, "--name", "sweep/a")
    code, out, _ = say("runs", url, "--json")
    (listed,) = json.loads(out)
    assert (code, listed["path"], listed["state"]) == (0, f"{url}/runs/sweep/a", "finished")
    _, out, _ = say("runs", url)
    assert out.splitlines()[1].split()[-1] == f"{url}/runs/sweep/a"
    for words in (["--algo", "sac"], ["--state", "died"]):
        assert f"runs in {url}/runs matches" in say("runs", url, *words)[1]
    assert f"No run in {url}/empty/runs yet" in say("runs", f"{url}/empty")[1]
    code, out, _ = say("evaluate", listed["path"], "--episodes", 2, "--n-envs", 1)
    assert code == 0
    assert "mean return" in out
    code, out, _ = say("export", listed["path"], "--format", "sb3")
    # Not into the cache.
    assert (tmp_path / "export/best/model.zip").is_file()
    assert code == 0


@pytest.mark.training
def test_the_cache_follows_the_store(trained, url, tmp_path, say):
    say("push", trained, url, "--name", "sweep/a")
    first = Run.open(f"{url}/runs/sweep/a").path
    assert Run.open(f"{url}/runs/sweep/a").path == first
    from rlzoo_plus.store.contract import open_store

    status = json.loads((trained / "status.json").read_text())
    changed = json.dumps({**status, "state": "failed"}).encode()
    open_store(url).put("runs/sweep/a/status.json", changed)
    assert RunDir(Run.open(f"{url}/runs/sweep/a").path).read_status()["state"] == "failed"
    _, out, _ = say("runs", url, "--json")
    assert json.loads(out)[0]["state"] == "failed"


@pytest.mark.training
def test_what_was_pushed_says_how_far_it_is(trained, tmp_path, say):
    assert say("push", trained, tmp_path / "store", "--name", "sweep/a")[0] == 0
    record = json.loads((tmp_path / "store/live/sweep/a.json").read_text())
    assert (record["state"], record["steps"], record["env"]) == ("finished", 64, "pendulum")
    assert record["best"]["step"] == 64


@pytest.mark.training
def test_a_push_keeps_its_lease_however_long_it_takes(trained, tmp_path, say, monkeypatch):
    from rlzoo_plus.store.folder import FolderStore
    from rlzoo_plus.store.sync import RunSync

    put, record = FolderStore.put, tmp_path / "store/live/sweep/a.json"

    def put_after_beats(store, name, data, check=None):
        wait_for(lambda: json.loads(record.read_text())["beat"] >= 3)
        put(store, name, data, check)

    monkeypatch.setitem(RunSync.__init__.__kwdefaults__, "beat_s", 0.05)
    monkeypatch.setattr(FolderStore, "put", put_after_beats)
    assert say("push", trained, tmp_path / "store", "--name", "sweep/a")[0] == 0


@pytest.mark.training
def test_a_run_that_a_worker_trains_is_not_pushed_over(trained, url, say):
    from rlzoo_plus.store.contract import open_store
    from rlzoo_plus.store.lease import RunLease

    assert RunLease(open_store(url), "sweep/a", "worker").claim({})
    code, _, err = say("push", trained, url, "--name", "sweep/a")
    assert code == 2
    assert "a worker trains this run now" in err


@pytest.mark.parametrize(
    ("verb", "arguments", "text"),
    [
        ("pull", ["s3://bucket/run"], "names no run"),
        ("pull", ["s3://bucket/runs/../x"], "names no run"),
        ("evaluate", ["s3://bucket/run"], "names no run"),
        ("runs", ["s3://UPPER"], "no URL of S3"),
        ("push", ["gone", "s3://bucket"], "no such directory"),
    ],
)
def test_a_mistake_is_one_line(url, say, verb, arguments, text):
    code, _, err = say(verb, *arguments)
    assert code == 2
    assert err.startswith("error: ")
    assert text in err
    assert err.count("\n") == 1


@pytest.mark.training
def test_every_verb_says_the_address_of_a_store_as_it_was_typed(trained, url, say):
    say("push", trained, url, "--name", "sweep/a")
    run, empty = f"{url}/runs/sweep/a", f"{url}/empty"
    commands = [
        *(("runs", url), ("runs", url, "--algo", "sac"), ("runs", empty)),
        *(("ls", empty), ("plot", empty), ("compare", empty), ("report", empty)),
        *(("checkpoint", run), ("replay", run), ("push", run, url), ("pull", run, "--to", run)),
        *(("worker", empty), ("sweep", "cancel", empty)),
        ("train", "algo=ppo", "env=pendulum", f"init_from={run}"),
        ("plot", url, "--out", f"{url}/a.png"),
    ]
    for words in commands:
        _, out, err = say(*words)
        assert url in out + err, words
        assert "Traceback" not in err, words
        assert not re.search(r"s3:/(?!/)|/cache/", out + err), (words, out + err)


def test_a_run_that_is_not_there_is_one_line(url, say):
    code, _, err = say("evaluate", f"{url}/runs/sweep/a")
    assert code == 1
    assert err == f"error: {url} has no run 'sweep/a'\n"


def test_links_in_a_run_are_not_followed(url, tmp_path, say):
    secret = tmp_path / "secret"
    secret.write_text("mine")
    run = tmp_path / "evil"
    run.mkdir()
    config = make_config("env=pendulum", "algo=ppo", "tuned=none")
    RunDir(run).start(config.model_dump(), "train", {})
    (run / "metrics.jsonl").symlink_to(secret)
    (run / "monitor").symlink_to(tmp_path, target_is_directory=True)
    code, _, _ = say("push", run, tmp_path / "store", "--name", "sweep/a")
    assert code == 0
    sent = sorted(p.name for p in (tmp_path / "store").rglob("*") if p.is_file())
    assert [name for name in sent if not name.startswith(".")] == [
        *("a.json", "command.txt", "config.yaml", "provenance.json")
    ]


@pytest.mark.training
@pytest.mark.parametrize("linked", ["best", "checkpoints", "checkpoints/000000000064"])
def test_a_linked_folder_of_a_run_is_refused(trained, tmp_path, say, linked):
    run = tmp_path / "evil"
    shutil.copytree(trained, run)
    shutil.rmtree(run / linked)
    (run / linked).symlink_to(trained / linked, target_is_directory=True)
    code, _, err = say("push", run, tmp_path / "store", "--name", "sweep/a")
    assert code == 2
    assert "is a link or not a plain file" in err
    zipped = "best.zip" if linked == "best" else "000000000064.zip"
    assert not list((tmp_path / "store").rglob(zipped))


@pytest.mark.training
def test_a_push_that_failed_can_be_repeated_at_once(trained, tmp_path, say, monkeypatch):
    def fail(mirror):
        raise StoreError("gone")

    with monkeypatch.context() as patch:
        patch.setattr("rlzoo_plus.store.mirror.RunMirror.push", fail)
        code, _, err = say("push", trained, tmp_path / "store", "--name", "sweep/a")
    assert (code, err) == (1, "error: gone\n")
    assert say("push", trained, tmp_path / "store", "--name", "sweep/a")[0] == 0


def test_without_boto3_the_extra_is_named(monkeypatch, say):
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    monkeypatch.delitem(__import__("sys").modules, "rlzoo_plus.store.s3", raising=False)
    code, _, err = say("runs", "s3://bucket/lab")
    assert code == 2
    assert "pip install 'rlzoo_plus[aws]'" in err
