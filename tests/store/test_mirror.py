"""A run in a store is what the run directory was, and the store can restore it at any moment."""

import json
import logging
import shutil

import pytest
from support.stores import content_of, fail_requests, save_checkpoint

from rlzoo_plus.artifacts.atomic import DamagedFolderError, write_folder
from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.pull import pull_run
from rlzoo_plus.store.zips import zip_files

RUN = "sweep/a"


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    for name in ("config.yaml", "metrics.jsonl", "status.json", "monitor/0.monitor.csv"):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(f"{name}\n")
    (path / ".lock").write_text("")
    write_folder(path / "best", {"policy.json": b"{}"}, {"step": 1000})
    save(path, 1000)
    return path


def save(path, step, rows=64):
    save_checkpoint(path, step, range(step // 10_000, step // 10_000 + rows), step)


class Recording:
    """A store that notes what is put, in order."""

    def __init__(self, store):
        self._store, self.names = store, []

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put(self, name, data, check=None):
        self._store.put(name, data, check)
        self.names.append(name)


def test_a_pulled_run_is_the_pushed_one(store, run, tmp_path):
    sent = RunMirror(store, RUN, run).push()
    assert (sent.objects, sent.step) == (8, 1000)
    assert pull_run(store, RUN, tmp_path / "back") == 1000
    assert content_of(tmp_path / "back") == content_of(run)


def test_a_bundle_that_is_being_replaced_is_not_sent_under_its_old_name(store, run, tmp_path):
    shutil.copytree(run / "best", run / "best.previous")
    RunMirror(store, RUN, run).push()
    assert not [entry.name for entry in store.list("runs/") if "previous" in entry.name]
    pull_run(store, RUN, tmp_path / "back")
    assert (tmp_path / "back" / "best" / "policy.json").is_file()


def test_without_the_state_no_checkpoint_comes(store, run, tmp_path):
    RunMirror(store, RUN, run).push()
    assert pull_run(store, RUN, tmp_path / "back", state=False) is None
    back = content_of(tmp_path / "back")
    assert back == {n: d for n, d in content_of(run).items() if not n.startswith("checkpoints/")}


def test_what_was_sent_is_not_sent_again(store, run):
    RunMirror(store, RUN, run).push()
    recording = Recording(store)
    # Another process, as after a restart.
    mirror = RunMirror(recording, RUN, run)
    assert mirror.push().objects == 0
    (run / "metrics.jsonl").write_text("longer than before\n")
    save(run, 2000)
    assert mirror.push().step == 2000
    # The rows are those of the checkpoint before: its chunk is shared.
    assert recording.names == [
        "runs/sweep/a/metrics.jsonl",
        "state/sweep/a/000000002000.zip",
        "state/sweep/a/checkpoints.json",
    ]


def test_a_changed_best_policy_is_sent_again(store, run, tmp_path):
    RunMirror(store, RUN, run).push()
    write_folder(run / "best", {"policy.json": b'{"a": 1}'}, {"step": 1000})
    recording = Recording(store)
    RunMirror(recording, RUN, run).push()
    assert recording.names == ["runs/sweep/a/best.zip"]


def test_each_object_refers_only_to_what_is_there(store, run):
    recording = Recording(store)
    (run / "result.json").write_text("{}")
    RunMirror(recording, RUN, run).push()
    last = [name.removeprefix("runs/sweep/a/") for name in recording.names[3:]]
    # The policy of the best evaluation that the checkpoint knows of, then the checkpoint.
    assert last[0] == "best.zip"
    assert last[1].startswith("state/sweep/a/chunks/")
    assert last[2:4] == ["state/sweep/a/000000001000.zip", "state/sweep/a/checkpoints.json"]
    assert sorted(last[4:]) == ["result.json", "status.json"]


@pytest.mark.parametrize("stop", range(8))
def test_a_push_that_broke_off_leaves_a_store_that_restores(tmp_path, run, stop):
    """The run before, or the new one: never a checkpoint without its rows or logs."""
    store = open_store(tmp_path / "store")
    RunMirror(store, RUN, run).push()
    for name in ("config.yaml", "metrics.jsonl", "monitor/0.monitor.csv"):
        with (run / name).open("a") as file:
            file.write("more\n")
    save(run, 20_000)
    recording = Recording(store)
    put = recording.put

    def break_off(name, data, check=None):
        if len(recording.names) >= stop:
            raise StoreError("gone")
        put(name, data)

    recording.put = break_off
    if stop < 6:
        with pytest.raises(StoreError, match="gone"):
            RunMirror(recording, RUN, run).push()
    step = pull_run(store, RUN, tmp_path / "back")
    assert step in (1000, 20_000)
    if step == 20_000:
        assert (tmp_path / "back/metrics.jsonl").read_text().endswith("more\n")
    # The next push goes on.
    assert RunMirror(store, RUN, run).push().step == 20_000
    assert pull_run(store, RUN, tmp_path / "again") == 20_000


def test_a_third_of_all_requests_may_fail(s3, run, tmp_path):
    fail_requests(s3, 0.3)
    mirror = RunMirror(s3, RUN, run)
    for _ in range(20):
        try:
            mirror.push()
            break
        except StoreError:
            continue
    for _ in range(20):
        try:
            assert pull_run(s3, RUN, tmp_path / "back") == 1000
            break
        except StoreError:
            assert not (tmp_path / "back").exists()
    assert content_of(tmp_path / "back") == content_of(run)


def test_a_damaged_checkpoint_makes_room_for_the_one_before(store, run, tmp_path, caplog):
    RunMirror(store, RUN, run).push()
    save(run, 20_000)
    RunMirror(store, RUN, run).push()
    data, _ = store.get("state/sweep/a/000000020000.zip", 2**20)
    store.put("state/sweep/a/000000020000.zip", data.replace(b"\x20\x4e", b"\x21\x4e"))
    with caplog.at_level(logging.WARNING):
        assert pull_run(store, RUN, tmp_path / "back") == 1000
    assert "using the checkpoint before it" in caplog.text


@pytest.mark.parametrize(
    "forged",
    [zip_files({name: b"x"}) for name in ("../evil", "a/b", "policy.json")] + [b"PK nothing"],
    ids=["climbs", "below", "no manifest", "no zip"],
)
def test_a_forged_zip_is_refused(store, run, tmp_path, forged):
    # tests/store/test_code_zips.py has other ways to forge one.
    RunMirror(store, RUN, run).push()
    store.put("runs/sweep/a/best.zip", forged)
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(DamagedFolderError) as raised:
        pull_run(store, RUN, tmp_path / "back")
    assert "\n" not in str(raised.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_a_run_that_is_not_there_is_named(store, tmp_path):
    with pytest.raises(StoreError, match="no run 'sweep/b'"):
        pull_run(store, "sweep/b", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_directory_that_exists_stays(store, run):
    RunMirror(store, RUN, run).push()
    with pytest.raises(FileExistsError):
        pull_run(store, RUN, run)


def test_another_run_in_the_directory_is_sent_whole(store, run, tmp_path):
    RunMirror(store, RUN, run).push()
    shutil.rmtree(run / "checkpoints")
    save(run, 500, rows=32)
    RunMirror(store, RUN, run).push()
    # Not the checkpoint of the run before, which has more steps.
    assert pull_run(store, RUN, tmp_path / "back") == 500
    assert content_of(tmp_path / "back") == content_of(run)
    assert json.loads((run / ".store.json").read_text())["to"].endswith("runs/sweep/a")
