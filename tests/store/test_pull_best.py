"""`pull --best` trusts what policies do here, not what records say of them."""

import json
import shutil

import numpy as np
import pytest
from support.stores import s3_server

import rlzoo_plus as rz
from rlzoo_plus.analysis.progress import about_run, read_report
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.best import find_best
from rlzoo_plus.runs.run import Run
from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.lease import lease_name
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.zips import zip_files

pytestmark = pytest.mark.training
EPISODES = ("--episodes", 20)


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    """Return finished runs: a policy that balances the pole, and one that hardly began to learn."""
    root = tmp_path_factory.mktemp("policies")
    small = ("algo=ppo", "env=cartpole", "tuned=none", "n_envs=4", "algo.hyperparams.n_steps=128")
    small += ("algo.hyperparams.batch_size=64", "algo.hyperparams.learning_rate=0.002")
    small += ("eval.episodes=5", "log.tensorboard=false", "report.video=false", "report.plot=false")
    for seed, (name, steps) in enumerate((("poor", 512), ("good", 8192)), 1):
        length = (f"n_timesteps={steps}", f"eval.every_steps={steps}", f"run_dir={root / name}")
        rz.train(*small, *length, seed=seed, quiet=True)
    return root


@pytest.fixture
def store(here):
    return open_store(here / "store")


def _put(store, name, path, **claims):
    """Put a run into a store, whose record makes some claims."""
    RunMirror(store, name, path).push()
    (path / ".store.json").unlink()
    _claim(store, name, {**about_run(Run.open(path).config), **read_report(RunDir(path)), **claims})


def _claim(store, name, claims):
    store.put(lease_name(name), json.dumps({"format": 1, "state": "finished", **claims}).encode())


def _returns(value):
    return {"step": 512, "mean_return": value, "iqm_return": value}


def test_the_best_policy_is_brought_however_bad_its_record(store, policies, here, say):
    _put(store, "sweep/poor", policies / "poor", best=_returns(499))
    _put(store, "sweep/good", policies / "good", best=_returns(20))
    _claim(store, "sweep/begun", {"state": "running", "env": "cartpole", "algo": "ppo"})
    code, out, err = say("pull", store.url, "--best", "env=cartpole", *EPISODES)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "2 finished runs on cartpole; not finished: running (1)"
    table = [line for line in lines if line.startswith(("algo ", "ppo "))]
    assert [line.split()[-1] for line in table] == ["run", "sweep/good", "sweep/poor"]
    assert "best: sweep/good" in lines
    assert "outputs/sweep/good" in lines
    assert lines[-1].endswith("rlzoo-plus export outputs/sweep/good")
    kept = (here / "outputs/sweep/good/best/MANIFEST.json").read_bytes()
    assert kept == (policies / "good/best/MANIFEST.json").read_bytes()


def test_the_figures_are_those_of_evaluate(store, policies):
    _put(store, "sweep/poor", policies / "poor")
    _put(store, "sweep/good", policies / "good")
    best = find_best(store.url, metric="mean", episodes=20)
    assert best.n_tied == 1
    for played, name in zip(best.played, ("good", "poor"), strict=True):
        record = Run.open(policies / name).evaluate(20)
        assert played.values.tolist() == record["returns"]
        assert played.score.value == record["mean_return"]
        assert played.score.low <= played.score.value <= played.score.high
    first, second = best.played
    assert first.behind is None
    assert second.behind.value == pytest.approx(np.mean(first.values - second.values))
    assert 0 < second.behind.low < second.behind.value < second.behind.high


