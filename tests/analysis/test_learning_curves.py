"""Plots of one run and of many."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from rlzoo_plus.analysis.curves import (
    curves_figure,
    group_curves,
    iqm_band,
    load_curves,
    plot_learning_curve,
)
from rlzoo_plus.analysis.index import read_run
from rlzoo_plus.analysis.series import load_evaluations, load_series, metric_keys
from rlzoo_plus.analysis.statistics import iqm, stratified_bootstrap_ci
from rlzoo_plus.analysis.style import PALETTE, line_look, thousands
from rlzoo_plus.errors import ConfigError


def has_colour(path, colour):
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return bool((np.abs(pixels - wanted).max(axis=2) <= 3).any())


def curves_of(runs):
    return load_curves([read_run(run) for run in runs], "mean_return")


def labels_drawn(monkeypatch, runs, out, **options):
    """Return the title and the legend of the plot that is drawn."""
    seen = {}

    def keep(figure, path):
        axes = figure.axes[0]
        seen["title"] = axes.get_title(loc="left")
        seen["legend"] = axes.get_legend_handles_labels()[1]
        return path

    monkeypatch.setattr("rlzoo_plus.analysis.curves.save_plot", keep)
    plot_learning_curve(runs, out, **options)
    return seen["title"], seen["legend"]


def test_the_plot_of_one_run_shows_its_mean_and_its_best_evaluation(make_run, tmp_path):
    out = plot_learning_curve([make_run()], tmp_path / "new" / "curve.png")
    assert Image.open(out).size[0] == 1350
    assert has_colour(out, PALETTE[0])
    assert has_colour(out, PALETTE[1])


def test_the_plot_of_one_run_says_what_it_shows(make_run, tmp_path, monkeypatch):
    title, legend = labels_drawn(monkeypatch, [make_run(seed=2)], tmp_path / "a.png")
    assert title == "ppo on cartpole (seed 2)"
    best = "best: 201 at 400 steps"
    assert legend[:2] == ["training episodes", "± 1 std of episodes"]
    assert legend[2:] == ["evaluation mean", best, "solved: 475"]
    _, legend = labels_drawn(monkeypatch, [make_run(solved=None)], tmp_path / "a.png")
    assert not any("solved" in label for label in legend)


def test_a_single_evaluation_of_a_single_episode_can_be_drawn(make_run, tmp_path):
    run = make_run(evaluations=[(100, [3.0])])
    run.metrics_file.unlink()
    out = plot_learning_curve([run], tmp_path / "a.png")
    assert has_colour(out, PALETTE[1])


def test_few_seeds_are_pointed_out_and_five_are_not(make_run, tmp_path, monkeypatch):
    runs = [make_run(seed=seed) for seed in range(5)]
    title, legend = labels_drawn(monkeypatch, runs[:3], tmp_path / "a.png")
    assert title == "ppo on cartpole"
    assert legend[0] == "ppo (3 seeds)"
    assert legend[-1].startswith("fewer than 5 seeds")
    _, legend = labels_drawn(monkeypatch, runs, tmp_path / "a.png")
    assert not any("fewer" in label for label in legend)


def test_a_seed_that_was_run_twice_counts_once(make_run):
    runs = [make_run(seed=0), make_run(seed=0, name="again"), make_run(seed=1)]
    assert group_curves(curves_of(runs))[0].size == "3 runs, 2 seeds"


def test_runs_are_put_together_by_algorithm_and_environment(make_run):
    runs = [make_run(a, e, s) for a in ("ppo", "sac") for e in ("hopper", "ant") for s in (0, 1)]
    everything = [f"{algo} on {env}" for algo in ("ppo", "sac") for env in ("ant", "hopper")]
    assert [g.label for g in group_curves(curves_of(runs))] == everything
    assert [g.label for g in group_curves(curves_of(runs), "algo")] == ["ppo", "sac"]
    assert [g.label for g in group_curves(curves_of(runs), "env")] == ["ant", "hopper"]
    assert len(group_curves(curves_of(runs), "seed")) == 8


def test_seeds_are_listed_in_the_order_of_their_numbers(make_run):
    curves = curves_of([make_run(seed=seed) for seed in (10, 9, 0)])
    assert [g.label for g in group_curves(curves, "seed")] == ["seed 0", "seed 9", "seed 10"]
    with pytest.raises(ConfigError, match="Did you mean 'seed'"):
        group_curves(curves, "seeds")


def test_the_mean_over_seeds_interpolates_where_evaluations_fall_on_other_steps(make_run):
    even = make_run(seed=0, evaluations=[(0, [0.0]), (200, [20.0]), (400, [40.0])])
    odd = make_run(seed=1, evaluations=[(0, [10.0]), (100, [20.0]), (400, [50.0])])
    band = iqm_band(curves_of([even, odd]))
    assert band.steps.tolist() == [0, 100, 200, 400]
    assert band.iqm == pytest.approx([5.0, 15.0, 25.0, 45.0])
    # Two runs have no interval.
    assert np.isnan(band.low).all()


def test_the_band_is_the_interquartile_mean_with_its_bootstrap_interval(make_run):
    scores = [0.0, 10.0, 20.0, 30.0, 1000.0]
    runs = [
        make_run(seed=seed, evaluations=[(0, [score]), (400, [2 * score])])
        for seed, score in enumerate(scores)
    ]
    band = iqm_band(curves_of(runs))
    assert band.iqm == pytest.approx([20.0, 40.0])
    low, high = stratified_bootstrap_ci([scores], iqm)
    assert (band.low[0], band.high[0]) == pytest.approx((low, high))


def test_runs_that_differ_in_a_setting_are_drawn_apart_and_named_by_it(
    make_run, tmp_path, monkeypatch
):
    runs = [make_run(seed=seed, name=f"a{seed}") for seed in range(2)]
    for seed in range(2):
        other = make_run(seed=seed, name=f"b{seed}")
        text = other.config_file.read_text().replace(
            "id: cartpole-v0", "id: cartpole-v0\n  kwargs: {mass: 2}"
        )
        other.config_file.write_text(text)
        runs.append(other)
    title, legend = labels_drawn(monkeypatch, runs, tmp_path / "a.png")
    assert title == "ppo on cartpole"
    assert legend[:2] == ["ppo mass=- (2 seeds)", "ppo mass=2 (2 seeds)"]
    _, legend = labels_drawn(monkeypatch, runs, tmp_path / "a.png", by="algo")
    assert legend[0] == "ppo (4 runs, 2 seeds)"


def test_each_environment_has_its_own_axes_and_a_variant_looks_alike_on_all(make_run):
    runs = [make_run(a, e, s) for a in ("ppo", "sac") for e in ("ant", "hopper") for s in (0, 1)]
    runs += [make_run("td3", "ant", s) for s in (0, 1)]
    figure = curves_figure([read_run(run) for run in runs])
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["ant", "hopper"]
    colours = [
        {line.get_label(): line.get_color() for line in axes.lines if line.get_linewidth() > 2}
        for axes in figure.axes
    ]
    assert colours[0]["sac"] == colours[1]["sac"] != colours[0]["ppo"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:3] == ["ppo", "sac", "td3"]


def test_a_run_cut_short_does_not_end_the_mean_of_the_others(make_run, tmp_path, monkeypatch):
    runs = [make_run(seed=0), make_run(seed=1), make_run(seed=2, evaluations=[(100, [0.0])])]
    band = iqm_band(curves_of(runs))
    assert (band.n_runs, band.steps[-1]) == (2, 400)
    _, legend = labels_drawn(monkeypatch, runs, tmp_path / "a.png")
    assert legend[0] == "ppo (3 seeds, 1 cut short)"


def test_the_mean_of_runs_without_a_common_step_is_still_drawn(make_run, tmp_path):
    early = make_run(seed=0, evaluations=[(100, [1.0]), (200, [2.0])])
    late = make_run(seed=1, evaluations=[(300, [3.0]), (400, [4.0])])
    assert plot_learning_curve([early, late], tmp_path / "a.png").is_file()


def test_runs_without_evaluations_are_left_out_and_none_at_all_is_an_error(make_run, tmp_path):
    full, empty = make_run(seed=0), make_run(seed=1, evaluations=[])
    assert plot_learning_curve([full, empty], tmp_path / "a.png").is_file()
    for runs, name, told in (
        ([empty], "a.png", "no values yet"),
        ([full], "a.jpeg", "ends in .png"),
    ):
        with pytest.raises(ConfigError, match=told):
            plot_learning_curve(runs, tmp_path / name)


def test_many_groups_get_different_looks_and_a_legend_below(make_run, tmp_path):
    runs = [make_run(env=f"a_long_environment_{i}", algo=f"algo{i % 3}") for i in range(9)]
    out = plot_learning_curve(runs, tmp_path / "a.png")
    assert Image.open(out).size[1] > 900
    looks = {tuple(line_look(number).values()) for number in range(20)}
    assert len(looks) == 20


def test_a_metric_is_drawn_for_one_run_and_for_several(make_run, tmp_path):
    runs = [make_run(seed=0), make_run(seed=1)]
    assert has_colour(plot_learning_curve(runs[:1], tmp_path / "a.png", "train/loss"), PALETTE[0])
    assert has_colour(plot_learning_curve(runs, tmp_path / "b.png", "train/loss"), PALETTE[0])


def test_of_two_evaluations_at_one_step_the_later_counts(make_run):
    run = make_run(evaluations=[(200, [2.0]), (100, [1.0]), (200, [9.0])])
    assert [(e.step, e.mean_return) for e in load_evaluations(run)] == [(100, 1.0), (200, 9.0)]


def test_values_that_are_no_numbers_are_left_out_of_a_series(make_run):
    run = make_run()
    with run.metrics_file.open("a") as file:
        file.write('{"step": 900, "key": "train/loss", "value": null}\n{"step": 1000, "key": "tr')
    assert load_series(run, "train/loss").steps[-1] == 400
    assert metric_keys(run) == {"mean_return", "std_return", "rollout/ep_rew_mean", "train/loss"}


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (500, "500"), (20_000, "20k"), (1_500_000, "1.5M"), (3e9, "3G")]
)
def test_steps_are_written_the_short_way(number, text):
    assert thousands(number) == text


def test_plots_need_neither_pyplot_nor_torch(make_run, tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from rlzoo_plus.artifacts.run_dir import RunDir\n"
        "from rlzoo_plus.analysis.curves import plot_learning_curve\n"
        "assert 'matplotlib' not in sys.modules\n"
        "plot_learning_curve([RunDir(Path(sys.argv[1]))], Path(sys.argv[2]))\n"
        "assert not {'matplotlib.pyplot', 'torch', 'stable_baselines3'} & set(sys.modules)\n"
    )
    arguments = [str(make_run().path), str(tmp_path / "a.png")]
    subprocess.run([sys.executable, "-c", code, *arguments], check=True)


def test_the_band_of_a_run_is_one_standard_deviation_also_beyond_its_episodes(make_run):
    # The deviation that the fixture records is 5.
    run = make_run(evaluations=[(100, [99.0, 101.0])])
    figure = curves_figure([read_run(run)])
    band = figure.axes[0].collections[0]
    assert band.get_paths()[0].vertices[:, 1].max() == pytest.approx(105.0)
