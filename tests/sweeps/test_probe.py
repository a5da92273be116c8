"""Measuring: what is tried, how a rate is taken, what is recommended, how long all will take."""

import json
from pathlib import Path

import pytest
from support.training import make_config, tiny_config

from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.sweeps import probe, probe_job
from rlzoo_plus.sweeps.estimate import estimate, overrides_for
from rlzoo_plus.sweeps.launchers.launcher import JobEnd
from rlzoo_plus.sweeps.probe import (
    Kind,
    Measurement,
    Probe,
    ProbeResult,
    Setting,
    alternatives,
    configured,
    kinds_of,
    pick,
    short_version,
    warm_steps,
)
from rlzoo_plus.sweeps.probe_job import RateMeter, run_probe

ONE = Setting("auto", 1, 1)


def job(*overrides, algo="ppo", env="TinyReach"):
    return tiny_config(algo, f"tests/{env}-v0", *overrides)


# What is tried


def test_jobs_that_differ_in_seeds_and_values_are_one_kind():
    configs = [job("seed=1"), job("seed=2", "algo.hyperparams.gamma=0.9"), job("n_envs=4")]
    assert [(kind.name, len(kind.jobs)) for kind in kinds_of(configs)] == [
        ("ppo on tests-tinyreach-v0", 2),
        ("ppo on tests-tinyreach-v0 x 4", 1),
    ]


def test_the_kind_with_the_most_steps_comes_first():
    configs = [job("n_timesteps=64"), job("n_timesteps=6400", algo="sac")]
    assert kinds_of(configs)[0].name.startswith("sac")


@pytest.mark.parametrize(
    ("algo", "overrides", "is_sweep", "threads"),
    [
        ("sac", ("num_threads=auto",), False, 8),
        ("sac", ("num_threads=auto",), True, 1),
        ("ppo", ("num_threads=auto",), False, 1),
        ("ppo", ("num_threads=3",), True, 3),
    ],
)
def test_the_first_setting_is_what_training_would_take(algo, overrides, is_sweep, threads):
    assert configured(job(*overrides, algo=algo), 8, is_sweep=is_sweep) == Setting(
        "auto", threads, 1
    )


def test_a_lone_run_is_never_tried_side_by_side():
    found = alternatives(job("n_envs=4"), 1, 8, is_sweep=False)
    assert found == [Setting(v, t, 1) for v in ("auto", "subproc") for t in (1, 8)]
    assert alternatives(job(), 1, 1, is_sweep=False) == [ONE]


@pytest.mark.parametrize(
    ("overrides", "tried"),
    [
        (("vec_env=dummy", "n_envs=4"), ["dummy", "auto", "subproc"]),
        (("vec_env=batched", "n_envs=4"), ["batched", "subproc"]),
        (("vec_env=dummy",), ["dummy"]),
        (("vec_env=subproc",), ["subproc", "auto"]),
    ],
)
def test_ways_of_stepping_are_tried_where_they_differ(overrides, tried):
    found = alternatives(job(*overrides), 1, 1, is_sweep=False)
    assert [setting.vec_env for setting in found] == tried


def test_a_sweep_is_tried_with_more_workers_up_to_its_jobs_and_the_cores():
    found = alternatives(job(), 100, 8, is_sweep=True)
    assert [s.workers for s in found if s.threads == 1] == [1, 2, 4, 8]
    assert max(s.workers for s in alternatives(job(), 3, 8, is_sweep=True)) == 3
    assert max(s.workers for s in alternatives(job(), 3, 2, is_sweep=True)) == 2


def test_environments_in_processes_are_tried_last_and_only_where_there_is_room():
    found = alternatives(job("n_envs=4"), 100, 8, is_sweep=True)
    assert [s for s in found if s.vec_env == "subproc"] == found[-2:]
    assert [s.workers for s in found[-2:]] == [1, 2]


def test_a_short_version_learns_soon_and_writes_nothing_of_its_own_accord():
    config = job(
        "algo.hyperparams.learning_starts=10000",
        "algo.hyperparams.buffer_size=1000000",
        "stop.wall_clock_minutes=1",
        algo="sac",
    )
    short = short_version(config, Setting("subproc", 2, 1), 7, "there")
    assert short.algo.hyperparams["learning_starts"] == 200
    assert short.algo.hyperparams["buffer_size"] == 50_000
    assert (short.vec_env, short.num_threads, short.seed, short.run_dir) == (
        "subproc",
        2,
        7,
        "there",
    )
    assert short.eval.every_steps is None
    assert short.checkpoint.every_minutes is None
    assert short.stop.wall_clock_minutes is None
    assert warm_steps(short) == 200 + 2 * 4


def test_a_short_version_has_numbers_where_a_schedule_is_automatic():
    short = short_version(make_config("env=cartpole_bullet"), ONE, 0, "there")
    assert short.eval.every_steps is None
    assert isinstance(short.eval.episodes, int)
    assert isinstance(short.eval.n_envs, int)


