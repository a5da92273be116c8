"""`rlzoo-plus compare`."""

import json

import pytest
from support.written_runs import write_run

from rlzoo_plus.commands.compare import main
from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.errors import ConfigError

pytestmark = pytest.mark.usefixtures("here")


def write_set(root, score, n=5, **options):
    return [write_run(root, seed=seed, score=score + seed, **options) for seed in range(n)]


def as_json(capsys, *arguments):
    code = main([*map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("first", "second", "gate", "code"),
    [
        (200.0, 100.0, "better", 0),
        (100.0, 200.0, "better", 1),
        (100.0, 100.0, "better", 3),
        (200.0, 100.0, "not-worse", 0),
        (100.0, 200.0, "not-worse", 1),
        (100.0, 104.0, "not-worse", 3),
    ],
)
def test_the_gate_answers_by_its_exit_code(tmp_path, capsys, first, second, gate, code):
    write_set(tmp_path / "a", first)
    write_set(tmp_path / "b", second)
    assert main(["a", "b", "--gate", gate]) == code
    assert f"gate: a {gate} than b" in capsys.readouterr().out


def test_a_margin_widens_what_is_not_worse(tmp_path):
    write_set(tmp_path / "a", 100.0)
    write_set(tmp_path / "b", 110.0)
    assert main(["a", "b", "--gate", "not-worse", "--margin", "0"]) == 1
    assert main(["a", "b", "--gate", "not-worse", "--margin", "0.5"]) == 0


def test_the_variants_of_one_folder_are_its_sides(tmp_path, capsys):
    write_set(tmp_path / "s" / "1", 100.0)
    write_set(tmp_path / "s" / "2", 150.0, hyperparams={"gamma": 0.9})
    write_set(tmp_path / "s" / "3", 300.0, algo="sac")
    assert main(["s"]) == 0
    out = capsys.readouterr().out
    assert "ppo gamma=0.9 against ppo gamma=0.99: ppo gamma=0.9 is higher" in out
    assert "ppo gamma=0.9 against sac: sac is higher" in out
    assert "after Holm" in out


def test_several_environments_are_put_on_one_scale(tmp_path, capsys):
    for env, scale in (("hopper", 1.0), ("ant", 1000.0)):
        for algo, score in (("ppo", 100.0), ("sac", 150.0)):
            for seed in range(5):
                write_run(tmp_path / "s", algo, env, seed, scale * (score + seed))
    _, data = as_json(capsys, "s")
    (pair,) = data["pairs"]
    assert [row["env"] for row in pair["rows"]] == ["ant", "hopper", "all"]
    assert pair["rows"][0]["comparison"]["difference"] == pytest.approx(-50_000)
    assert -1 < pair["rows"][2]["comparison"]["difference"] < 0
    assert data["scales"]["ant"]["source"] == "range seen"
    assert pair["decision"] == "sac is higher"


def test_a_published_score_is_the_scale_where_there_is_one(tmp_path, capsys):
    write_set(tmp_path / "a", -200.0, about_env={"id": "Pendulum-v1"})
    write_set(tmp_path / "b", -300.0, about_env={"id": "Pendulum-v1"})
    _, data = as_json(capsys, "a", "b")
    (scale,) = data["scales"].values()
    assert scale["source"] == "random and published score"
    assert scale["zero"] < -1000


def test_the_same_seed_twice_counts_once_and_it_is_said_which(tmp_path, capsys):
    write_set(tmp_path / "a", 100.0)
    last = write_run(tmp_path / "a", seed=0, score=150.0, name="again")
    write_set(tmp_path / "b", 100.0)
    assert main(["a", "b"]) == 0
    error = capsys.readouterr().err
    assert "seed 0 of ppo" in error
    assert f"the newest run is used, {last.path.relative_to(tmp_path)}, not" in error
    _, data = as_json(capsys, "a", "b")
    assert len(data["sides"][0]["runs"]["cartpole"]) == 5


def test_runs_that_train_died_or_are_damaged_do_not_count_and_it_is_said(tmp_path, capsys):
    write_set(tmp_path / "a", 100.0)
    write_set(tmp_path / "b", 100.0)
    write_run(tmp_path / "a", seed=7, state="interrupted")
    write_run(tmp_path / "a", seed=8, state="failed", message="out of memory")
    write_run(tmp_path / "a", seed=9).config_file.write_text("{")
    assert main(["a", "b"]) == 0
    error = capsys.readouterr().err
    assert "left out, it is interrupted" in error
    assert "left out, out of memory" in error
    assert "left out, config.yaml cannot be read" in error


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (
            {"about_env": {"kwargs": {"mass": 2}}},
            "env.kwargs.mass",
        ),
        ({"steps": (1000, 2000)}, r"n_timesteps \(4000, 2000\)"),
        ({"eval": {"episodes": 50, "deterministic": True}}, r"eval.episodes \(5, 50\)"),
    ],
)
def test_runs_that_were_measured_otherwise_are_refused_with_the_keys(tmp_path, options, named):
    write_set(tmp_path / "a", 100.0)
    write_set(tmp_path / "b", 100.0, **options)
    with pytest.raises(ConfigError, match=f"differ in {named}"):
        main(["a", "b"])


