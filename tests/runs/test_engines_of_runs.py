"""A run says its physics engine; it does not go on with another, and a policy may visit it."""

from contextlib import closing

import pytest
from support.training import make_config

from benchmarks.sim_to_sim import HEADS, play, row
from rlzoo_plus.artifacts.provenance import package_version
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.envs.engine import engine_of, engine_version, is_same_engine, trained_engine
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.plan import Start, plan_run
from rlzoo_plus.runs.run import train
from rlzoo_plus.training.resume.fingerprint import numeric_fingerprint
from robots import engines
from robots.engines import ENGINES

CARTPOLE = ("algo=ppo", "env=cartpole_bullet")
MUJOCO, BULLET = "env.kwargs.engine=mujoco", "env.kwargs.engine=bullet"


def version(name):
    return f"{name} {package_version(ENGINES[name].package)}"


def begun(path, *words, recorded=None):
    """Return the words of a run that was begun, and stopped before its first checkpoint."""
    words = (*CARTPOLE, f"run_dir={path}", *words)
    provenance = {} if recorded is None else {"engine": recorded}
    path.mkdir()
    RunDir(path).start(make_config(*words).model_dump(mode="json"), "a test", provenance)
    return words


def test_only_robots_have_an_engine():
    asked = make_config(*CARTPOLE, MUJOCO).env
    assert engine_version(asked) == version("mujoco")
    other = make_config("algo=ppo", "env=gym", "env.id=Pendulum-v1").env
    assert engine_version(other) is None
    assert trained_engine({"engine": "bullet 3"}, other.id, None) is None


def test_runs_from_before_it_was_recorded_have_bullet():
    robot = ("robots/CartPoleBalance-v0", None)
    assert trained_engine({}, *robot) == "bullet"
    assert trained_engine({"engine": 3}, *robot) == "bullet"
    assert "\x1b" not in trained_engine({"engine": "\x1b[2J" * 99}, *robot)
    assert is_same_engine("bullet 3.2.7", trained_engine({}, *robot))


def test_an_engine_that_is_unknown_is_refused():
    with pytest.raises(ConfigError, match="engine='mujok' is unknown"):
        engine_of(make_config(*CARTPOLE, "env.kwargs.engine=mujok").env)


@pytest.mark.parametrize(
    ("before", "now"), [((), (MUJOCO,)), ((MUJOCO,), ()), ((MUJOCO,), (BULLET,))]
)
def test_a_run_does_not_go_on_with_another_engine_that_is_asked_for(tmp_path, before, now):
    recorded = version("mujoco" if before else "bullet")
    words = begun(tmp_path / "run", *before, recorded=recorded)
    kept = [word for word in words if word not in before]
    with pytest.raises(ConfigError) as caught:
        plan_run(make_config(*kept, *now))
    told = str(caught.value)
    assert version("bullet") in told
    assert version("mujoco") in told
    assert "\n" not in told


def test_nor_with_another_default_of_the_machine(tmp_path, monkeypatch):
    words = begun(tmp_path / "run", recorded=version("bullet"))
    assert plan_run(make_config(*words)).start is Start.RESUME
    monkeypatch.setattr(engines, "chosen_engine", lambda _: "mujoco")
    with pytest.raises(ConfigError, match=r"with the engine bullet .* go on with mujoco "):
        plan_run(make_config(*words))


def test_another_version_of_the_engine_is_no_other_engine(tmp_path):
    words = begun(tmp_path / "run", MUJOCO, recorded="mujoco 3.3.0")
    assert plan_run(make_config(*words)).start is Start.RESUME
    assert numeric_fingerprint("cpu", ["mujoco"])["mujoco"] == package_version("mujoco")


@pytest.mark.parametrize(("recorded", "named"), [("mujoco", MUJOCO), ("bullet", BULLET)])
def test_a_run_goes_on_with_its_own_engine_named(tmp_path, recorded, named):
    words = begun(tmp_path / "run", recorded=version(recorded))
    plan = plan_run(make_config(*words, named))
    assert plan.start is Start.RESUME
    assert engine_of(plan.config.env) == recorded