def test_two_copies_of_a_policy_are_a_tie(store, policies, here, say):
    _put(store, "sweep/a", policies / "good", best=_returns(480))
    _put(store, "sweep/b", policies / "good", best=_returns(490))
    _put(store, "sweep/c", policies / "poor", best=_returns(470))
    code, out, _ = say("pull", store.url, "--best", "--json", *EPISODES)
    said = json.loads(out)
    assert code == 0
    assert sorted(said["tied"]) == ["sweep/a", "sweep/b"]
    assert said["winner"] == "sweep/b"
    assert said["runs"][1]["behind"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert said["path"] == "outputs/sweep/b"
    code, out, _ = say("pull", store.url, "--best", *EPISODES, "--to", here / "again")
    assert "cannot be told apart: the interval of their difference contains 0" in out
    assert "taken: sweep/b, the best of them by record" in out
    assert (here / "again/config.yaml").is_file()


def test_a_sweep_of_a_store_is_searched_alone(store, policies):
    _put(store, "one/poor", policies / "poor")
    _put(store, "two/good", policies / "good")
    best = find_best(f"{store.url}/one", episodes=20)
    assert [played.candidate.run for played in best.played] == ["one/poor"]


def test_in_s3_a_pushed_run_is_found_with_its_checkpoints(policies, here, monkeypatch, capsys, say):
    with s3_server(monkeypatch) as url:
        for name in ("poor", "good"):
            run_verb("push", [str(policies / name), url, "--name", f"sweep/{name}"])
            (policies / name / ".store.json").unlink()
        capsys.readouterr()
        code, out, _ = say(
            "pull", f"{url}/sweep", "--best", "algo=ppo", *EPISODES, "--state", "--to", "mine"
        )
        assert code == 0
        assert "best: sweep/good" in out
        assert "rlzoo-plus resume mine" in out


def test_success_is_compared_where_it_is_reported(store, policies, here):
    _put(store, "sweep/good", policies / "good", best={"success_rate": 1.0})
    _put(store, "sweep/poor", policies / "poor", best={"success_rate": 7.0})
    with pytest.raises(ConfigError, match="does not report success"):
        find_best(store.url, metric="success", episodes=20)


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (["algo=sac"], "no finished run of algo=sac. There are: algo=ppo env=cartpole (2), "),
        (["env=gone"], "no finished run of env=gone. There are: algo=ppo env=cartpole (2), "),
        ([], "name one environment, env=NAME. There are: algo=ppo env=cartpole (2), algo=a2c en"),
        (["env=hopper"], "no finished run of env=hopper. There are"),
        (["seed=3"], "seed=3: runs are chosen by algo=NAME and env=NAME"),
        (["--episodes", "5", "env=cartpole"], "episodes=5 must be at least"),
        (["--to", ".", "env=cartpole"], ". exists. Choose another directory"),
    ],
)
def test_a_mistake_is_one_line(store, here, say, filters, said):
    for number in range(2):
        _claim(store, f"s/{number}", {"env": "cartpole", "algo": "ppo", "best": _returns(1)})
    _claim(store, "s/2", {"env": "pendulum", "algo": "a2c", "best": _returns(1)})
    _claim(store, "s/3", {"env": "hopper", "algo": "a2c", "state": "failed"})
    code, out, err = say("pull", store.url, "--best", *filters)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (here / "outputs").exists()


@pytest.mark.parametrize("url", ["nothing", "s3:/", "store/gone/sweep"])
def test_a_store_without_runs_is_one_line_and_stays_as_it_is(here, say, url):
    (here / "store").mkdir()
    code, _, err = say("pull", url, "--best")
    assert code == 2
    assert err.count("\n") == 1
    assert [path.name for path in here.iterdir() if path.name != "cache"] == ["store"]
    assert not list((here / "store").iterdir())


def _hostile(**changes):
    base = {"state": "finished", "env": "cartpole", "algo": "ppo", "best": _returns(1e308)}
    return json.dumps({**base, **changes}).encode()


HOSTILE = [
    # tests/store/test_live.py has others that are damaged.
    b"\xff\xfe",
    b'{"state": "finished", "env": "cartpole", "algo": "ppo", "best": {"iqm_return": 1e999}}',
    _hostile(best={"iqm_return": "500"}),
    _hostile(best=[500]),
    _hostile(best={"iqm_return": True}),
    _hostile(best={"iqm_return": 10**400}),
    _hostile(best=None),
    _hostile(algo=["ppo"]),
    _hostile(env=None),
    _hostile(state={"finished": 1}),
    _hostile(algo="\x1b[2Jppo"),
    _hostile(best=_returns(1), steps=1e308, seed=-1e308),
    b"0" * 10**6,
]