def test_a_long_rollout_is_cut_to_whole_batches():
    long = job("algo.hyperparams.n_steps=2048", "algo.hyperparams.batch_size=96", "n_envs=8")
    short = short_version(long, ONE, 0, "there")
    assert short.algo.hyperparams["n_steps"] * 8 == 960
    kept = short_version(job(), ONE, 0, "there")
    assert kept.algo.hyperparams["n_steps"] == 32


def test_hindsight_replay_waits_for_a_whole_episode():
    config = job("algo.hyperparams.learning_starts=1000", algo="her", env="TinyGoal")
    assert short_version(config, ONE, 0, "x").algo.hyperparams["learning_starts"] == 1000


# How a rate is taken


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(probe_job.time, "monotonic", lambda: self.now)


@pytest.fixture
def meter(monkeypatch):
    """Return a meter, and a function that lets it see iterations and steps."""
    clock = Clock(monkeypatch)
    meter = RateMeter(until=104.0, least_s=2.0, warm_steps=100)
    meter.model = type("Model", (), {"num_timesteps": 0})()

    def see(kind, after_s, steps):
        clock.now += after_s
        meter.model.num_timesteps = steps
        meter.on_iteration() if kind == "iteration" else meter._on_step()

    return meter, see


def test_the_first_update_does_not_count(meter):
    meter, see = meter
    for after_s, steps in ((0.0, 0), (3.0, 100), (0.5, 150), (0.4, 190)):
        see("iteration", after_s, steps)
    assert meter.rates() == {"rate": pytest.approx(100.0), "rough": False}


def test_half_an_iteration_does_not_count(meter):
    meter, see = meter
    see("iteration", 0.0, 100)
    see("iteration", 1.0, 200)
    see("step", 0.5, 260)
    assert meter.rates()["rate"] == pytest.approx(100.0)


def test_a_rate_without_a_second_iteration_is_rough(meter):
    meter, see = meter
    see("iteration", 0.0, 0)
    see("step", 2.0, 50)
    assert meter.rates() == {"rate": pytest.approx(25.0), "rough": True}


def test_nothing_seen_is_no_rate(meter):
    meter, _ = meter
    assert meter.rates()["rate"] is None


@pytest.mark.parametrize("kind", ["iteration", "step"])
def test_training_ends_in_time(meter, kind):
    meter, see = meter
    see("iteration", 0.0, 0)
    with pytest.raises(StopTraining):
        see(kind, 4.0, 10)


def test_a_late_beginning_still_has_its_least_time(meter):
    meter, see = meter
    see("iteration", 3.5, 0)
    see("step", 1.0, 10)
    with pytest.raises(StopTraining):
        see("step", 1.0, 20)


# What is recommended


def measured(rate, setting=ONE, kind=None, **more):
    return Measurement(kind or Kind("ppo", [job()]), setting, rate, **more)


def test_the_simplest_setting_that_is_about_as_fast_is_taken():
    two = Setting("auto", 2, 1)
    assert pick([measured(96.0), measured(100.0, two)]).setting == ONE
    assert pick([measured(90.0), measured(100.0, two)]).setting == two
    assert pick([measured(None), measured(1.0, two)]).setting == two
    assert pick([measured(None)]) is None


def test_overrides_name_only_what_matters():
    side_by_side = Kind("ppo", [job("n_envs=4")])
    best = measured(1.0, Setting("subproc", 2, 3), side_by_side)
    assert overrides_for(best, is_sweep=True) == [
        "vec_env=subproc",
        "num_threads=2",
        "infra.workers=3",
    ]
    assert overrides_for(measured(1.0), is_sweep=False) == ["num_threads=1"]


# How long all will take


def result_of(*measurements):
    return ProbeResult(list(measurements), best=pick(list(measurements)))


def test_jobs_begin_as_soon_as_a_worker_is_free():
    configs = [job("n_timesteps=1000", f"seed={seed}") for seed in range(3)]
    (kind,) = kinds_of(configs)
    alone, both = measured(100.0, ONE, kind), measured(200.0, Setting("auto", 1, 2), kind)
    guess = estimate(result_of(alone, both), configs, {})
    assert guess.workers == 2
    assert guess.training_s == pytest.approx(20.0)
    assert guess.with_evaluations_s is None


def test_workers_that_slow_each_other_down_count():
    configs = [job("n_timesteps=1000", f"seed={seed}") for seed in range(2)]
    (kind,) = kinds_of(configs)
    alone, both = measured(100.0, ONE, kind), measured(150.0, Setting("auto", 1, 2), kind)
    assert estimate(result_of(alone, both), configs, {}).training_s == pytest.approx(1000 / 75)


