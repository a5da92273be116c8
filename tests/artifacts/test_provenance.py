"""Where a run came from."""

import json
import shlex
import subprocess

import pytest

from rlzoo_plus.artifacts.provenance import (
    PACKAGES,
    collect_provenance,
    command_line,
    git_state,
    machine_fingerprint,
)


@pytest.fixture
def git(tmp_path, monkeypatch):
    """Return a function that runs git in a fresh repository with one commit."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        command = ["git", "-C", str(tmp_path), *identity, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    run("init", "-q")
    (tmp_path / "code.py").write_text("x = 1\n")
    run("add", ".")
    run("commit", "-q", "-m", "first")
    return run


def test_a_clean_checkout_gives_its_commit(git, tmp_path):
    state = git_state(tmp_path)
    assert state == {"commit": git("rev-parse", "HEAD"), "dirty": False, "diff": "", "cut": False}


@pytest.mark.parametrize("staged", [False, True])
def test_a_changed_checkout_gives_the_difference(git, tmp_path, staged):
    (tmp_path / "code.py").write_text("x = 2\n")
    if staged:
        git("add", ".")
    state = git_state(tmp_path / "code.py")
    assert state["dirty"]
    assert "-x = 1\n+x = 2" in state["diff"]
    assert not state["cut"]


def test_a_package_that_its_repository_ignores_is_no_part_of_it(git, tmp_path):
    (tmp_path / ".gitignore").write_text(".venv\n")
    package = tmp_path / ".venv" / "package.py"
    package.parent.mkdir()
    package.write_text("")
    assert git_state(package) == {}
    assert git_state(tmp_path / "code.py") != {}


def test_the_repositories_of_the_user_are_recorded_beside_that_of_this_package(
    git, tmp_path, monkeypatch
):
    work = tmp_path / "apart"
    for name in ("here", "lib"):
        subprocess.run(["git", "init", "-q", str(work / name)], check=True)
        (work / name / "mine.py").write_text("x = 1\n")
        commit = ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "first"]
        subprocess.run(["git", "-C", str(work / name), "add", "."], check=True)
        subprocess.run(["git", "-C", str(work / name), *commit], check=True)
    (work / "lib" / "mine.py").write_text("x = 2\n")
    monkeypatch.chdir(work / "here")
    ours = tmp_path / "code.py"
    found = collect_provenance(ours, [work / "lib" / "mine.py", ours, work / "here" / "mine.py"])
    assert found["git"]["commit"] == git("rev-parse", "HEAD")
    here, lib = found["user_git"]
    assert here["root"] == str(work / "here")
    assert not here["dirty"]
    assert lib["root"] == str(work / "lib")
    assert "+x = 2" in lib["diff"]


def test_a_long_difference_is_cut_and_says_so(git, tmp_path):
    (tmp_path / "code.py").write_text("y = 1\n" * 100_000)
    state = git_state(tmp_path)
    assert state["cut"]
    assert len(state["diff"]) == 200_000


def test_a_change_in_another_encoding_does_not_stop_the_run(git, tmp_path):
    (tmp_path / "code.py").write_bytes("# café\n".encode("latin-1"))
    assert git_state(tmp_path)["dirty"]


@pytest.mark.parametrize("lacks", ["a checkout", "commits", "git"])
def test_without_a_commit_there_is_no_state(tmp_path, monkeypatch, lacks):
    if lacks == "commits":
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    name, value = (
        ("PATH", tmp_path) if lacks == "git" else ("GIT_CEILING_DIRECTORIES", tmp_path.parent)
    )
    monkeypatch.setenv(name, str(value))
    assert git_state(tmp_path) == {}


def test_the_whole_of_it_is_json_with_the_versions_that_matter(tmp_path):
    provenance = collect_provenance(tmp_path)
    assert json.loads(json.dumps(provenance)) == provenance
    assert set(provenance["packages"]) == set(PACKAGES)
    assert provenance["packages"]["numpy"]
    assert provenance["machine"] == machine_fingerprint()


def test_a_command_line_can_be_pasted():
    words = ["train.py", "env.id=Pendulum-v1", "network.net_arch={actor: [8], critic: [8]}"]
    assert shlex.split(command_line(words)) == words


@pytest.mark.parametrize(
    "word",
    [
        "tracker.kwargs.api_key=s3cr3t",
        "++tracker.kwargs.api_key=s3cr3t",
        "token=s3cr3t",
        "env.kwargs.password=s3cr3t",
        "a.SECRET=s3cr3t",
        "hydra.job.env_set.WANDB_API_KEY=s3cr3t",
        "aws_secret_access_key=s3cr3t",
        "env.kwargs.apikey=s3cr3t",
        "env.kwargs.apiKey=s3cr3t",
        "--api-key=s3cr3t",
        "env.kwargs={api_key: s3cr3t}",
        "env.kwargs={a: {token: s3cr3t}}",
    ],
)
def test_a_secret_on_the_command_line_is_blanked(word):
    assert "s3cr3t" not in command_line(["train.py", word])
    assert command_line(["train.py", word]).startswith("train.py")


@pytest.mark.parametrize(
    "word", ["algo.hyperparams.gamma=0.9", "env.kwargs.keyboard=1", "env.id=MonkeyKey-v0", "-m"]
)
def test_other_words_stay(word):
    assert command_line([word]) == shlex.quote(word)
