"""Sweeps of many jobs: told at once, composed once, mistakes once for all, Ctrl-C at any time."""

import io
import re

import pytest
from rich.console import Console

from rlzoo_plus.commands import dispatch
from rlzoo_plus.sweeps import multirun, sweep_view
from rlzoo_plus.sweeps.sweep_view import SweepView

# Hundreds of jobs, three values of one key.
MANY = ["-m", "tuned=none", "seed=range(0,100)", "algo.hyperparams.gamma=0.9,0.91,0.92"]


@pytest.fixture
def ran(in_process, monkeypatch):
    """Let nothing run, and return what would have."""
    jobs = []
    monkeypatch.setattr(multirun, "PRELOAD", ())
    monkeypatch.setattr(multirun, "run_jobs", lambda given, *_, **__: jobs.extend(given) or 0)
    return jobs


@pytest.fixture
def compositions(monkeypatch):
    from hydra._internal.config_loader_impl import ConfigLoaderImpl

    calls = []
    load = ConfigLoaderImpl.load_sweep_config

    def counted(*arguments, **more):
        calls.append(arguments)
        return load(*arguments, **more)

    monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", counted)
    return calls


def test_jobs_that_differ_in_values_are_composed_once(ran, compositions, capsys):
    assert dispatch.run("train", MANY) == 0
    assert len(ran) == 300
    assert len({job.key for job in ran}) == 300
    assert {job.config.algo.hyperparams["gamma"] for job in ran} == {0.9, 0.91, 0.92}
    assert len(compositions) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "planning 300 jobs"
    assert any(line.startswith("sweep outputs/sweeps/default: 300 jobs, ") for line in lines)


def test_the_doctor_plans_the_same_way(in_process, compositions, capsys):
    words = [word.replace("100", "20") for word in MANY]
    assert dispatch.run("doctor", ["--no-probe", *words]) == 0
    assert len(compositions) == 1
    captured = capsys.readouterr()
    assert "60 jobs" in captured.out
    assert "planning 60 jobs" in captured.err


def test_a_mistake_in_many_jobs_is_one_line(ran, capsys, tmp_path):
    words = [*MANY[:-1], "algo.hyperparams.gamma=0.9,1.5,1.6"]
    assert dispatch.run("train", words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: 200 of 300 jobs: algo.hyperparams.gamma=1.5")
    assert "1 more like it" in line
    assert ran == []
    assert not (tmp_path / "outputs/sweeps/default").exists()


def test_a_ctrl_c_while_planning_writes_nothing(ran, monkeypatch, tmp_path, capsys):
    def pressed(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_view.SweepView, "advance", pressed)
    assert dispatch.run("train", MANY) == 130
    assert capsys.readouterr().err.splitlines()[-1] == "interrupted"
    assert not (tmp_path / "outputs/sweeps/default").exists()


def test_a_terminal_shows_a_bar_that_goes_away(monkeypatch):
    monkeypatch.setattr(sweep_view, "_REDRAW_BAR_S", 0.0)
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system=None)
    view = SweepView(lambda: console)
    view.count("planning", 100)
    for _ in range(100):
        view.advance()
    view.end_count()
    drawn = console.file.getvalue().split("\r\x1b[K")
    assert drawn[0] == "planning 100 jobs\n"
    assert drawn[50].endswith(" planning: 50 of 100 jobs")
    assert max(len(text) for text in drawn) <= 60
    assert drawn[-1] == ""


def test_without_a_terminal_there_is_a_line_now_and_then(monkeypatch):
    monkeypatch.setattr(sweep_view, "_LINE_S", 0.0)
    console = Console(file=io.StringIO(), width=200)
    view = SweepView(lambda: console)
    view.count("planning", 50)
    view.advance()
    view.end_count()
    assert console.file.getvalue() == "planning 50 jobs\nplanning: 1 of 50 jobs\n"
    assert not re.search("[\x1b\r]", console.file.getvalue())


def test_a_few_jobs_are_planned_without_a_word():
    console = Console(file=io.StringIO())
    view = SweepView(lambda: console)
    view.count("planning", 5)
    view.advance()
    assert console.file.getvalue() == ""
