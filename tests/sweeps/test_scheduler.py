"""The loop that runs jobs: slots, jobs that follow from others, stopping, what is left behind."""

import os
import signal
from pathlib import Path

import pytest

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.launchers.launcher import JobEnd, JobSpec
from rlzoo_plus.sweeps.launchers.scheduler import JobsStopped, Scheduler, run_together


class Job:
    """A job that ends after so many looks, or when it is stopped or killed."""

    def __init__(self, looks, is_stoppable=True):
        self.looks, self.end, self.told, self.is_stoppable = looks, None, [], is_stoppable

    def poll(self):
        self.looks -= 1
        return self.end or (JobEnd(0) if self.looks <= 0 else None)

    def stop(self):
        self.told.append("stop")
        if self.is_stoppable:
            self.end = JobEnd(75)

    def kill(self):
        self.told.append("kill")
        self.end = JobEnd(-9)


class Launcher:
    shows_output = False

    def __init__(self, make, slots=2, wait=lambda: None):
        self.make, self.slots, self.on_wait = make, slots, wait
        self.jobs, self.most, self.names = [], 0, []

    def submit(self, spec):
        self.names.append(spec.name)
        self.jobs.append(self.make())
        return self.jobs[-1]

    def wait(self, handles, timeout_s):
        self.most = max(self.most, len(handles))
        self.on_wait()


class Numbers(Scheduler):
    """Jobs 0, 1, ...; each that ends well is followed by one of ten more, up to a limit."""

    def __init__(self, launcher, first, limit=0, **options):
        super().__init__(launcher, **options)
        self.waiting, self.limit, self.ended, self.refused = list(first), limit, [], []

    def next_job(self):
        return self.waiting.pop(0) if self.waiting else None

    def has_more(self):
        return bool(self.waiting)

    def spec_of(self, job):
        if job == 13:
            raise ConfigError("13 brings bad luck")
        return JobSpec(str(job), "a:b", {}, Path("log.txt"))

    def on_end(self, job, end, ran_s):
        self.ended.append((job, end.code))
        if job + 10 < self.limit:
            self.waiting.append(job + 10)

    def on_refused(self, job, error):
        self.refused.append((job, str(error)))


def press(number=signal.SIGINT):
    os.kill(os.getpid(), number)


def test_there_are_never_more_jobs_than_slots():
    jobs = Numbers(Launcher(lambda: Job(3)), range(5))
    jobs.run_loop()
    assert jobs.launcher.most == 2
    assert sorted(jobs.ended) == [(n, 0) for n in range(5)]


def test_a_job_may_follow_from_the_end_of_another():
    jobs = Numbers(Launcher(lambda: Job(1)), [1], limit=40)
    jobs.run_loop()
    assert jobs.launcher.names == ["1", "11", "21", "31"]


def test_a_job_that_cannot_be_started_does_not_end_the_loop():
    jobs = Numbers(Launcher(lambda: Job(1)), [12, 13, 14])
    jobs.run_loop()
    assert jobs.refused == [(13, "13 brings bad luck")]
    assert [job for job, _ in jobs.ended] == [12, 14]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_what_runs_and_starts_nothing(number):
    before = signal.getsignal(number)
    jobs = Numbers(Launcher(lambda: Job(100), wait=lambda: press(number)), range(5))
    jobs.run_loop()
    assert jobs.stop_signal == number
    assert jobs.ended == [(0, 75), (1, 75)]
    assert signal.getsignal(number) is before


def test_a_second_signal_kills():
    jobs = Numbers(Launcher(lambda: Job(100, is_stoppable=False), wait=press), [1])
    jobs.run_loop()
    assert jobs.launcher.jobs[0].told[:2] == ["stop", "kill"]
    assert jobs.ended == [(1, -9)]


def test_without_handlers_of_ours_ctrl_c_stops_too_and_is_raised_at_the_end():
    seen = []

    def wait():
        seen.append(signal.getsignal(signal.SIGINT))
        press()

    before = signal.getsignal(signal.SIGINT)
    jobs = Numbers(Launcher(lambda: Job(100), wait=wait), [1, 2, 3], takes_signals=False)
    with pytest.raises(KeyboardInterrupt):
        jobs.run_loop()
    assert seen == [before]
    assert jobs.ended == [(1, 75), (2, 75)]


def test_an_error_of_the_loop_leaves_no_job_behind():
    jobs = Numbers(Launcher(lambda: Job(100)), range(5))

    def break_down():
        raise RuntimeError("the gearbox broke")

    jobs.after_round = break_down
    with pytest.raises(RuntimeError, match="gearbox"):
        jobs.run_loop()
    assert [job.told for job in jobs.launcher.jobs] == [["kill"], ["kill"]]


SPECS = [JobSpec(str(n), "a:b", {}, Path("log.txt")) for n in range(3)]


def test_a_few_jobs_run_to_their_end():
    launcher = Launcher(lambda: Job(2))
    run_together(launcher, SPECS)
    assert launcher.names == ["0", "1", "2"]
    assert all(job.told == [] for job in launcher.jobs)


def test_a_few_jobs_that_take_too_long_are_killed():
    launcher = Launcher(lambda: Job(10**9))
    run_together(launcher, SPECS[:2], at_most_s=0.5)
    assert [job.told for job in launcher.jobs] == [["kill"], ["kill"]]


def test_a_signal_kills_a_few_jobs_and_is_told():
    launcher = Launcher(lambda: Job(10**9), wait=lambda: press(signal.SIGTERM))
    with pytest.raises(JobsStopped) as stopped:
        run_together(launcher, SPECS)
    assert stopped.value.code == 75
    assert [job.told for job in launcher.jobs] == [["kill"], ["kill"]]
