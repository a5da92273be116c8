"""`rlzoo-plus doctor`: what it says, what it exits with, and that it leaves nothing behind."""

import json

import pytest

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import dispatch, doctor_report
from rlzoo_plus.doctor import advice
from rlzoo_plus.sweeps import multirun
from rlzoo_plus.sweeps.probe import Measurement, ProbeResult, Setting, kinds_of


@pytest.fixture
def look(in_process, capsys, monkeypatch):
    """Return a function: overrides to exit code and output, without a probe."""
    monkeypatch.setattr(advice.os, "getloadavg", lambda: (0.0, 0.0, 0.0), raising=False)

    def look_at(*arguments, probe=False):
        words = arguments if probe else (*arguments, "--no-probe")
        try:
            code = dispatch.run("doctor", list(words))
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return code, captured.out + captured.err

    return look_at


def test_a_run_without_a_mistake_exits_with_zero(look):
    assert look("algo=ppo", "env=cartpole_bullet") == (0, "1 run: nothing wrong\n")


THREE = (
    "env=cartpole_bulet,cartpole_bullet",
    "algo=ppo,dqn",
    "n_envs=4,0",
)


@pytest.mark.parametrize("options", [(), ("-m",)])
def test_three_mistakes_of_a_sweep_are_told_in_one_call(look, options):
    code, text = look(*options, *THREE)
    assert code == 2
    assert text.count("Did you mean 'cartpole_bullet'?") == 1
    assert text.count("n_envs=0: must be") == 1
    assert text.count("dqn cannot act in Box") == 1
    assert "8 jobs, 2 at once: 3 errors" in text or "8 jobs, 1 at once: 3 errors" in text


def test_a_mistake_names_how_many_jobs_have_it_and_which(look):
    _, text = look("algo=ppo,dqn", "seed=1,2")
    assert "in 2 of 4 jobs: algo=dqn seed=1; algo=dqn seed=2\n" in text
    _, text = look("algo=dqn", "seed=range(0,9)")
    assert "in all 9 jobs" in text


def test_late_mistakes_of_different_jobs_are_told_together(look):
    code, text = look("device=cpu,cuda:77", "callbacks=[],[nowhere.Callback]")
    assert code == 2
    assert "device=cuda:77" in text
    assert "callbacks: nowhere.Callback" in text


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("seeed=1", "'seed'"),
        ("algo=pppo", "'ppo'"),
        ("network.n_critics=2", "'n_critics'"),
        ("algo=[", "error: "),
        ("-m seed=1,2 run_dir=mine", "would be shared"),
        ("seed=1,2 sweep=a,b", "several sweeps"),
        ("infra=debug infra.memory_gib=1 -m", "infra=debug"),
        ("restart=true", "restart=true"),
        ("--probe 1", "at least 2 seconds"),
        ("--no-prob", "--no-prob"),
    ],
)
def test_a_mistake_gets_exit_code_2_and_no_traceback(look, line, part):
    code, text = look(*line.split(), probe="--probe" in line)
    assert code == 2
    assert part in text


def test_a_warning_exits_with_zero(look):
    code, text = look("algo=ppo", "tuned=none", "checkpoint.every_steps=1000000")
    assert code == 0
    assert "warning: checkpoint.every_steps=1000000 is above" in text


def test_jobs_that_are_the_same_run_are_told(look):
    code, text = look("log.interval=1,2")
    assert code == 0
    assert "1 of the jobs are the same run as another one" in text


def test_a_run_directory_that_is_taken_is_a_mistake(look, in_process):
    run = RunDir(in_process / "mine")
    run.start({}, "", {})
    run.write_status("finished")
    code, text = look("run_dir=mine", "resume=never")
    assert code == 2
    assert "already holds a run" in text


def test_nothing_is_left_behind(look, in_process):
    for line in (
        "algo=ppo",
        "-m seed=1,2",
        "env=cartpole_bulet,cartpole",
        "run_dir=here",
        "seeed=1",
    ):
        look(*line.split())
    assert list(in_process.iterdir()) == []


