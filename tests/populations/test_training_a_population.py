"""A whole population by the command line: killed, gone on, and its best trained again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.populations.lineage import weights_digest
from rlzoo_plus.populations.population import LOG

pytestmark = [pytest.mark.training, pytest.mark.slow]
OPTIONS = "hpo.sampler_options={population: 3, segments: 3, share: 0.4}"
WORDS = (
    *("-m", "hpo=ppo", "hpo.sampler=pbt", OPTIONS, "env=cartpole_bullet", "n_timesteps=3072"),
    *("hpo.study=./people", "eval.every_steps=512", "eval.episodes=1", "infra.workers=2"),
    *("n_envs=2", "algo.hyperparams.n_steps=128", "network.net_arch=[8]"),
)


def start(folder, *words):
    command = [sys.executable, "-m", "rlzoo_plus", "train", *words]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def run(folder, *words):
    process = start(folder, *words)
    text, _ = process.communicate(timeout=400)
    return process.returncode, text


def log_of(folder):
    return [json.loads(line) for line in (folder / "people" / LOG).read_text().splitlines()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder of a population whose command was killed twice."""
    folder = tmp_path_factory.mktemp("population")
    for count in (2, 5):
        process = start(folder, *WORDS)
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and process.poll() is None:
            path = folder / "people" / LOG
            if path.is_file() and path.read_text().count('"result"') >= count:
                break
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    code, text = run(folder, *WORDS)
    assert code == 0, text
    return folder


def test_two_kills_lose_no_decision_and_no_part(trained):
    records = log_of(trained)
    tasks = [r["task"] for r in records if "task" in r]
    results = [r["result"] for r in records if "result" in r]
    assert len({(t["member"], t["segment"]) for t in tasks}) == len(tasks) == 9
    assert len({(r["member"], r["segment"]) for r in results}) == len(results) == 9
    assert [r["step"] for r in results if r["segment"] == 3] == [3072] * 3
    assert any(task["parent"] for task in tasks)


def test_the_best_is_trained_again_bit_for_bit(trained):
    again = trained / "again"
    code, text = run(trained, "schedule=people/schedule.json", f"run_dir={again}")
    assert code == 0, text
    assert "the same weights, bit for bit" in text


def test_a_branch_is_trained_again_bit_for_bit(trained):
    from rlzoo_plus.populations.population import Population
    from rlzoo_plus.tuning.population_settings import PopulationSettings

    settings = PopulationSettings(population=3, segments=3)
    people = Population(trained / "people", settings, 0, 3072, None)
    branch = next(t for t in reversed(people.history) if not t.run.endswith("/0"))
    schedule = json.loads((trained / "people" / "schedule.json").read_text())
    parts = []
    for task in people.lineage(branch.run):
        stored = RunDir(trained / "people" / task.run)
        config = schedule["parts"][0]["config"] | _values_of(stored)
        parts.append({"from_step": task.parent_step, "config": config})
    own = weights_digest(RunDir(trained / "people" / branch.run))
    write_json(trained / "branch.json", {**schedule, "parts": parts, "weights_sha256": own})
    code, text = run(trained, "schedule=branch.json", "run_dir=branched")
    assert code == 0, text
    assert len(list((trained / "branched").iterdir())) == len(parts) >= 2
    # Killed and gone on: what is there is not trained again.
    assert run(trained, "schedule=branch.json", "run_dir=branched")[0] == 0


def _values_of(run_dir):
    from rlzoo_plus.analysis.find_run import stored_config

    config = stored_config(run_dir).model_dump(exclude={"run_dir", "sweep", "store", "hpo"})
    return json.loads(json.dumps(config))


def test_the_same_command_does_nothing_more(trained):
    before = (trained / "people" / LOG).read_text()
    code, text = run(trained, *WORDS)
    assert code == 0, text
    assert (trained / "people" / LOG).read_text() == before


