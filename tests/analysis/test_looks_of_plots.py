"""Every kind of plot at one series and at many: what a program can see of how it looks."""

import warnings

import pytest
from support.written_runs import write_run

from rlzoo_plus.analysis import charts, curves
from rlzoo_plus.analysis.charts import KINDS
from rlzoo_plus.analysis.curves import curves_figure
from rlzoo_plus.analysis.index import load_runs
from rlzoo_plus.analysis.scores import make_sides
from rlzoo_plus.analysis.statistics import stratified_bootstrap_ci
from rlzoo_plus.analysis.style import WIDTHS_IN, save_plot, style_of

RATES = [1e-4, 3e-4, 1e-3, 3e-3]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the runs of twelve variants with five seeds each, by variant."""
    root, found = tmp_path_factory.mktemp("runs"), {}
    for algo in ("ppo", "sac", "td3"):
        for rate in RATES:
            for seed in range(5):
                score = 100.0 + 1e4 * rate + 5 * seed
                more = {"hyperparams": {"learning_rate": rate}, "name": f"{rate}-{seed}"}
                write_run(root, algo, "cartpole_bullet", seed, score, **more)
    for run in load_runs([root]):
        found.setdefault(run.variant, []).append(run)
    return list(found.values())


@pytest.fixture(autouse=True)
def fewer_resamples(monkeypatch):
    monkeypatch.setattr(charts, "_RESAMPLES", 20)
    monkeypatch.setattr(
        curves, "stratified_bootstrap_ci", lambda *of: stratified_bootstrap_ci(*of, 20)
    )


def drawn(kind, runs, style):
    if kind == "curves":
        return curves_figure(runs, style=style)
    return KINDS[kind](make_sides({"": runs})[0], 90.0 if kind == "threshold" else "final", style)


@pytest.mark.parametrize("style", ["screen", "paper", "talk"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("kind", ["curves", *KINDS])
def test_a_plot_of_any_number_of_series_is_readable(runs, kind, n, style):
    if (kind, n) == ("improvement", 1):
        pytest.skip("one variant alone improves on nothing")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = drawn(kind, [run for of in runs[:n] for run in of], style_of(style, "neurips"))
        figure.draw_without_rendering()
    room, used = figure.bbox_inches, figure.get_tightbbox()
    assert room.x0 - 0.02 <= used.x0 < used.x1 <= room.x1 + 0.02
    assert room.y0 - 0.02 <= used.y0 < used.y1 <= room.y1 + 0.02
    boxes = [legend.get_window_extent() for legend in figure.legends]
    assert all(axes.get_legend() is None for axes in figure.axes)
    assert not any(box.overlaps(axes.get_tightbbox()) for box in boxes for axes in figure.axes)
    assert len(boxes) == (kind != "improvement")
    # Told apart without colours.
    if kind in ("curves", "profile"):
        lines = [line for line in figure.axes[0].lines if line.get_label().endswith("(5 seeds)")]
        looks = {(line.get_linestyle(), line.get_marker()) for line in lines}
        assert len(lines) == len(looks) == n


@pytest.mark.parametrize("width", WIDTHS_IN)
def test_a_figure_for_a_paper_is_as_wide_as_its_column_and_its_letters_have_a_size(runs, width):
    figure = drawn("curves", runs[0], style_of("paper", width))
    assert figure.get_figwidth() == pytest.approx(WIDTHS_IN[width])
    assert figure.axes[0].yaxis.label.get_fontsize() == pytest.approx(8)
    assert figure.axes[0].get_title(loc="left") == ""


def test_letters_in_a_pdf_are_embedded_as_journals_ask_for(runs, tmp_path):
    out = save_plot(drawn("curves", runs[0], style_of("paper")), tmp_path / "a.pdf")
    content = out.read_bytes()
    assert b"/FontFile2" in content
    assert b"/Type3" not in content.replace(b" ", b"")


@pytest.mark.parametrize("n", [1, 2])
def test_a_curve_of_one_point_says_so(tmp_path, n):
    for seed in range(n):
        write_run(tmp_path, seed=seed, steps=(1000,))
    figure = curves_figure(load_runs([tmp_path]))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    said = "a single point" if n == 1 else "2 of 2 runs have a single point"
    assert f"{said} so far: no curve yet" in labels
    assert any(line.get_marker() not in ("", "None") for line in figure.axes[0].lines)
