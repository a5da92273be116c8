"""The outcome of a sweep: what few seeds show, and what many rows and failures look like."""

import csv
import io
from itertools import product

import pytest
from rich.console import Console
from support.training import tiny_config

from rlzoo_plus.analysis.estimates import shown
from rlzoo_plus.sweeps.states import JobState, JobView, Progress, tell_causes
from rlzoo_plus.sweeps.summary import summarise, write_summary
from rlzoo_plus.sweeps.sweep_job import make_job
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


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_with_fewer_than_five_seeds_there_is_no_interval(config, n):
    rows = summarise([view_of(config, seed, float(seed)) for seed in range(n)])
    assert (rows[0].best.low, rows[0].best.high) == (None, None)
    assert shown(rows[0].best) == f"{(n - 1) / 2:.4g} (n={n})"
    assert "fewer than 5 seeds" in printed(print_rows, rows)


def test_few_seeds_carry_a_warning(config, tmp_path):
    views = [view_of(config, seed, float(seed)) for seed in range(4)]
    rows = summarise(views)
    assert "Report at least 5 seeds, 10 for a claim." in printed(print_rows, rows)
    write_summary(tmp_path, views, rows)
    (record,) = csv.DictReader((tmp_path / "summary.csv").open())
    assert (record["best_lowest"], record["best_highest"]) == ("0.0", "3.0")
    assert record["best_run"] == views[3].job.key
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.json", "summary.csv", "summary.md"}


def varied(config, randomization, net_arch, learning_rate):
    kwargs = {**config.env.kwargs, "randomization": randomization}
    hyperparams = {**config.algo.hyperparams, "learning_rate": learning_rate}
    return config.model_copy(
        update={
            "env": config.env.model_copy(update={"kwargs": kwargs}),
            "network": config.network.model_copy(update={"net_arch": net_arch}),
            "algo": config.algo.model_copy(update={"hyperparams": hyperparams}),
        }
    )


def test_a_sweep_over_randomization_network_and_learning_rate_keeps_every_variant_apart(
    config, tmp_path
):
    choices = product(({"mass": 0.1}, {"mass": 0.3}), ([64, 64], [256, 256]), (1e-3, 3e-4))
    views = [view_of(varied(config, *values), seed, 1.0) for values in choices for seed in range(2)]
    rows = summarise(views)
    assert [row.n_done for row in rows] == [2] * 8
    assert len({row.settings for row in rows}) == 8
    assert rows[0].settings == "learning_rate=0.001 net_arch=[64,64] randomization.mass=0.1"
    files = write_summary(tmp_path, views, rows)
    assert len({record["settings"] for record in csv.DictReader(files[1].open())}) == 8
    text = printed(print_rows, rows)
    assert all(row.settings in text for row in rows)


def test_from_five_seeds_there_is_an_interval_and_no_warning(config):
    rows = summarise([view_of(config, seed, float(seed)) for seed in range(5)])
    assert rows[0].best.low < rows[0].best.iqm == 2.0 < rows[0].best.high
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


# The same mistake in many jobs is told once.


def test_a_mistake_is_told_once_with_the_number_of_its_jobs():
    texts = ["gamma=1.5 is above 1"] * 312 + ["unknown algo 'pppo'"]
    assert tell_causes(texts, 10_000) == [
        "312 of 10,000 jobs: gamma=1.5 is above 1",
        "1 of 10,000 jobs: unknown algo 'pppo'",
    ]


def test_what_differs_in_numbers_alone_is_one_cause():
    texts = [f"gamma={value} is above 1" for value in (1.5, 1.6, 2e10, 1.5)]
    assert tell_causes(texts, 9) == [
        "4 of 9 jobs: gamma=1.5 is above 1 (and 2 more like it, with other numbers)"
    ]


def test_names_that_end_in_numbers_stay_apart():
    assert len(tell_causes(["td3 cannot", "td4 cannot", "x_2 cannot", "x_3 cannot"], 4)) == 4


def test_each_line_of_a_job_is_a_cause():
    assert tell_causes(["a\nb", "b"], 2) == ["1 of 2 jobs: a", "2 of 2 jobs: b"]


def test_a_single_job_needs_no_count():
    assert tell_causes(["gamma=1.5 is above 1"], 1) == ["gamma=1.5 is above 1"]


def test_hundreds_of_causes_do_not_fill_the_screen():
    texts = [f"unknown key {'x' * number}" for number in range(100)]
    assert tell_causes(texts, 100)[20:] == ["and 80 more mistakes"]