def test_seldom_evaluations_and_long_rollouts_come_to_the_end(tmp_path):
    """Rollouts of 1,024 steps in parts of 512, evaluated every 1,500 if nothing else were said."""
    words = [*WORDS, "hpo.sampler_options={population: 4, segments: 6, share: 0.4}"]
    words += ["eval.every_steps=1500", "algo.hyperparams.n_steps=512"]
    code, text = run(tmp_path, *words)
    assert code == 0, text
    records = [r["result"] for r in log_of(tmp_path) if "result" in r]
    assert sorted({r["step"] for r in records}) == [1024, 2048, 3072]
    assert len(records) == 24
    code, text = run(tmp_path, "schedule=people/schedule.json", "run_dir=again")
    assert code == 0, text


def test_networks_that_grow_are_trained_again_bit_for_bit(tmp_path):
    words = [word for word in WORDS if not word.startswith("network.")]
    words += ["network.net_arch=[8],[16]", "algo.hyperparams.n_epochs=3", "hpo.warm_start=false"]
    words += ["hpo.sampler_options={population: 4, segments: 4, share: 0.5, grow: 1.0}"]
    code, text = run(tmp_path, *words)
    assert code == 0, text
    tasks = [record["task"] for record in log_of(tmp_path) if "task" in record]
    nets = {task["run"]: task["params"]["network.net_arch"] for task in tasks}
    grown = [t for t in tasks if t["parent"] and nets[t["run"]] != nets[t["parent"]]]
    assert grown
    assert all((nets[t["parent"]], nets[t["run"]]) == ("[8]", "[16]") for t in grown)
    last = tmp_path / "people" / grown[0]["run"]
    weights = RunDir(last).checkpoints().load_newest().state["agent"]["parameters"]["policy"]
    assert weights["mlp_extractor.policy_net.0.weight"].shape[0] == 16
    code, text = run(tmp_path, "schedule=people/schedule.json", "run_dir=again")
    assert code == 0, text
    assert "the same weights, bit for bit" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["network.net_arch=[8],[4,4]"], "no network.net_arch that is wider"),
        (["network=simba", "network.net_arch=[8],[16]", "algo=sac", "hpo=sac"], "normalization"),
    ],
)
def test_networks_that_cannot_grow_are_refused_before_anything_trains(tmp_path, words, told):
    rest = [one for one in WORDS if not one.startswith("network.")]
    if "algo=sac" in words:
        rest = [one for one in rest if not one.startswith(("algo.", "n_envs"))]
    code, text = run(tmp_path, *rest, *words, "hpo.sampler_options={grow: 0.5}")
    assert code == 2
    assert told in text
    assert "Traceback" not in text


def test_forged_schedules_run_nothing(trained):
    schedule = json.loads((trained / "people" / "schedule.json").read_text())
    write_json(trained / "other.json", {**schedule, "weights_sha256": "0" * 64})
    code, text = run(trained, "schedule=other.json", "run_dir=again")
    assert code == 1
    assert "other weights than other.json says" in text
    config = schedule["parts"][0]["config"] | {"packages": ["evil"]}
    env = config["env"] | {"packages": ["evil"]}
    part = {"from_step": 0, "config": {**schedule["parts"][0]["config"], "env": env}}
    write_json(trained / "evil.json", {**schedule, "parts": [part]})
    Path(trained / "evil.py").write_text("open('executed', 'w')\n")
    code, text = run(trained, "schedule=evil.json", "run_dir=evil")
    assert code == 2
    assert "needs code that is not ours: evil" in text
    assert not (trained / "executed").exists()
    for content in ({}, {**schedule, "parts": []}, {**schedule, "parts": [{"from_step": 3}]}):
        write_json(trained / "bad.json", content)
        code, text = run(trained, "schedule=bad.json", "run_dir=bad")
        assert (code, "schedule=bad.json is damaged" in text) == (2, True), text
    assert "schedule=none.json: no such file" in run(trained, "schedule=none.json", "run_dir=x")[1]
    code, text = run(trained, "schedule=people/schedule.json")
    assert code == 2
    assert "add run_dir=FOLDER" in text
