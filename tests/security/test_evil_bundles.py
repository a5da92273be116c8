"""A bundle from a stranger never runs anything, writes anything, or takes the machine down."""

import datetime
import random

import pytest
from support.evil_files import CONTENTS
from support.evil_folders import FOLDERS
from support.forged import copy_bundle, seal

SEALED = {f"{name}, right hashes": name for name in CONTENTS}
# With a wrong hash no content is looked at, whatever it is: each day, some others are tried.
TODAY = random.Random(datetime.date.today().toordinal())
BROKEN = {f"{name}, wrong hashes": name for name in TODAY.sample(sorted(CONTENTS), 15)}
CASES = [*FOLDERS, *SEALED, *BROKEN]


@pytest.fixture(scope="module")
def outcome(guarded, tmp_path_factory):
    root = tmp_path_factory.mktemp("bundles")
    good = copy_bundle(root / "good")
    evil = []
    for number, name in enumerate(CASES):
        folder = copy_bundle(root / str(number) / "bundle")
        edit = FOLDERS.get(name) or CONTENTS[SEALED.get(name) or BROKEN[name]]
        edit(folder)
        if name in SEALED:
            seal(folder)
        evil.append({"name": name, "verb": "load", "path": str(folder)})
    # A warm start reads the same folders, and of the description nothing but the algorithm's name.
    evil += [{**case, "name": f"begin {case['name']}", "verb": "begin"} for case in evil]
    verbs = {"good": "load", "begin good": "begin"}
    kind = [{"name": name, "verb": verb, "path": str(good)} for name, verb in verbs.items()]
    return guarded(root, kind, evil)


@pytest.mark.parametrize("name", ["good", "begin good"])
def test_a_good_bundle_loads_under_the_same_watch(outcome, name):
    result = outcome[0][name]
    assert (result["code"], result["text"], result["events"]) == (0, "", [])


@pytest.mark.parametrize("name", [*FOLDERS, *SEALED])
def test_an_evil_bundle_is_refused_with_one_clear_line(outcome, assert_refused, name):
    assert_refused(outcome[0][name])


@pytest.mark.parametrize("name", [*FOLDERS, *SEALED])
def test_a_warm_start_from_an_evil_bundle_does_nothing_else_than_refuse_it(
    outcome, assert_refused, name
):
    result = outcome[0][f"begin {name}"]
    if result["code"] != 0 or name in FOLDERS:
        assert_refused(result)
    assert result["events"] == []


def test_content_is_not_looked_at_before_its_hash(outcome, assert_refused):
    for name in BROKEN:
        assert_refused(outcome[0][name])
        assert "was changed or cut short" in outcome[0][name]["text"], name


def test_loading_changes_nothing_on_disk(outcome):
    _, before, after = outcome
    assert before == after
