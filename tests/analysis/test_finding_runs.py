"""Finding runs and telling what became of them."""

import json
import os
import subprocess
import sys
import time

import pytest

from rlzoo_plus.analysis.run_list import cells, find_runs, summarise
from rlzoo_plus.errors import ConfigError


def change_status(run, **changes):
    status = json.loads(run.status_file.read_text())
    run.status_file.write_text(json.dumps({**status, **changes}))


def last_written(run, seconds_ago):
    then = time.time() - seconds_ago
    for file in (run.metrics_file, run.evaluations_file):
        os.utime(file, (then, then))
    change_status(run, updated_at=then)


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_runs_are_found_at_any_depth_and_each_only_once(make_run, tmp_path):
    first, second = make_run(seed=0), make_run(algo="sac", seed=1)
    outputs = tmp_path / "outputs"
    assert find_runs([outputs]) == [first, second]
    assert find_runs([first.path]) == [first]
    assert find_runs([first.path, outputs, tmp_path]) == [first, second]


def test_nothing_is_looked_for_inside_a_run_or_a_hidden_folder(make_run, tmp_path):
    run = make_run()
    for inner in (run.path / "copy", tmp_path / "outputs" / ".trash" / "old"):
        inner.mkdir(parents=True)
        (inner / "status.json").write_text("{}")
    assert find_runs([tmp_path]) == [run]


def test_a_folder_of_configuration_files_is_no_run_and_a_missing_path_is_named(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("defaults: []")
    assert find_runs([tmp_path]) == []
    with pytest.raises(ConfigError, match="nowhere does not exist"):
        find_runs([tmp_path / "nowhere"])


def test_a_finished_run_is_summarised_from_its_files(make_run):
    summary = summarise(make_run(seed=3))
    known = (summary.state, summary.algo, summary.env, summary.seed)
    assert known == ("finished", "ppo", "cartpole", 3)
    assert (summary.steps, summary.n_timesteps, summary.wall_time_s) == (400, 400, 12.5)
    assert summary.best == summary.final == pytest.approx(201.5)
    assert abs(summary.started_at - time.time()) < 60


def test_a_run_that_trained_a_whole_rollout_more_is_not_shown_beyond_its_end(make_run):
    run = make_run(n_timesteps=300)
    summary = summarise(run)
    assert (summary.steps, summary.n_timesteps) == (400, 300)
    assert "400/400" in cells(summary)


def test_best_and_final_of_an_unfinished_run_come_from_its_evaluations(make_run):
    run = make_run(evaluations=[(100, [9.0]), (200, [30.0]), (300, [20.0])])
    run.result_file.unlink()
    run.write_status("interrupted", num_timesteps=250)
    summary = summarise(run)
    assert (summary.state, summary.best, summary.final) == ("interrupted", 30.0, 20.0)
    assert summary.steps == 300


def test_a_resumed_run_shows_what_it_has_reached_since(make_run):
    run = make_run(evaluations=[(100, [9.0])])
    run.write_status("running")
    with run.evaluations_file.open("a") as file:
        file.write('{"step": 500, "returns": [50.0], "mean_return": 50.0}\n')
    summary = summarise(run)
    assert (summary.state, summary.best, summary.steps) == ("running", 50.0, 500)


def test_an_environment_without_a_name_goes_by_its_id(make_run):
    run = make_run()
    text = run.config_file.read_text().replace("name: cartpole", "name: null")
    run.config_file.write_text(text)
    assert summarise(run).env == "cartpole-v0"


@pytest.mark.parametrize("broken", ["", '{"state": "runn', "[]", '{"state": "odd"}', "\x00"])
def test_a_run_with_a_broken_status_is_damaged_and_still_shows_the_rest(make_run, broken):
    run = make_run()
    run.status_file.write_text(broken)
    summary = summarise(run)
    assert (summary.state, summary.algo, summary.best) == ("damaged", "ppo", 201.5 - 1.5)


@pytest.mark.parametrize("broken", ["", "{", "env: 3\nalgo: [x]", "- a", "a: !!python/name:os.x"])
def test_a_run_with_a_broken_configuration_is_damaged(make_run, broken):
    run = make_run()
    run.config_file.write_text(broken)
    assert summarise(run).state == "damaged"


def test_torn_and_senseless_evaluation_lines_are_passed_over(make_run):
    run = make_run(evaluations=[(100, [7.0])])
    run.result_file.unlink()
    with run.evaluations_file.open("ab") as file:
        file.write(b'{"step": null, "mean_return": 9}\n[1]\n{"step": 5, "mean_return": "x"}\n')
        file.write(b'\xff\xfe\n{"step": 200, "returns": 3, "mean_return": 8.0}\n{"step": 300, "me')
    summary = summarise(run)
    assert (summary.state, summary.best, summary.final) == ("finished", 8.0, 8.0)


def test_a_running_run_dies_with_its_process(make_run):
    run = make_run()
    run.write_status("running")
    assert summarise(run).state == "running"
    change_status(run, pid=dead_pid())
    assert summarise(run).state == "died"


def test_a_run_whose_lock_is_free_has_died_whoever_has_its_process_id(make_run):
    run = make_run()
    run.write_status("running")
    with run.lock as lock:
        lock.acquire()
        assert summarise(run).state == "running"
    assert summarise(run).state == "died"


def test_a_process_id_that_was_given_out_again_does_not_revive_an_old_run(make_run):
    run = make_run()
    run.write_status("running")
    last_written(run, 3 * 86400)
    assert summarise(run).state == "died"


def test_a_run_of_another_machine_is_judged_by_when_it_last_wrote(make_run):
    run = make_run()
    run.provenance_file.write_text('{"machine": {"processor": "another one"}}')
    run.write_status("running")
    change_status(run, pid=dead_pid())
    assert summarise(run).state == "running"
    last_written(run, 7200)
    assert summarise(run).state == "died"