@pytest.mark.training
def test_a_study_is_looked_at_by_drawing_trials(look, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.doctor.check_jobs.DRAWS", 5)
    line = ("-m", "hpo=ppo", "hpo.n_trials=3", "algo.hyperparams.gamma=interval(0.9,0.99)")
    code, text = look(*line)
    assert code == 0
    assert "the study, checked with 5 draws" in text
    assert "3 runs of trials, 40,960 steps each, and 9 of the best again, 40,960 steps" in text
    code, text = look(*line, "device=cuda:77", "hpo.sampler=tpee", "hpo.storage=sqlite:///x")
    assert code == 2
    for said in ("device=cuda:77", "Did you mean 'tpe'", "hpo.storage=sqlite"):
        assert said in text
    code, text = look(*line, "network.activation=choice(relu,relo)")
    assert code == 2
    assert "relo" in text
    assert "of 5 jobs" in text


@pytest.mark.training
def test_a_population_is_looked_at_as_a_study_is(look, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.doctor.check_jobs.DRAWS", 5)
    line = ("-m", "hpo=ppo", "hpo.sampler=pbt")
    code, text = look(*line, "hpo.sampler_options={population: 5}")
    assert code == 0
    assert "5 runs of trials, 40,960 steps each" in text
    assert "again" not in text
    code, text = look(*line, "hpo.sampler_options={factor: 0.5}", "hpo.seeds=2")
    assert code == 2
    for said in ("hpo.sampler_options.factor=0.5", "hpo.seeds, hpo.constraints"):
        assert said in text


def test_parameters_of_hydras_sweeper_make_jobs(look, tmp_path):
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    text = "# @package _global_\nhydra:\n  sweeper:\n    params:\n      seed: 1,2,3\n"
    (tmp_path / "mine" / "experiment" / "three.yaml").write_text(text)
    code, text = look("-m", "--config-dir", str(tmp_path / "mine"), "experiment=three")
    assert code == 0, text
    assert text.startswith("3 jobs")
    assert not (tmp_path / "outputs").exists()


def test_findings_are_printed_as_data(look):
    code, text = look("algo=ppo,dqn", "seed=1,2", "--json")
    data = json.loads(text)
    assert code == 2
    assert (data["jobs"], data["probe"]) == (4, None)
    (finding,) = [one for one in data["findings"] if one["level"] == "error"]
    assert finding["n_jobs"] == 2
    assert finding["jobs"] == ["algo=dqn seed=1", "algo=dqn seed=2"]


@pytest.fixture
def measured(monkeypatch):
    """Replace the probe: two workers are nearly twice as fast."""

    def run(self, configs):
        (kind,) = kinds_of(configs)
        alone = Measurement(kind, Setting("dummy", 1, 1), 100.0, eval_rate=1000.0)
        both = Measurement(kind, Setting("dummy", 1, 2), 190.0, rough=True)
        return ProbeResult([alone, both], best=both)

    monkeypatch.setattr("rlzoo_plus.sweeps.probe.Probe.run", run)
    monkeypatch.setattr(multirun, "PRELOAD", ())


def test_a_probe_says_what_to_add_and_how_long_it_takes(look, measured):
    jobs = ("env=cartpole", "seed=1,2", "n_timesteps=102400", "tuned=none")
    code, text = look(*jobs, "eval.every_steps=5120", "eval.episodes=20", probe=True)
    assert code == 0
    assert "~190  <- recommended" in text
    assert "2 jobs, 2 at once: about 17m58s of training, up to 21m28s with evaluations" in text
    assert "fastest with: num_threads=1 infra.workers=2" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_probe_is_part_of_the_data(look, measured):
    _, text = look("env=cartpole", "seed=1,2", "tuned=none", "--json", probe=True)
    found = json.loads(text)["probe"]
    assert found["overrides"] == ["num_threads=1", "infra.workers=2"]
    assert found["measurements"][1]["steps_per_s"] == 190.0
    assert found["training_s"] > 0


def test_nothing_is_measured_where_there_is_a_mistake(look, monkeypatch):
    monkeypatch.setattr(doctor_report, "_measure", lambda *_, **__: pytest.fail("it was measured"))
    assert look("algo=dqn,ppo", probe=True)[0] == 2


def test_nothing_is_measured_for_other_machines(look, monkeypatch):
    code, text = look("-m", "seed=1,2", "infra=slurm", probe=True)
    assert code == 0, text
    assert "no probe: infra=slurm trains on other machines" in text


# What `train -m` takes from it


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("device=cpu,cuda:77", "device=cuda:77"),
        ("callbacks=[],[nowhere.Callback]", "callbacks: nowhere.Callback"),
    ],
)
def test_a_sweep_refuses_late_mistakes_before_a_job_begins(
    in_process, capsys, monkeypatch, line, part
):
    monkeypatch.setattr(multirun, "PRELOAD", ())
    monkeypatch.setattr(multirun, "run_jobs", lambda *_, **__: pytest.fail("a job began"))
    assert dispatch.run("train", ["-m", line]) == 2
    assert part in capsys.readouterr().err
    assert not list(in_process.glob("outputs/sweeps/default"))