def test_hostile_records_are_passed_over(store, policies, say):
    _put(store, "sweep/good", policies / "good")
    for number, record in enumerate(HOSTILE):
        store.put(f"live/sweep/evil{number}.json", record)
    code, out, err = say("pull", store.url, "--best", "algo=ppo", *EPISODES)
    assert (code, err) == (0, "")
    assert "best: sweep/good" in out
    assert "\x1b" not in out


def _climb(path, store):
    store.put("runs/sweep/evil/best.zip", zip_files({"../../evil": b"x"}))


def _another_algorithm(path, store):
    text = (path / "config.yaml").read_text().replace("  name: cartpole", "  name: other")
    store.put("runs/sweep/evil/config.yaml", text.encode())


def _target(path, store):
    text = (path / "config.yaml").read_text()
    store.put("runs/sweep/evil/config.yaml", (text + "_target_: os.system\n").encode())


def _other_policy(path, store):
    """The bundle is whole, and of another environment."""
    text = (path / "config.yaml").read_text().replace("CartPole-v1", "Acrobot-v1")
    store.put("runs/sweep/evil/config.yaml", text.encode())


def _no_files(path, store):
    shutil.rmtree(store.root / "runs/sweep/evil")


@pytest.mark.parametrize("forge", [_climb, _another_algorithm, _target, _other_policy, _no_files])
def test_a_hostile_run_makes_room_for_the_next(store, policies, here, forge, say):
    _put(store, "sweep/evil", policies / "good", best=_returns(1e308))
    _put(store, "sweep/good", policies / "good")
    forge(policies / "good", store)
    before = sorted(path.name for path in here.iterdir())
    code, out, err = say("pull", store.url, "--best", "--top", 1, *EPISODES)
    assert (code, err) == (0, "")
    (note,) = (line for line in out.splitlines() if line.startswith("note: "))
    assert note.startswith("note: left out: sweep/evil: ")
    assert "best: sweep/good" in out
    assert sorted(path.name for path in here.iterdir()) == sorted({*before, "cache", "outputs"})


def test_a_run_too_large_for_here_is_left_out(store, policies, monkeypatch):
    _put(store, "sweep/evil", policies / "good", best=_returns(1e308))
    _put(store, "sweep/good", policies / "good")
    get_file = type(store).get_file

    def claims_10_gb(self, name, path, largest):
        if name.startswith("runs/sweep/evil"):
            raise StoreError(f"{name} has 10000000000 bytes, more than the {largest} allowed")
        return get_file(self, name, path, largest)

    monkeypatch.setattr(type(store), "get_file", claims_10_gb)
    best = find_best(store.url, episodes=20)
    assert best.winner.candidate.run == "sweep/good"
    assert "10000000000 bytes" in best.notes[0]


def test_code_of_a_run_is_imported_only_with_trust(store, policies, here, say):
    _put(store, "sweep/own", policies / "good", best=_returns(1e308))
    _put(store, "sweep/good", policies / "good")
    text = (policies / "good/config.yaml").read_text()
    changed = text.replace("packages: []", "packages: [evil_package]")
    assert changed != text
    store.put("runs/sweep/own/config.yaml", changed.encode())
    (here / "evil_package.py").write_text("open('imported', 'w').close()")
    code, _, err = say("pull", store.url, "--best", *EPISODES)
    assert code == 2
    assert "evil_package" in err
    assert "add --trust" in err
    assert err.count("\n") == 1
    assert not (here / "imported").exists()
    assert not (here / "outputs").exists()


def test_different_environments_are_told(store, policies, here):
    _put(store, "sweep/a", policies / "good")
    _put(store, "sweep/b", policies / "good")
    text = (policies / "good/config.yaml").read_text()
    changed = text.replace("time_limit: null", "time_limit: 100")
    assert changed != text
    store.put("runs/sweep/b/config.yaml", changed.encode())
    best = find_best(store.url, episodes=20)
    assert any("environments differ (time_limit)" in note for note in best.notes)


@pytest.mark.parametrize("words", [("--metric", "mean"), ("--top", "9"), ("--episodes", "5")])
def test_what_is_for_the_best_alone_is_refused_without_it(words, capsys):
    with pytest.raises(SystemExit):
        run_verb("pull", ["s3://bucket/lab/run", *words])
    assert "--metric, --top, --episodes and --json need --best" in capsys.readouterr().err
