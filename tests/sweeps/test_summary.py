"""The outcome of a sweep: what few seeds show, and what many rows and failures look like."""

import csv
import io

import pytest
from rich.console import Console
from support.training import tiny_config

from rlzoo_plus.sweeps.job import make_job
from rlzoo_plus.sweeps.states import JobState, JobView, Progress
from rlzoo_plus.sweeps.summary import shown, summarise, write_summary
from rlzoo_plus.sweeps.sweep_view import print_failed, print_rows


def view_of(config, seed, best, state=JobState.DONE, reason=""):
    job = make_job(config.model_copy(update={"seed": seed}))
    return JobView(job, state, reason, Progress(64), best, best, 1.0)


@pytest.fixture
def config():
    return tiny_config("ppo", "tests/TinyReach-v0")


def printed(show, *arguments):
    console = Console(file=io.StringIO(), width=150)
    show(*arguments, console)
    return console.file.getvalue()


def test_below_five_seeds_there_is_a_range_and_a_warning_instead_of_an_interval(config, tmp_path):
    views = [view_of(config, seed, float(seed)) for seed in range(4)]
    rows = summarise(views)
    assert shown(rows[0].best) == "1.5 (0 to 3)"
    text = printed(print_rows, rows)
    assert "95 %" not in text
    assert "fewer than 5 seeds" in text
    assert "Report at least 5 seeds, 10 for a claim." in text
    write_summary(tmp_path, views, rows)
    (record,) = csv.DictReader((tmp_path / "summary.csv").open())
    assert (record["best_low"], record["best_lowest"], record["best_highest"]) == ("", "0.0", "3.0")


def test_a_single_seed_is_a_number(config):
    assert shown(summarise([view_of(config, 0, 2.5)])[0].best) == "2.5"


def test_from_five_seeds_there_is_an_interval_and_no_warning(config):
    rows = summarise([view_of(config, seed, float(seed)) for seed in range(5)])
    assert rows[0].best.low < rows[0].best.iqm < rows[0].best.high
    text = printed(print_rows, rows)
    assert "95 %" in text
    assert "[" in text
    assert "fewer" not in text


def test_hundreds_of_settings_are_named_and_the_screen_shows_some(config):
    views = []
    for number in range(60):
        algo = config.algo.model_copy(
            update={"hyperparams": {**config.algo.hyperparams, "gamma": 0.9 + number / 1000}}
        )
        views.append(view_of(config.model_copy(update={"algo": algo}), 0, 1.0))
    rows = summarise(views)
    assert [row.settings for row in rows[:2]] == ["gamma=0.9", "gamma=0.901"]
    text = printed(print_rows, rows)
    assert "and 10 more" in text
    assert len(text.splitlines()) < 56


def test_many_failures_are_told_once_for_each_cause(config):
    views = [
        view_of(config, seed, None, JobState.FAILED, f"out of memory: {seed} GiB")
        for seed in range(30)
    ]
    views += [view_of(config, 99, 1.0)]
    assert printed(print_failed, views).splitlines() == [
        "failed: 30 of 31 jobs: out of memory: 0 GiB (and 29 more like it, with other numbers)"
    ]
