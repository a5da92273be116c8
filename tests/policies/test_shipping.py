"""`scripts/ship.py`: what is shipped of a run is the same each time, small, and of no machine."""

import shutil

import pytest
from test_shipped_policies import FILES

import rlzoo_plus as rz
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.verification import verify
from scripts import ship

SMALL = (
    *("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "algo.hyperparams.n_steps=64"),
    *("eval.every_steps=64", "eval.episodes=1", "report.video=false", "report.plot=false"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machine") / "run"
    return rz.train(*SMALL, n_timesteps=64, run_dir=str(folder), quiet=True)


@pytest.fixture
def quick(monkeypatch):
    for name, value in {"N_EPISODES": 12, "N_OTHER": 1, "VIDEO_S": 0.2}.items():
        monkeypatch.setattr(ship, name, value)


@pytest.mark.training
def test_the_same_run_gives_the_same_files_and_verifies(run, quick, tmp_path):
    made = []
    for name in ("first", "second"):
        ship.make_entry(run, tmp_path / name)
        files = sorted(file for file in (tmp_path / name).rglob("*") if file.is_file())
        made.append({str(f.relative_to(tmp_path / name)): f.read_bytes() for f in files})
    assert made[0].keys() == FILES
    assert made[0] == made[1]
    assert verify(rz.Run.open(tmp_path / "first")).is_exact
    everything = b"".join(made[0].values())
    assert str(run.path).encode() not in everything
    # What was typed is kept without the places of the machine.
    assert b"n_timesteps=64" in made[0]["command.txt"]
    assert b"run_dir" not in made[0]["command.txt"]


@pytest.mark.training
def test_the_best_by_its_own_evaluations_is_taken_of_finished_seeds_of_one_task(run, tmp_path):
    better, other = (tmp_path / name for name in ("better", "other"))
    for copy in (better, other):
        shutil.copytree(run.path, copy)
    result = better / "result.json"
    mean = run.result["best"]["mean_return"]
    result.write_text(result.read_text().replace(f'"mean_return": {mean}', '"mean_return": 9e9'))
    opened = rz.Run.open(better)
    assert ship.best_of([run, opened]) is opened
    config = other / "config.yaml"
    config.write_text(config.read_text().replace("name: ppo", "name: a2c"))
    with pytest.raises(ConfigError, match="more than their seed"):
        ship.best_of([run, rz.Run.open(other)])
    shutil.rmtree(better / "best")
    with pytest.raises(ConfigError, match="Ship finished runs"):
        ship.best_of([opened])


def test_what_is_large_or_names_a_place_of_the_machine_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "config.yaml"
    file.write_text("asset: robots/assets/x.urdf\n")
    ship.check(tmp_path)
    file.write_text("asset: /home/me/x.urdf\n")
    with pytest.raises(ConfigError, match="names a place"):
        ship.check(tmp_path)
    monkeypatch.setattr(ship, "LARGEST_BYTES", 10)
    with pytest.raises(ConfigError, match="10 are allowed"):
        ship.check(tmp_path)
