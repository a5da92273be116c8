"""A registry that somebody else wrote, or that a killed process left: one line, and no harm."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.registered import ABOUT, put
from support.stores import ignore_conditions

from rlzoo_plus.commands import dispatch
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.models.model_copies import resolve
from rlzoo_plus.models.model_history import problems_of
from rlzoo_plus.models.model_records import MOST_NUMBER, content_of, largest_of
from rlzoo_plus.models.model_store import DamagedModelError, ModelStore
from rlzoo_plus.store.contract import StoreError, open_store

MISTAKES = (ConfigError, RunError)


@pytest.fixture
def model(tmp_path, monkeypatch, cache, files):
    """Return the folder of a model with one version in production, in the usual registry."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RLZOO_MODELS", raising=False)
    store = ModelStore()
    put(store, files)
    store.move("cart", "production", 1, action="promote", why="")
    return Path("registry/models/cart")


def refusal(act):
    with pytest.raises(MISTAKES) as raised:
        act()
    text = str(raised.value)
    assert text.isprintable()
    assert len(text) < 700
    return text


def change(file, **entries):
    record = json.loads(file.read_text())
    record.update(entries)
    file.write_text(json.dumps(record))
    return record


@pytest.mark.parametrize(
    "name",
    ["../../../../escaped", "/tmp/escaped", "best/../../escaped", "a\0b", "best/x.py", "model.pkl"],
)
def test_a_version_lists_no_file_but_its_own_kinds(model, name, tmp_path):
    file = model / "versions/000001.json"
    files = json.loads(file.read_text())["files"]
    files[name] = files["config.yaml"]
    change(file, files=files)
    assert "which is no file of a version" in refusal(lambda: resolve("cart@1"))
    assert not list(tmp_path.rglob("*escaped*"))
    assert largest_of(name) is None


def test_a_changed_list_of_files_is_seen(model):
    file = model / "versions/000001.json"
    files = json.loads(file.read_text())["files"]
    files["config.yaml"]["sha256"] = "0" * 64
    change(file, files=files)
    assert "its list of files was changed" in refusal(lambda: resolve("cart@1"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "nonsense",
        '{"format": 1, "format": 1}',
        "[" * 5000,
        '{"format": NaN}',
        "\x1b[31m",
        "x" * (2**20 + 1),
    ],
)
@pytest.mark.parametrize("file", ["versions/000001.json", "aliases/production/000001.json"])
def test_a_damaged_record_names_its_file(model, file, text):
    (model / file).write_text(text)
    assert Path(file).name in refusal(lambda: resolve("cart@production"))
    assert dispatch.run("model", ["verify", "cart"]) in (1, 2)
    assert dispatch.run("model", ["list"]) in (1, 2)


@pytest.mark.parametrize(
    ("file", "entries"),
    [
        ("versions/000001.json", {"number": 2}),
        ("versions/000001.json", {"number": True}),
        ("versions/000001.json", {"format": 2}),
        ("versions/000001.json", {"step": -1}),
        ("versions/000001.json", {"content": "../../x"}),
        ("versions/000001.json", {"files": {"config.yaml": {"size": -1, "sha256": "0" * 64}}}),
        ("versions/000001.json", {"files": {}}),
        ("aliases/production/000001.json", {"to": 0}),
        ("aliases/production/000001.json", {"to": "1"}),
        ("aliases/production/000001.json", {"to": 77}),
        ("aliases/production/000001.json", {"alias": "staging"}),
        ("aliases/production/000001.json", {"action": "delete"}),
    ],
)
def test_a_record_with_wrong_entries_is_refused(model, file, entries):
    change(model / file, **entries)
    refusal(lambda: resolve("cart@production"))
    assert problems_of(ModelStore(), "cart", [1])


@pytest.mark.parametrize("what", ["file", "folder", "record"])
def test_links_lead_nowhere(model, what, tmp_path):
    content = next((model / "content").iterdir())
    outside = tmp_path / "outside"
    place = {"file": content / "config.yaml", "folder": content / "best"}.get(
        what, model / "aliases/production/000001.json"
    )
    shutil.move(place, outside)
    place.symlink_to(outside, target_is_directory=outside.is_dir())
    refusal(lambda: resolve("cart@production"))


