"""Commands that are printed can be pasted: the form that was typed, in one piece."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import environ_of_tests
from support.terminals import terminals_in

from rlzoo_plus.artifacts.run_dir import FINISHED, RunDir
from rlzoo_plus.commands import typed
from rlzoo_plus.commands.typed import as_typed

ROOT = Path(__file__).resolve().parents[2]
RUN = [
    "env=cartpole_bullet", "n_timesteps=64", "algo.hyperparams.n_steps=32", "tuned=none",
    "algo.hyperparams.batch_size=16", "eval.episodes=1", "report.video=false", "device=cpu",
]  # fmt: skip


@pytest.fixture
def started(monkeypatch):
    """Return a function: the words that a process was started with."""

    def start(program, *interpreter):
        monkeypatch.setattr(sys, "argv", [str(program)])
        monkeypatch.setattr(sys, "orig_argv", [*interpreter, str(program)])
        typed._program.cache_clear()

    yield start
    typed._program.cache_clear()


def test_a_module_is_printed_as_it_was_typed(started):
    started(ROOT / "rlzoo_plus" / "__main__.py", "python3", "-m", "rlzoo_plus")
    assert as_typed("next: rlzoo-plus runs") == "next: python3 -m rlzoo_plus runs"
    assert as_typed("`rlzoo-plus train algo=ppo`") == "`python3 -m rlzoo_plus train algo=ppo`"


def test_the_script_is_printed_where_it_is_and_only_for_train(started, tmp_path, monkeypatch):
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    started("train.py", "python")
    assert as_typed("rlzoo-plus train algo=ppo") == "python train.py algo=ppo"
    assert "train.py" not in as_typed("rlzoo-plus resume RUN")
    assert as_typed("rlzoo-plus resume RUN").endswith(" resume RUN")


def test_without_a_script_no_script_is_named(started, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started("train.py", "python")
    assert as_typed("rlzoo-plus train algo=ppo") == "rlzoo-plus train algo=ppo"


def test_a_program_that_is_not_on_the_path_is_printed_with_its_folder(
    started, tmp_path, monkeypatch
):
    program = tmp_path / "a venv" / "bin" / "rlzoo-plus"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin")
    started(program)
    assert shlex.split(as_typed("rlzoo-plus runs")) == ["a venv/bin/rlzoo-plus", "runs"]
    monkeypatch.setenv("PATH", str(program.parent))
    typed._program.cache_clear()
    assert as_typed("rlzoo-plus runs") == "rlzoo-plus runs"


def test_only_commands_are_replaced(started):
    started(ROOT / "rlzoo_plus" / "__main__.py", "python", "-m", "rlzoo_plus")
    for text in ("pip install 'rlzoo-plus[tune]'", "rlzoo-plus is", "/bin/rlzoo-plus runs"):
        assert as_typed(text) == text


@pytest.mark.training
def test_no_command_is_wrapped_in_a_narrow_terminal(tmp_path):
    folder = tmp_path / ("a_rather_long_name_of_a_folder_" * 4)
    folder.mkdir()
    words = [sys.executable, "-m", "rlzoo_plus", "train", *RUN, f"run_dir={folder}/run"]
    with terminals_in(tmp_path) as open_it:
        terminal = open_it(*words, columns=80)
        assert terminal.wait(120) == 0, terminal.text
        lines = terminal.text.replace("\r", "").split("\n")
    # The interpreter is `python` where that is this one.
    commands = [line for line in lines if line.startswith("  ") and " -m rlzoo_plus " in line]
    assert any(c.endswith(f" -m rlzoo_plus evaluate {folder}/run --episodes 100") for c in commands)
    assert any(c.endswith(" -m rlzoo_plus runs") for c in commands)
    assert any(line.startswith("curve ") and line.endswith("curve.png") for line in lines)


@pytest.mark.parametrize("words", [["runs", "."], ["train", "--help"]], ids=" ".join)
def test_a_reader_that_goes_away_is_no_error(tmp_path, words):
    for number in range(3):
        run = RunDir(tmp_path / str(number))
        run.start({"env": {"name": "x"}}, "x", {})
        run.write_status(FINISHED, n_timesteps=1)
    process = subprocess.Popen(
        [sys.executable, "-m", "rlzoo_plus", *words],
        cwd=tmp_path,
        env=environ_of_tests(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.close()
    errors = process.stderr.read()
    assert process.wait(60) == 0, errors
    assert errors == ""
