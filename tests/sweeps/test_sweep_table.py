"""The table of a running sweep fits its terminal, whatever is in it."""

import io

import pytest
from rich.console import Console
from support.training import make_config

from rlzoo_plus.sweeps.states import JobState, JobView, Progress
from rlzoo_plus.sweeps.sweep_job import make_job
from rlzoo_plus.sweeps.sweep_view import brief, job_line, live_table

LONG = "the gearbox broke " * 20


def view_of(number, state=JobState.RUNNING, reason=""):
    overrides = ["algo=recurrent_ppo", "env=pendulum", "n_timesteps=12500000"]
    config = make_config(*overrides, f"seed={number}")
    env = config.env.model_copy(update={"name": "halfcheetah_bullet"})
    job = make_job(config.model_copy(update={"env": env}))
    return JobView(job, state, reason, Progress(1_024_000, 12345.6, -1234.56))


def drawn(views, width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(live_table(views, 2, 10.0))
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_a_line_for_each_job_and_none_is_cut_or_wrapped(width):
    lines = drawn([view_of(seed) for seed in range(8, 12)], width)
    assert len(lines) == 2 + 4
    assert max(len(line.rstrip()) for line in lines) <= width
    names = ["recurrent_ppo", "halfcheetah_bullet", "11"]
    assert lines[-1].split() == [*names, "1.02M/12.5M", "12,346", "15m30s", "-1234.6"]


def test_reasons_and_remarks_are_cut_before_numbers():
    elsewhere = view_of(1, reason="running in another process")
    lines = drawn([elsewhere, view_of(2), view_of(3, JobState.FAILED, LONG)], 80)
    assert len(lines) == 2 + 2 + 1
    assert max(len(line) for line in lines) <= 80
    assert "1.02M/12.5M" in lines[2]
    assert lines[-1].startswith("failed: recurrent_ppo on halfcheetah_bullet, seed 3: the gearbox")
    assert lines[-1].endswith("…")
    assert "running in another process" in drawn([elsewhere], 120)[-1]


def test_jobs_that_a_small_screen_cannot_hold_are_counted():
    views = [view_of(seed) for seed in range(20)]
    views += [view_of(seed, JobState.FAILED, "x") for seed in range(20, 26)]
    lines = drawn(views, 100)
    assert len(lines) < 24
    assert [line.rstrip() for line in lines if line.startswith("and ")] == [
        "and 4 more",
        "and 3 failed before",
    ]
    assert "seed 25: x" in lines[-1]


def test_the_table_of_many_jobs_fits_a_low_terminal():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    views = [view_of(seed) for seed in range(20)] + [view_of(99, JobState.FAILED, "x")] * 3
    others = {JobState.WAITING: 9_000, JobState.DONE: 977, JobState.FAILED: 4}
    console.print(live_table(views, 20, 10.0, others=others, lines=12))
    lines = console.file.getvalue().splitlines()
    assert len(lines) <= 12
    assert lines[0].startswith("10,004 jobs: 9,000 waiting, 20 running, 977 done, 7 failed; about")
    assert "and 15 more" in console.file.getvalue()
    assert "and 4 failed before" in console.file.getvalue()


def test_a_sweep_that_has_not_begun_has_no_empty_table():
    assert len(drawn([view_of(0, JobState.WAITING)], 80)) == 1


def test_the_line_of_a_job_that_ended_fits_a_narrow_terminal():
    view = JobView(view_of(3).job, JobState.DONE, "", Progress(12_500_000), best=2345.67, time_s=60)
    assert len(job_line(view, 10, 12)) <= 91
    assert job_line(view, 10, 12).endswith("12,500,000 steps in 1m00s, best 2345.7")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        *((0, "0"), (9_999, "9,999"), (10_000, "10k"), (51_249, "51.2k"), (999_499, "999k")),
        *((999_500, "1M"), (1_250_000, "1.25M"), (999_499_999, "999M"), (2 * 10**9, "2G")),
    ],
)
def test_steps_are_written_briefly(count, text):
    assert brief(count) == text
