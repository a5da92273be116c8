"""Versions are created once, an alias is a series of records, and names lead to copies."""

import shutil
import subprocess
import sys
import threading

import pytest
from support.registered import put

import rlzoo_plus as rz
from rlzoo_plus.analysis.find_run import find_place
from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.models.model_copies import ModelName, alias_moved, resolve
from rlzoo_plus.models.model_store import MovedError


def _other(folder, files, number):
    """Return a copy of a version's files that differs from the others."""
    shutil.copytree(files, folder / str(number))
    (folder / str(number) / "command.txt").write_text(f"version {number}\n")
    return folder / str(number)


def test_versions_are_numbered_and_the_same_files_are_one(registry, files, tmp_path):
    assert put(registry, files) == 1
    assert put(registry, files) == 1
    assert put(registry, _other(tmp_path, files, 2)) == 2
    assert registry.versions("cart") == [1, 2]
    assert registry.names() == ["cart"]
    assert registry.version("cart", 2).who


def test_many_that_register_at_once_each_get_a_number(registry, files, tmp_path):
    folders = [_other(tmp_path, files, k) for k in range(8)]
    numbers = _at_once(8, lambda k: put(registry, folders[k]))
    assert sorted(numbers) == list(range(1, 9))


def test_an_alias_names_what_was_promoted_last(registry, files, tmp_path):
    put(registry, files)
    put(registry, _other(tmp_path, files, 2))
    registry.move("cart", "production", 1, action="promote", why="first")
    found = resolve("cart@production")
    assert (found.version.number, found.alias.number, found.alias.before) == (1, 1, None)
    assert load_bundle(found.path / "best").about["step"] > 0
    assert found.onnx is None
    assert not alias_moved(found)
    registry.move("cart", "production", 2, action="promote", why="better")
    assert alias_moved(found)
    again = resolve("cart@production")
    assert (again.version.number, again.alias.before, again.alias.why) == (2, 1, "better")
    # What was copied before stays: whoever acts with it goes on.
    assert load_bundle(found.path / "best").about["step"] > 0
    assert not alias_moved(resolve("cart@1"))


@pytest.mark.parametrize("count", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_promoters_at_once_give_one_order_and_lose_no_record(registry, files, tmp_path, count):
    put(registry, files)
    put(registry, _other(tmp_path, files, 2))
    made = _at_once(
        count,
        lambda k: registry.move("cart", "production", 1 + k % 2, action="promote", why=f"by {k}"),
    )
    # `history` refuses a gap, and a record that was not written after the one before it.
    history = registry.history("cart", "production")
    assert [record.number for record in history] == list(range(1, count + 1))
    assert sorted(record.why for record in history) == sorted(f"by {k}" for k in range(count))
    assert sorted(record.number for record in made) == list(range(1, count + 1))
    assert [r.before for r in history] == [None, *(r.version for r in history[:-1])]


def test_of_those_that_expect_the_same_one_wins(registry, files):
    put(registry, files)

    def promote(k):
        try:
            return registry.move("cart", "x", 1, action="promote", why=str(k), expected=0)
        except MovedError as error:
            return str(error)

    found = _at_once(8, promote)
    won = [record for record in found if not isinstance(record, str)]
    assert len(won) == 1
    assert registry.history("cart", "x") == won
    assert all("was moved to version 1 by" in lost for lost in found if lost != won[0])


def test_a_name_of_a_model_is_a_run_everywhere(registry, files):
    put(registry, files)
    registry.move("cart", "production", 1, action="promote", why="")
    for name in ("cart@production", "cart@1", f"{registry.url}/models/cart@1"):
        place = find_place(name)
        assert place.is_copy
        assert (place.path / "config.yaml").read_bytes() == (files / "config.yaml").read_bytes()


def test_a_copy_that_was_changed_is_brought_again(registry, files):
    put(registry, files)
    copy = resolve("cart@1").path
    (copy / "config.yaml").write_text("changed: true\n")
    (copy / "best/state.json").unlink()
    assert resolve("cart@1").path == copy
    assert (copy / "config.yaml").read_bytes() == (files / "config.yaml").read_bytes()
    assert load_bundle(copy / "best").about["step"] > 0


def test_a_version_is_started_from_and_not_resumed(registry, files):
    put(registry, files)
    with pytest.raises(ConfigError, match=r"has no checkpoint.*init_from=cart@1"):
        rz.Run.open("cart@1").resume()


def test_a_path_that_exists_is_no_name_of_a_model(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(files, tmp_path / "cart@production")
    assert not find_place("cart@production").is_copy


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kart@1", "there is no model kart in"),
        ("cart@7", "cart in .* has no version 7"),
        ("cart@prodction", "unknown alias of cart 'prodction'.*production"),
    ],
)
def test_a_name_of_nothing_says_what_there_is(registry, files, name, said):
    put(registry, files)
    registry.move("cart", "production", 1, action="promote", why="")
    with pytest.raises(ConfigError, match=said) as raised:
        find_place(name)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".x", "x.", "a b", "x" * 65, "a..b", "ä"])
def test_a_name_that_would_lead_elsewhere_is_refused(registry, files, name):
    with pytest.raises(ConfigError, match="is no name of a model"):
        put(registry, files, name=name)


def test_names_are_read_with_their_store():
    assert ModelName.parse("cart@production") == ModelName(None, "cart", "production")
    assert ModelName.parse("s3://b/lab/models/cart@3") == ModelName("s3://b/lab", "cart", "3")
    assert ModelName.parse("/r/models/cart") == ModelName("/r", "cart", None)
    with pytest.raises(ConfigError, match="is no alias"):
        ModelName.parse("cart@Production")


def test_resolving_imports_no_torch():
    code = "import sys, rlzoo_plus.models.model_copies; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def _at_once(count, act):
    """Return what a function returns for each number, called by as many threads at once."""
    together, found = threading.Barrier(count), [None] * count

    def run(k):
        together.wait()
        found[k] = act(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
