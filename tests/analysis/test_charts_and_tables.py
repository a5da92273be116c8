"""Charts of scores, tables, other axes than steps, and the logs of rl_zoo3."""

import csv
import io
import pickle
import zipfile

import numpy as np
import pytest
from support.tex import read_table
from support.written_runs import write_run

from rlzoo_plus.analysis.charts import KINDS, threshold_figure
from rlzoo_plus.analysis.clocks import positions
from rlzoo_plus.analysis.comparison_report import compare_sides
from rlzoo_plus.analysis.estimates import estimate
from rlzoo_plus.analysis.index import load_runs
from rlzoo_plus.analysis.scores import make_sides
from rlzoo_plus.analysis.tables import table
from rlzoo_plus.analysis.zoo_logs import load_zoo_runs
from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.errors import ConfigError


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def sides(tmp_path):
    """Return the sides of two algorithms on two environments, and how many seeds they have."""

    def make(n=5):
        for env in ("ant", "hopper"):
            for number, algo in enumerate(("a_2$c", "ppo")):
                for seed in range(n):
                    write_run(tmp_path / "runs", algo, env, seed, 100.0 * (1 + number) + seed)
        return make_sides({"": load_runs([tmp_path / "runs"])})[0]

    return make


def texts(figure):
    return [t.get_text() for axes in figure.axes for t in axes.texts]


@pytest.mark.parametrize("kind", ["scores", "improvement"])
@pytest.mark.parametrize("n", [1, 5])
def test_every_chart_can_be_drawn_of_few_and_of_enough_seeds(sides, kind, n):
    figure = KINDS[kind](sides(n), "final")
    figure.draw_without_rendering()
    legend = [text.get_text() for each in figure.legends for text in each.get_texts()]
    if kind == "scores":
        assert any("fewer than 5 seeds" in text for text in legend) == (n == 1)


def test_a_performance_profile_takes_five_seeds(sides):
    with pytest.raises(ConfigError, match=r"profile of 4 seeds .* takes 5 .* --kind scores"):
        KINDS["profile"](sides(4), "final")


def test_the_probability_of_improvement_is_written_with_its_interval(sides):
    found = texts(KINDS["improvement"](sides(), "final"))
    assert found == ["0.00\n[0.00, 0.00]", "1.00\n[1.00, 1.00]"]


def test_the_steps_to_a_threshold_count_the_seeds_that_never_reach_it(sides):
    found = sides()
    figure = threshold_figure(found, 103.0)
    assert texts(figure) == ["2 of 5", "5 of 5"] * 2
    with pytest.raises(ConfigError, match="--threshold"):
        threshold_figure(found)


def test_the_table_has_a_row_for_each_variant_and_environment_and_marks_the_best(sides):
    found = sides()
    assert table(found, "md").count("**") == 4
    rows = list(csv.DictReader(io.StringIO(table(found, "csv"))))
    assert [row["environment"] for row in rows] == ["ant", "ant", "hopper", "hopper"]
    assert float(rows[1]["final_iqm"]) == pytest.approx(202.0)


def test_the_table_of_a_paper_groups_environments_and_says_once_what_is_alike(sides):
    tex = table(sides(), "tex")
    caption, rows = read_table(tex)
    assert "over 5 seeds [95\\,\\% bootstrap interval]. Bold: higher than each other" in caption
    head, first, second, space, *others = rows
    assert head == ["Environment", "Variant", "Final", "Best"]
    assert first[:2] == ["ant", r"a\_2\$c"]
    assert first[2].startswith("102 [")
    assert second[:2] == ["", "ppo"]
    assert second[2].startswith(r"\textbf{202 [")
    assert (space, [row[0] for row in others]) == ([], ["hopper", ""])
    assert all(tex.count(rf"\{rule}rule") == 1 for rule in ("top", "mid", "bottom"))