@pytest.mark.parametrize("is_default", [True, False])
def test_runs_of_different_physics_engines_are_refused_by_name(tmp_path, is_default):
    robot = {"id": "robots/CartPoleBalance-v0"}
    asked = {} if is_default else {"engine": "mujoco"}
    write_set(tmp_path / "a", 100.0, about_env=robot)
    for run in write_set(tmp_path / "b", 100.0, about_env={**robot, "kwargs": asked}):
        if is_default:
            run.add_provenance("engine", "mujoco 4.0.0")
    with pytest.raises(
        ConfigError, match=r"physics engines: bullet \(.+\), mujoco \(.+\)"
    ) as caught:
        main(["a", "b"])
    assert "\n" not in str(caught.value)
    write_set(tmp_path / "c", 120.0, about_env=robot)
    assert main(["a", "c"]) == 0


def test_other_environments_are_refused(tmp_path):
    write_set(tmp_path / "a", 100.0)
    write_set(tmp_path / "b", 100.0, algo="sac", env="hopper")
    with pytest.raises(ConfigError, match=r"differ in env\.name: cartpole there, hopper here"):
        main(["a", "b"])


def test_few_seeds_have_no_interval_and_a_warning(tmp_path, capsys):
    write_set(tmp_path / "a", 100.0, n=2)
    write_set(tmp_path / "b", 100.0, n=2)
    assert main(["a", "b", "--gate", "better"]) == 3
    out = capsys.readouterr().out
    assert " -  " in out
    assert "fewer than 5 seeds" in out


def test_patterns_name_runs(tmp_path, capsys):
    write_set(tmp_path / "a", 100.0)
    write_set(tmp_path / "b", 100.0)
    assert main(["a/cartpole/ppo/s[0-4]", "b"]) == 0
    assert "n=5" in capsys.readouterr().out


def test_wrong_arguments_are_one_line(tmp_path, capsys):
    write_set(tmp_path / "a", 100.0)
    for arguments, message in [
        (["a"], "there are 1 sides with finished runs (ppo)"),
        (["a", "a"], "a is given twice"),
        (["a", "a/cartpole"], "is in a and in a/cartpole"),
        (["nowhere*"], "matches nothing"),
        (["a", "--margin", "0.1"], "--margin is for --gate"),
        (["a", "--gate", "better", "--margin", "-1"], "must be at least 0"),
    ]:
        assert run_verb("compare", arguments) == 2
        assert message in capsys.readouterr().err


def test_help_gives_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "Example: rlzoo-plus compare" in capsys.readouterr().out


def write_rewarded(root, weight, success, **about_env):
    """Write runs with another weight in their reward; `success` is that of the last evaluation."""
    about = {"kwargs": {"reward": {"effort": weight}}, **about_env}
    for run in write_set(root, 100.0 * weight, about_env=about):
        rows = [json.loads(line) for line in run.evaluations_file.read_text().splitlines()]
        for number, row in enumerate(rows):
            row |= {"success_rate": success if number == len(rows) - 1 else 0.5}
        run.evaluations_file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_other_rewards_are_compared_by_what_both_measure(tmp_path, capsys):
    write_rewarded(tmp_path / "a", 1.0, 0.9)
    write_rewarded(tmp_path / "b", 5.0, 0.4)
    with pytest.raises(ConfigError, match=r"effort.*--metric success_rate"):
        main(["a", "b"])
    assert main(["a", "b", "--metric", "success_rate", "--gate", "better"]) == 0
    out = capsys.readouterr().out
    assert "of the final evaluation's success_rate" in out
    assert "0.9 (n=5)" in out
    _, data = as_json(capsys, "a", "b", "--metric", "success_rate", "--score", "best")
    assert {each["score"] for each in data["sides"][1]["runs"]["cartpole"]} == {0.5}
    (scale,) = data["scales"].values()
    assert (scale["zero"], scale["one"]) == (0.4, 0.9)


def test_a_metric_does_not_excuse_another_task(tmp_path):
    write_rewarded(tmp_path / "a", 1.0, 0.9, time_limit=10)
    write_rewarded(tmp_path / "b", 5.0, 0.4, time_limit=20)
    with pytest.raises(ConfigError, match="time_limit"):
        main(["a", "b", "--metric", "success_rate"])


def test_a_metric_that_is_not_measured_is_named_with_the_nearest(tmp_path):
    write_rewarded(tmp_path / "a", 1.0, 0.9)
    with pytest.raises(ConfigError, match="Did you mean 'success_rate'"):
        main(["a", "--metric", "sucess_rate"])