def test_naming_an_engine_excuses_no_other_change(tmp_path):
    words = begun(tmp_path / "run", recorded=version("mujoco"))
    with pytest.raises(ConfigError, match=r"go on with bullet .* env\.kwargs\.engine=mujoco"):
        plan_run(make_config(*words))
    with pytest.raises(ConfigError, match=r"env\.kwargs\.latency: 'not set' there, 1 here"):
        plan_run(make_config(*words, MUJOCO, "env.kwargs.latency=1"))


def few_steps(path, *words, n_timesteps=64):
    """Train a run of few steps as `train` does."""
    usual = ("algo=ppo", "env=cartpole_bullet", "env.time_limit=20", "tuned=none", "n_envs=1")
    few = ("algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16", "num_threads=1")
    quiet = ("report.video=false", "report.plot=false", "log.tensorboard=false", "device=cpu")
    length = f"n_timesteps={n_timesteps}"
    return train(*usual, *few, *quiet, *words, length, f"run_dir={path}", quiet=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a run on MuJoCo."""
    return few_steps(tmp_path_factory.mktemp("runs") / "run", MUJOCO)


@pytest.mark.training
def test_a_run_without_pybullet_goes_on_bit_for_bit_where_it_is_installed(tmp_path, monkeypatch):
    whole = few_steps(tmp_path / "whole", MUJOCO, n_timesteps=128)
    with monkeypatch.context() as patch:
        engines._default.cache_clear()
        patch.setattr(engines, "_is_installed", lambda package: package == "mujoco")
        few_steps(tmp_path / "run")
    engines._default.cache_clear()
    resumed = few_steps(tmp_path / "run", MUJOCO, n_timesteps=128)
    assert resumed.run_dir.read_provenance()["engine"] == version("mujoco")
    for part in ("networks and targets", "optimizers", "random generators", "monitor rows"):
        assert run_digests(resumed.run_dir)[part] == run_digests(whole.run_dir)[part]
    (known,) = resumed.run_dir.read_result()["inexact_because"]
    assert "64 to 128 steps" in known


@pytest.mark.training
def test_a_run_records_its_engine(trained):
    assert trained.run_dir.read_provenance()["engine"] == version("mujoco")
    assert trained.trained_engine == version("mujoco")


@pytest.mark.training
def test_an_evaluation_says_when_the_engine_is_another(trained, answer):
    own, other = trained.evaluate(1), trained.evaluate(1, overrides=[BULLET])
    assert own["engine"] == own["trained_engine"] == other["trained_engine"] == version("mujoco")
    assert other["engine"] == version("bullet")
    for name in ENGINES:
        # A cart-pole touches nothing: its numbers are almost the same on both.
        config, _ = trained.changed_config([f"env.kwargs.engine={name}"])
        with closing(trained.env(1, config=config)) as venv:
            assert venv.get_attr("simulation")[0].engine == name
    path = str(trained.path)
    code, text = answer("evaluate", path, "--episodes", "1", BULLET)
    assert code == 0, text
    assert f"{version('bullet')}; it was trained with {version('mujoco')}" in text
    code, text = answer("evaluate", path, "--episodes", "1")
    assert code == 0, text
    assert "trained with" not in text


@pytest.mark.training
def test_the_table_of_both_engines_has_a_row_for_a_run(trained):
    records = play(trained, "final", 2)
    cells = row(trained, records)
    assert len(cells) == len(HEADS)
    assert cells[2] == version("mujoco")
    assert [record["engine"] for record in records.values()] == [version(name) for name in ENGINES]


@pytest.mark.training
@pytest.mark.parametrize(("own", "other", "kept"), [(200.0, 150.0, "75%"), (-5.0, -6.0, "-")])
def test_what_is_kept_is_a_share_of_the_return_on_the_own_engine(trained, own, other, kept):
    means = {"bullet": other, "mujoco": own}
    records = {
        name: {"engine": name, "mean_return": mean, "std_return": 1.0, "success_rate": None}
        for name, mean in means.items()
    }
    assert row(trained, records)[-1] == kept