def test_the_table_of_a_paper_has_a_column_for_seeds_only_where_they_differ(tmp_path):
    for algo, n in (("a2c", 3), ("ppo", 5)):
        for seed in range(n):
            write_run(tmp_path / "runs", algo, "ant", seed, -100.0 - seed)
    caption, rows = read_table(table(make_sides({"": load_runs([tmp_path / "runs"])})[0], "tex"))
    assert "over $n$ seeds" in caption
    assert "fewer than 5 seeds" in caption
    assert [row[2] for row in rows] == ["$n$", "3", "5"]
    # A minus, and no hyphen.
    assert rows[1][3] == "$-$101"
    assert rows[2][3].startswith("$-$102 [$-$10")


@pytest.mark.parametrize("name", ["50%_of_#1&$x", "{a}\\b~^", "[b]<c>|"])
def test_names_in_the_table_of_a_paper_are_no_commands(tmp_path, name):
    for env in ("ant", name):
        write_run(tmp_path / "runs", env=env, about_env={"name": env})
    read_table(table(make_sides({"": load_runs([tmp_path / "runs"])})[0], "tex"))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_few_seeds_have_no_interval_in_the_table_and_a_warning(sides, n):
    found = sides(n)
    for kind in ("tex", "md"):
        text = table(found, kind)
        assert "fewer than 5 seeds" in text
        # The number of seeds stands in its column alone, and the ends of an interval nowhere.
        assert "n=" not in text
        assert "[" not in text


def test_the_table_marks_no_winner_that_the_comparison_does_not_decide(sides, tmp_path):
    assert "**" not in table(sides(3), "md")
    for seed in range(5):
        write_run(tmp_path / "close", "ppo", "ant", seed, 100.0 + 10 * seed)
        write_run(tmp_path / "close", "sac", "ant", seed, 101.0 + 10 * seed)
    close = make_sides({"": load_runs([tmp_path / "close"])})[0]
    assert compare_sides(close).pairs[0].decision == "not decided"
    assert "textbf" not in table(close, "tex")


def test_names_end_no_cell_and_start_no_formula(tmp_path):
    write_run(tmp_path / "runs", "=cmd|x", "hopper")
    found = make_sides({"": load_runs([tmp_path / "runs"])})[0]
    assert "=cmd\\|x" in table(found, "md")
    assert ",'=cmd|x," in table(found, "csv")


def test_steps_lie_where_as_many_episodes_had_ended(tmp_path):
    run = write_run(tmp_path / "runs")
    run.monitor.mkdir()
    for number, lengths in enumerate(([100, 100, 300], [250, 250])):
        rows = [f"1.0,{length},{i}.5" for i, length in enumerate(lengths)]
        text = "\n".join(['#{"t_start": 0}', "r,l,t", *rows, "torn,"])
        (run.monitor / f"{number}.monitor.csv").write_text(text)
    # They end at 200, 400, 1000 and at 500, 1000.
    found = positions(run, np.array([100.0, 400.0, 999.0, 1000.0]), "episodes")
    assert found.tolist() == [0, 2, 3, 5]


def test_hours_leave_out_the_time_between_an_interruption_and_its_resume(tmp_path):
    run = write_run(tmp_path / "runs")
    run.write_result({**run.read_result(), "resumed_at": [2000]})
    begun = run.read_status()["started_at"]
    times = {1000: 3600.0, 2000: 7200.0, 3000: 1e6, 4000: 1e6 + 3600}
    append_records(
        run.metrics_file,
        [{"ts": begun + t, "step": step, "key": "a", "value": 1} for step, t in times.items()],
    )
    found = positions(run, np.array([1000.0, 2000.0, 3000.0, 4000.0]), "hours")
    assert found == pytest.approx([1.0, 2.0, 3.0, 4.0])


def test_a_run_without_monitor_or_metrics_has_no_episodes_or_hours(tmp_path):
    run = write_run(tmp_path / "runs")
    for axis in ("episodes", "hours"):
        assert np.isnan(positions(run, np.array([1000.0]), axis)).all()


_CONFIG = """!!python/object/apply:collections.OrderedDict
- - - gamma
    - 0.98
  - - policy
    - MlpPolicy
  - - odd
    - !!python/name:os.system
"""


