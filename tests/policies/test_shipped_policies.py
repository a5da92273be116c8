"""The policies in trained/: they verify, are small, are found by name, and stay as they are."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import rlzoo_plus as rz
from rlzoo_plus.analysis.find_run import find_place
from rlzoo_plus.analysis.shipped_runs import shipped_names, trained_dir
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.shipped_table import markdown, shipped_policies
from rlzoo_plus.policies.verification import verify

ROOT = Path(__file__).resolve().parents[2]
NAMES = shipped_names()
# Plays the fastest.
SMALL = "cartpole_bullet_mujoco"
LARGEST_BYTES = 10_000_000
FILES = {
    *("config.yaml", "command.txt", "provenance.json", "status.json", "result.json"),
    *("evaluations.jsonl", "other_engine.json", "episodes/evaluation.json", "videos/best.mp4"),
    *("plots/learning_curve.png", "best/MANIFEST.json", "best/policy.json", "best/state.json"),
    "best/tensors.safetensors",
}
PATH = re.compile(rb"(?<![\w.])/(?:home|root|work|tmp|Users|mnt|var|opt|srv|private)/")


def hash_of_all():
    """Return a hash of every file in trained/, and of its name."""
    files = sorted(path for path in trained_dir().rglob("*") if path.is_file())
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.relative_to(trained_dir())}\0".encode() + file.read_bytes())
    return found.hexdigest()


@pytest.fixture
def unchanged(in_process):
    before = hash_of_all()
    yield
    assert hash_of_all() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_policy_does_what_was_recorded(name, unchanged):
    found = verify(rz.Run.open(f"trained/{name}"), first=10)
    assert found.holds, found.text


@pytest.mark.training
def test_the_cart_pole_is_verified_by_its_name_anywhere(unchanged, answer):
    code, text = answer("verify", f"trained/{SMALL}", "--first", "10")
    assert code == 0, text
    assert text.startswith("verified: best of ")
    assert rz.load_policy(f"trained/{SMALL}").step > 0


def test_all_of_them_are_small_whole_and_without_pickle():
    assert SMALL in NAMES
    files = [path for path in trained_dir().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LARGEST_BYTES
    for name in NAMES:
        folder = trained_dir() / name
        found = {f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file()}
        assert found == FILES, name
        assert (folder / "videos" / "best.mp4").stat().st_size <= 150_000, name


def test_nothing_in_them_names_the_machine_or_the_user():
    for file in trained_dir().rglob("*"):
        if file.is_file():
            found = PATH.search(file.read_bytes())
            assert found is None, (file, found)
    for name in NAMES:
        known = RunDir(trained_dir() / name).read_provenance()
        assert known["machine"].keys() <= {"system", "architecture", "processor", "cores"}
        assert known["git"]["dirty"] is False
        assert "working_directory" not in known
        config = RunDir(trained_dir() / name).read_config()
        assert {config.get(key) for key in ("run_dir", "sweep", "store", "init_from")} == {None}


def test_the_wheel_has_them_beside_conf():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included["trained"] == "rlzoo_plus/trained"
    assert trained_dir() == ROOT / "trained"


@pytest.mark.slow
def test_an_installed_wheel_knows_them_in_an_empty_folder(tmp_path):
    words = ["-m", "pip", "wheel", "--no-deps", "-q", "-w", str(tmp_path), str(ROOT)]
    subprocess.run([sys.executable, *words], check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "site")
    empty = tmp_path / "empty"
    empty.mkdir()
    said = []
    for command in (["ls", "trained", "--json"], ["evaluate", f"trained/{SMALL}", "--json"]):
        start = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})"
        code = f"{start}; from rlzoo_plus.commands.dispatch import entry_point; entry_point()"
        done = subprocess.run(
            [sys.executable, "-P", "-c", code, *command], cwd=empty, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        said.append(json.loads(done.stdout))
    assert [one["name"] for one in said[0]] == [f"trained/{name}" for name in NAMES]
    assert str(tmp_path / "site" / "rlzoo_plus" / "trained" / SMALL) == said[1]["run"]
    assert list(empty.iterdir()) == []


def test_a_name_means_the_run_or_its_best_policy(in_process):
    folder = trained_dir() / SMALL
    for name in (f"trained/{SMALL}", f"trained/{SMALL}/"):
        assert find_place(name).path == folder
    assert find_place(f"trained/{SMALL}/best").which == "best"
    assert rz.Run.open(f"trained/{SMALL}").folder == Path("outputs/trained") / SMALL


@pytest.mark.parametrize(
    "name",
    [
        *("trained/..", "trained/../conf", f"trained/{SMALL}/../../conf", "trained/."),
        *(f"trained/{SMALL}/../{SMALL}", f"trained/{SMALL}/episodes", "trained/\x1b[2J"),
        *("trained/cartpole_bulet", f"trained/{SMALL}/best/../../.."),
    ],
)
def test_no_other_name_leads_anywhere(in_process, answer, name):
    code, text = answer("evaluate", name)
    assert code == 2
    assert text.startswith("error: unknown trained policy")
    assert (text.count("\n"), "\x1b" in text) == (1, False)
    assert f"trained/{SMALL}" in text or f"All {len(NAMES)}: `rlzoo-plus ls trained`" in text


def test_a_run_of_the_users_wins_over_a_shipped_one_of_its_name(in_process):
    for where in ("trained", "outputs/trained"):
        own = Path(where) / SMALL
        shutil.copytree(trained_dir() / SMALL, own)
        assert find_place(f"trained/{SMALL}").path == own
        assert rz.Run.open(own).folder == own
        shutil.rmtree(own)
    shutil.copytree(trained_dir() / SMALL, f"outputs/untrained/{SMALL}")
    assert find_place(f"trained/{SMALL}").path == trained_dir() / SMALL


def test_where_there_are_none_that_is_said(in_process, answer, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.analysis.shipped_runs.conf_dir", lambda: in_process / "conf")
    for verb, name in (("ls", "trained"), ("evaluate", f"trained/{SMALL}")):
        code, text = answer(verb, name)
        assert code == 2
        assert "without trained/" in text


@pytest.mark.slow
@pytest.mark.parametrize("is_path", [False, True], ids=["by name", "by path"])
def test_no_command_changes_one(unchanged, answer, is_path):
    pytest.importorskip("huggingface_hub")
    name = str(trained_dir() / SMALL) if is_path else f"trained/{SMALL}"
    Path("grid.yaml").write_text("latency: [1]\n")
    new = Path("outputs/trained") / SMALL
    commands = {
        ("evaluate", name, "--episodes", "2", "--save-episodes", "saved"): "saved",
        ("enjoy", name, "--no-window", "--episodes", "1"): "",
        ("record", name, "--seconds", "0.1"): new / "videos/best.mp4",
        ("robustness", name, "--grid", "grid.yaml", "--episodes", "1"): new
        / "plots/robustness.png",
        ("export", name, "--format", "sb3"): new / "export/best",
        ("plot", name): new / "plots/learning_curve.png",
        ("report", name, "--out", "report.html"): "report.html",
        ("diagnose", name, "--episodes", "1"): "",
        ("verify", name, "--first", "10"): "",
        ("runs", str(trained_dir()) if is_path else "trained"): "",
        ("hub", "push", name, "a/b", "--no-video", "--episodes", "1", "--dry-run", "hub"): "hub",
        ("train", "env=cartpole_bullet", f"init_from={name}", "n_timesteps=64", "n_envs=1",
         "algo.hyperparams.n_steps=64", "report.video=false", "run_dir=own"): "own/result.json",
    }  # fmt: skip
    for words, made in commands.items():
        code, text = answer(*words)
        assert code == 0, (words, text)
        assert Path(made).exists()
    rz.Run.open(name).plot()


@pytest.mark.parametrize(
    "words",
    [
        ("resume", "NAME"),
        ("resume", "NAME", "n_timesteps=1000000"),
        ("train", "env=cartpole_bullet", "run_dir=NAME"),
        ("train", "env=cartpole_bullet", "run_dir=NAME", "restart=true"),
        ("train", "env=cartpole_bullet", "run_dir=NAME/more"),
        ("checkpoint", "NAME"),
        ("push", "NAME", "store"),
    ],
)
def test_what_would_change_one_is_refused_with_what_to_do(unchanged, answer, words):
    words = [word.replace("NAME", str(trained_dir() / SMALL)) for word in words]
    code, text = answer(*words)
    assert code == 2
    assert ("init_from=trained/" in text) or ("nothing is training there" in text)


def test_notes_about_one_are_refused():
    from rlzoo_plus.dashboard.annotations import Annotations, write_annotations

    with pytest.raises(ConfigError, match="comes with rlzoo_plus"):
        write_annotations(RunDir(trained_dir() / SMALL), Annotations(star=True))


def test_they_are_listed_with_what_they_earn(in_process, answer):
    code, text = answer("ls", "trained")
    assert code == 0
    lines = text.splitlines()
    assert lines[0].split() == [
        *("name", "engine", "algo", "steps", "minutes", "return", "success", "size")
    ]
    for name in NAMES:
        assert any(line.startswith(f"trained/{name} ") for line in lines)
    one = next(
        one for one in json.loads(answer("ls", "trained", "--json")[1]) if SMALL in one["name"]
    )
    assert one["episodes"] == 100
    assert one["mean_return"] > 475
    Path("trained").mkdir()
    assert "nothing in" in answer("ls", "trained")[1]


def test_the_page_has_a_row_for_each():
    assert markdown(shipped_policies()) in (ROOT / "docs" / "trained.md").read_text()
