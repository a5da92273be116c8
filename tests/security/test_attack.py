"""Each verb that takes a path, with what anybody may have put there: nothing runs, nothing leaves.

`python tests/support/attack.py` prints the table of all pairs.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from attack import attack, table

pytestmark = pytest.mark.training
VERBS = {
    *("evaluate", "enjoy", "record", "export", "verify-resume", "resume", "runs", "plot"),
    *(
        "compare",
        "report",
        "checkpoint",
        "train run_dir=",
        "doctor run_dir=",
        "runs SWEEP",
        "plot SWEEP",
    ),
    *(f"sweep {verb}" for verb in ("status", "resume", "retry-failed", "cancel", "prune")),
    *(f"study {verb}" for verb in ("show", "best", "importance", "plot")),
    *("train study=", "train -m hpo.study=", "doctor hpo.study="),
}


def assert_harmless(results, left):
    assert [r for r in results if r["seen"]] == [], table(results)
    assert left == []
    # A traceback, or a hang, is no answer.
    assert [r for r in results if r["code"] not in (0, 1, 2)] == []
    said = [line for r in results for line in r["text"].splitlines()]
    assert all(line.isprintable() for line in said)
    assert "error: all is well" not in said


def test_two_injections_of_each_verb_do_nothing(tmp_path):
    results, left = attack(tmp_path, each=2)
    assert {result["name"] for result in results} == VERBS
    assert_harmless(results, left)


@pytest.mark.slow
def test_all_injections_of_each_verb_do_nothing(tmp_path):
    results, left = attack(tmp_path)
    assert len(results) > 250
    assert_harmless(results, left)


@pytest.mark.parametrize(
    ("deed", "kind"),
    [
        ("os.system('true')", "execution"),
        ("__import__('evil_package')", "execution"),
        ("__import__('subprocess').run(['true'])", "execution"),
        ("open('elsewhere', 'w')", "write"),
        ("os.mkdir('elsewhere')", "write"),
        ("__import__('shutil').rmtree('given/link/folder')", "write"),
        ("open('given/link/folder/file', 'a')", "write"),
        ("__import__('socket').create_connection(('127.0.0.1', 9), 1)", "connection"),
    ],
)
def test_the_watch_sees_what_it_looks_for(tmp_path, deed, kind):
    import subprocess

    (tmp_path / "given").mkdir()
    (tmp_path / "victim" / "folder").mkdir(parents=True)
    (tmp_path / "given" / "link").symlink_to(tmp_path / "victim")
    (tmp_path / "evil_package.py").touch()
    support = Path(__file__).parents[1] / "support"
    lines = (
        "import os, sys",
        f"sys.path.insert(0, {str(support)!r})",
        "from attack import Watch",
        "watch = Watch([])",
        "sys.addaudithook(watch)",
        "watch.begin('given')",
        "open('given/mine', 'w').close()",
        "assert not watch.seen, watch.seen",
        f"try: {deed}",
        "except OSError: pass",
        "watch.on = False",
        f"assert {kind!r} in [seen for seen, _ in watch.seen], watch.seen",
    )
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