def write_zoo(root, seed=0, number=1, env="Pendulum-v1", results=None):
    folder = root / "ppo" / f"{env}_{number}"
    (folder / env).mkdir(parents=True)
    steps = np.array([1000, 2000])
    returns = np.array([[1.0, 3.0], [5.0 + seed, 7.0 + seed]]) if results is None else results
    np.savez(folder / "evaluations.npz", timesteps=steps, results=returns, ep_lengths=returns)
    (folder / env / "config.yml").write_text(_CONFIG)
    (folder / env / "args.yml").write_text(
        f"!!python/object/apply:collections.OrderedDict\n- - - seed\n    - {seed}\n"
    )
    (folder / "0.monitor.csv").write_text("#{}\nr,l,t\n1,500,1800\n1,1500,7200\n")
    return folder


def test_logs_of_rl_zoo3_are_runs_of_one_variant(tmp_path):
    for seed in range(3):
        write_zoo(tmp_path, seed, seed + 1)
    runs = load_zoo_runs(tmp_path)
    assert [run.summary.seed for run in runs] == [0, 1, 2]
    assert len({run.variant for run in runs}) == 1
    assert (runs[0].algo, runs[0].env) == ("ppo (rl_zoo3)", "Pendulum-v1")
    assert [(e.step, e.mean_return) for e in runs[1].evaluations] == [(1000, 2.0), (2000, 7.0)]
    assert runs[0].values["algo.hyperparams.gamma"] == 0.98
    steps = np.array([1000.0, 2000.0])
    assert positions(runs[0].run, steps, "hours") == pytest.approx([1.0, 2.0])
    assert positions(runs[0].run, steps, "episodes").tolist() == [1, 2]


class _Bomb:
    def __reduce__(self):
        return (print, ("it ran",))


def test_a_pickle_in_a_log_of_rl_zoo3_is_not_loaded(tmp_path, capsys):
    write_zoo(tmp_path, results=np.array([_Bomb(), _Bomb()], dtype=object))
    folder = write_zoo(tmp_path, number=2)
    (folder / "evaluations.npz").write_bytes(pickle.dumps(_Bomb()))
    config = write_zoo(tmp_path, number=3) / "Pendulum-v1" / "config.yml"
    config.write_text("!!python/object/apply:builtins.print ['it ran']")
    states = [run.summary.state for run in load_zoo_runs(tmp_path)]
    assert states == ["damaged", "damaged", "finished"]
    assert "it ran" not in capsys.readouterr().out


def test_returns_of_rl_zoo3_that_are_arrays_of_one_number_are_read(tmp_path):
    write_zoo(tmp_path, results=np.arange(20.0).reshape(2, 10, 1))
    (entry,) = load_zoo_runs(tmp_path)
    assert [each.mean_return for each in entry.evaluations] == [4.5, 14.5]


@pytest.mark.parametrize(
    "shape", ["(1000000000000,)", "(0, 99999999999999999999)", "(True,)", "(("]
)
def test_a_crafted_header_in_a_log_of_rl_zoo3_makes_it_damaged(tmp_path, shape):
    write_zoo(tmp_path)
    (file,) = tmp_path.rglob("evaluations.npz")
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("timesteps.npy", "results.npy"):
            size = len(header).to_bytes(2, "little")
            archive.writestr(name, b"\x93NUMPY\x01\x00" + size + header + bytes(8))
    (entry,) = load_zoo_runs(tmp_path)
    assert entry.summary.state == "damaged"
    assert "timesteps.npy" in entry.reason


def test_a_log_of_rl_zoo3_whose_yaml_would_grow_is_damaged(tmp_path):
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 30))
    folder = write_zoo(tmp_path)
    (folder / "Pendulum-v1" / "config.yml").write_text(f"l0: &l0 [1]\n{levels}")
    (run,) = load_zoo_runs(tmp_path)
    assert run.summary.state == "damaged"
    assert "anchors" in run.reason


def test_a_folder_without_logs_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"no evaluations\.npz"):
        load_zoo_runs(tmp_path)


def test_an_interval_does_not_depend_on_the_order_of_the_runs():
    returns = [12.0, 431.5, 98.0, 250.0, 377.1]
    assert estimate(returns) == estimate(returns[::-1])
