"""The budget: which runs may start, by a clock and speeds of the test's own."""

import pytest
from support.training import tiny_config

from rlzoo_plus.suites.budget import Budget
from rlzoo_plus.sweeps.sweep_job import make_job

HOUR = 3600.0


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def make(tmp_path):
    def make(algo, seed=0, steps=1000):
        config = tiny_config(algo, "tests/TinyReach-v0", f"seed={seed}", f"n_timesteps={steps}")
        return make_job(config.model_copy(update={"sweep": str(tmp_path)}))

    return make


def budget_of(hours, clock, jobs, **step_s):
    budget = Budget(
        hours, lambda job: job.config.algo.name, lambda job: step_s[job.config.algo.name], clock
    )
    assert budget.learn([], jobs) == len(step_s)
    return budget


def test_the_cheapest_cells_come_first_with_their_seeds(make):
    jobs = [make(algo, seed) for algo in ("sac", "ppo", "a2c") for seed in range(2)]
    budget = budget_of(1, Clock(), jobs, sac=3.0, ppo=1.0, a2c=2.0)
    ordered = budget.order(jobs)
    assert [job.config.algo.name for job in ordered] == ["ppo"] * 2 + ["a2c"] * 2 + ["sac"] * 2
    # 1000 s, 1000 s; then 2000 s each; then nothing of 3000 s.
    assert budget.fitting(ordered, 2) == ordered[:4]
    assert "4 of 6 runs expected to end in time" in budget.text(ordered, 2)


def test_a_run_starts_only_if_it_would_end_in_time(make):
    clock, job = Clock(), make("ppo")
    budget = budget_of(1, clock, [job], ppo=1.0)
    clock.now = HOUR - 1000.0
    assert budget.may_start(job)
    clock.now += 1.0
    assert not budget.may_start(job)
    assert budget.too_long == [job]


def test_a_run_that_was_slower_than_measured_is_learnt_from(make):
    clock, first, second = Clock(), make("ppo", 0), make("ppo", 1)
    budget = budget_of(1, clock, [first, second], ppo=1.0)
    assert budget.may_start(first)
    budget.ended(first, 3000.0)
    clock.now = 3000.0
    assert not budget.may_start(second)


def test_only_the_rest_of_an_interrupted_run_counts(make):
    clock, job = Clock(), make("ppo", steps=10_000)
    budget = budget_of(1, clock, [job], ppo=1.0)
    assert not budget.may_start(job)
    job.path.mkdir(parents=True)
    job.run_dir.write_status("stopped", num_timesteps=9000)
    assert budget.seconds(job) == 1000.0
    assert budget.may_start(job)


def test_a_finished_run_of_the_cell_spares_the_measurement(make):
    done, job = make("ppo", 0), make("ppo", 1)
    done.path.mkdir(parents=True)
    done.run_dir.write_result({"training_time_s": 500.0, "num_timesteps": 1000})

    def measure(_):
        raise AssertionError("measured")

    budget = Budget(1, lambda job: job.config.algo.name, measure, Clock())
    assert budget.learn([done], [job]) == 0
    assert budget.seconds(job) == 500.0


def test_the_time_of_measurements_is_not_in_the_budget_and_unknown_cells_do_not_start(make):
    clock, job = Clock(), make("ppo")

    def measure(_):
        clock.now += 2 * HOUR

    budget = Budget(1, lambda job: job.config.algo.name, measure, clock)
    budget.learn([], [job])
    assert not budget.may_start(job)
    assert "ppo could not be measured" in budget.text([job], 1)
    quick = make("a2c")
    measured = Budget(1, lambda job: job.config.algo.name, lambda _: measure(_) or 1.0, clock)
    measured.learn([], [quick])
    assert measured.may_start(quick)
