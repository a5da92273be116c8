"""The watch that guards the other tests sees what it is there to see."""

import pytest
from support.guard import CONTROLS

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def outcome(guarded, tmp_path_factory):
    root = tmp_path_factory.mktemp("controls")
    path = str(root / "victim.pkl")
    (root / "victim.pkl").write_bytes(b"cos\nsystem\n.")
    cases = [{"name": name, "verb": "control", "path": path} for name in CONTROLS]
    return guarded(root, [], cases)


@pytest.mark.parametrize("name", CONTROLS)
def test_the_watch_sees_code_and_writing(outcome, name):
    assert outcome[0][name]["events"] != []


def test_the_snapshot_sees_a_change_on_disk(outcome):
    _, before, after = outcome
    assert before != after