def test_what_others_wrote_cannot_control_a_terminal(model, capsys):
    store = ModelStore()
    store.move("cart", "production", 1, action="promote", why="\x1b[2Jgone\nnew line")
    assert dispatch.run("model", ["show", "cart"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b[2Jgone\\nnew line" in out


def test_a_record_that_is_taken_out_of_the_middle_is_missed(model):
    store = ModelStore()
    for why in "ab":
        store.move("cart", "production", 1, action="promote", why=why)
    second = model / "aliases/production/000002.json"
    before = second.read_text()
    change(second, why="another reason")
    assert "000003.json: the record before it" in refusal(
        lambda: store.history("cart", "production")
    )
    second.unlink()
    assert "000002.json is missing" in refusal(lambda: store.history("cart", "production"))
    second.write_text(before)
    assert len(store.history("cart", "production")) == 3


def test_nothing_that_is_named_is_replaced(registry, files, tmp_path):
    """On a folder and in S3: writing again what is there fails, whoever tries."""
    put(registry, files)
    registry.move("cart", "production", 1, action="promote", why="")
    record = registry.version("cart", 1)
    names = ["versions/000001.json", "aliases/production/000001.json"]
    names += [f"content/{record.content}/{file}" for file in record.files]
    for name in names:
        assert registry.store.put_if_absent(f"models/cart/{name}", b"other") is None
    with pytest.raises(ConfigError, match="is what cart@production names"):
        registry.retire("cart", 1, "")
    assert problems_of(registry, "cart", [1]) == []
    # Another file in the place of a version that is about to be registered is not taken over.
    other = tmp_path / "other"
    shutil.copytree(files, other)
    (other / "command.txt").write_text("new\n")
    wanted = [p.relative_to(other).as_posix() for p in other.rglob("*") if p.is_file()]
    entries = {}
    for name in filter(largest_of, wanted):
        data = (other / name).read_bytes()
        entries[name] = type(record.files["config.yaml"])(
            size=len(data), sha256=hashlib.sha256(data).hexdigest()
        )
    registry.store.put(f"models/cart/content/{content_of(entries)}/config.yaml", b"forged")
    with pytest.raises(DamagedModelError, match=r"config\.yaml has other bytes"):
        put(registry, other)
    assert registry.versions("cart") == [1]


class Broken:
    """A store whose process ends after so many writes."""

    def __init__(self, store, writes):
        self._store, self.left = store, writes
        self.url = store.url

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put_if_absent(self, name, data):
        self.left -= 1
        if self.left < 0:
            raise StoreError("the process was killed here")
        return self._store.put_if_absent(name, data)


def test_a_half_registered_version_never_counts(tmp_path, files, cache):
    count = sum(largest_of(p.relative_to(files).as_posix()) is not None for p in files.rglob("*.*"))
    for writes in range(count + 1):
        store = open_store(tmp_path / str(writes))
        with pytest.raises(StoreError, match="killed here"):
            put(ModelStore(store=Broken(store, writes)), files)
        whole = ModelStore(store=store)
        assert whole.names() == whole.versions("cart") == []
        assert put(whole, files) == 1
        assert problems_of(whole, "cart", [1]) == []


def test_a_killed_register_leaves_no_version(tmp_path, files, cache):
    """The real thing: kill -9 at any moment."""
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "from pathlib import Path; from support.registered import put\n"
        "from rlzoo_plus.models.model_store import ModelStore\n"
        f"store = ModelStore({str(tmp_path / 'r')!r}); print('ready', flush=True)\n"
        f"put(store, Path({str(files)!r}))\n"
    )
    for k in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        process.stdout.readline()
        try:
            process.wait(0.002 * 3**k)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, 9)
        process.wait()
        process.stdout.close()
        store = ModelStore(str(tmp_path / "r"))
        assert problems_of(store, "cart", store.versions("cart")) == []
    assert put(ModelStore(str(tmp_path / "r")), files) == 1


def test_a_registry_that_is_full_says_so(model):
    newest = model / f"aliases/production/{MOST_NUMBER:06d}.json"
    record = json.loads((model / "aliases/production/000001.json").read_text())
    newest.write_text(json.dumps({**record, "number": MOST_NUMBER}))
    assert "no more are kept" in refusal(
        lambda: ModelStore().move("cart", "production", 1, action="promote", why="")
    )


def test_a_server_that_ignores_conditions_is_refused(s3, files):
    ignore_conditions(s3)
    with pytest.raises(StoreError, match="replaces objects that are to be created once"):
        put(ModelStore(store=s3), files)


def test_names_of_records_that_are_none_are_passed_over(model):
    for name in ("1.json", "000000.json", "abc.json", "000002.json.tmp", "000002"):
        (model / "versions" / name).write_text("{}")
    assert ModelStore().versions("cart") == [1]
    assert ABOUT["algo"] == ModelStore().version("cart", 1).algo