def test_evaluations_of_the_longest_episodes_are_added():
    config = job("n_timesteps=1000", "eval.every_steps=100", "eval.episodes=5")
    (kind,) = kinds_of([config])
    result = result_of(measured(100.0, ONE, kind, eval_rate=400.0))
    guess = estimate(result, [config], {"tests-tinyreach-v0": 8})
    assert guess.training_s == pytest.approx(10.0)
    assert guess.with_evaluations_s == pytest.approx(10.0 + 10 * 5 * 8 / 400)


def test_what_was_not_measured_is_as_slow_as_the_slowest():
    configs = [job("n_timesteps=1000"), job("n_timesteps=500", algo="sac")]
    first, _ = kinds_of(configs)
    assert estimate(result_of(measured(100.0, ONE, first)), configs, {}).training_s == 15.0


def test_without_a_rate_there_is_no_estimate():
    assert estimate(result_of(measured(None)), [job()], {}) is None


# The probe as a whole


class Ended:
    """A process that has ended already."""

    def poll(self):
        return JobEnd(0)

    def stop(self):
        pass

    def kill(self):
        pass


class PretendLauncher:
    """Writes the rates that a function gives, instead of training."""

    slots, shows_output = 8, False
    waits_s = 0.0

    def __init__(self, rate_of):
        self.rate_of = rate_of
        self.seconds = []

    def submit(self, spec):
        probe.time.sleep(self.waits_s)
        if spec.data:
            self.seconds.append(spec.data["seconds"])
            rate = self.rate_of(spec.data["config"])
            folder = Path(spec.data["config"]["run_dir"])
            folder.mkdir()
            if rate == "died":
                spec.log.write_text("--- today\nthe gearbox broke\n")
            else:
                rates = {"rate": rate, "rough": False, "eval_rate": 1.0}
                (folder / probe.RATES_FILE).write_text(json.dumps(rates))
        return Ended()

    def wait(self, handles, timeout_s):
        pass


def run(tmp_path, monkeypatch, configs, rate_of, seconds=20.0, n_cores=2):
    monkeypatch.setattr(probe, "cores", lambda: n_cores)
    launcher = PretendLauncher(rate_of)
    return launcher, Probe(launcher, tmp_path, seconds, is_sweep=True).run(configs)


def test_other_settings_are_tried_for_the_kind_that_takes_longest(tmp_path, monkeypatch):
    configs = [job(f"seed={s}", algo=algo) for algo in ("ppo", "sac") for s in (0, 1)]
    rates = {"ppo": 1000.0, "sac": 100.0}
    _, found = run(tmp_path, monkeypatch, configs, lambda config: rates[config["algo"]["name"]])
    assert [m.kind.name.split()[0] for m in found.measurements] == ["ppo", "sac", "sac", "sac"]
    assert found.best.setting == Setting("auto", 1, 2)
    assert found.best.rate == 200.0


def test_kinds_without_time_are_named(tmp_path, monkeypatch):
    configs = [job(f"n_timesteps={6400 - n}", f"n_envs={n}") for n in range(1, 8)]
    launcher, found = run(tmp_path, monkeypatch, configs, lambda _: 10.0)
    assert len(found.left_out) == 3
    assert sum(launcher.seconds) <= 30.0


def test_one_kind_is_measured_however_short_the_time(tmp_path, monkeypatch):
    launcher, found = run(tmp_path, monkeypatch, [job()], lambda _: 10.0, seconds=2.0)
    assert found.left_out == []
    assert launcher.seconds == pytest.approx([1.0, 2.0], abs=0.1)


def test_settings_without_time_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(PretendLauncher, "waits_s", 0.2)
    _, found = run(tmp_path, monkeypatch, [job()], lambda _: 10.0, seconds=0.2)
    assert len(found.measurements) == 1
    assert found.not_tried == [Setting("auto", 2, 1)]
    assert found.best.rate == 10.0


def test_a_training_that_breaks_is_told_with_its_last_words(tmp_path, monkeypatch):
    _, found = run(tmp_path, monkeypatch, [job()], lambda _: "died")
    assert found.best is None
    assert found.measurements[0].reason == "the gearbox broke"


@pytest.mark.training
@pytest.mark.parametrize("algo", ["ppo", "sac", "ars"])
def test_a_real_training_is_measured_and_ends_in_time(tmp_path, algo):
    config = short_version(job(algo=algo), ONE, 0, str(tmp_path / "1"))
    data = {"config": config.model_dump(mode="json"), "seconds": 1.5, "evaluate": True}
    assert run_probe(data) == 0
    rates = json.loads((tmp_path / "1" / probe.RATES_FILE).read_text())
    assert rates["rate"] > 5
    assert rates["eval_rate"] > 5
    assert not (tmp_path / "1" / "final").exists()
    assert not (tmp_path / "1" / "best").exists()
