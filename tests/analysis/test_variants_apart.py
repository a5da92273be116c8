"""A sweep over randomization, network and learning rate: no plot or table merges two of them."""

from itertools import product

import pytest

from rlzoo_plus.analysis.charts import scores_figure
from rlzoo_plus.analysis.curves import curves_figure
from rlzoo_plus.analysis.index import load_runs
from rlzoo_plus.analysis.scores import make_sides
from rlzoo_plus.analysis.tables import table
from rlzoo_plus.dashboard.html_report import html_report

RANDOMIZATIONS = ({}, {"mass": {"uniform": [0.8, 1.2]}}, {"mass": {"uniform": [0.5, 2.0]}})
NETWORKS = ([64, 64], [32])
RATES = (3e-4, 1e-3)
N_VARIANTS, N_SEEDS = 12, 3
FIRST = "ppo learning_rate=0.0003 net_arch=[32] randomization.mass.uniform=-"
LAST = "ppo learning_rate=0.001 net_arch=[64,64] randomization.mass.uniform=[0.8,1.2]"


@pytest.fixture(params=[1, 4], ids=["one evaluation", "several"])
def entries(make_run, tmp_path, request):
    """The runs of the sweep, with so many evaluations each."""
    choices = list(product(RANDOMIZATIONS, NETWORKS, RATES))
    for number, (randomization, net_arch, rate) in enumerate(choices):
        for seed in range(N_SEEDS):
            level = 10.0 * number + seed
            make_run(
                name=f"{number}-{seed}",
                seed=seed,
                kwargs={"randomization": randomization},
                network={"net_arch": net_arch},
                hyperparams={"learning_rate": rate},
                evaluations=[(100 * i, [level]) for i in range(1, request.param + 1)],
            )
    return load_runs([tmp_path / "outputs"])


def test_curves_have_a_line_for_each_variant_that_can_be_seen(entries):
    figure = curves_figure(entries)
    [axes] = figure.axes
    [legend] = figure.legends
    # Long names are wrapped.
    names = [text.get_text().replace("\n", " ") for text in legend.get_texts()]
    shown = [name for name in names if name.endswith("(3 seeds)")]
    assert len(set(shown)) == N_VARIANTS
    assert shown[0] == f"{FIRST} (3 seeds)"
    lines = [line for line in axes.lines if line.get_label() in shown]
    assert len(lines) == N_VARIANTS
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(looks) == N_VARIANTS
    # A line of one point has no length.
    assert all(len(line.get_xdata()) > 1 or line.get_marker() != "" for line in lines)
    assert "fewer than 5 seeds: a rough guide" in names


def test_scores_and_tables_have_a_row_for_each_variant(entries):
    sides, _ = make_sides({"": entries})
    assert [len(side.runs["cartpole"]) for side in sides] == [N_SEEDS] * N_VARIANTS
    assert (sides[0].name, sides[-1].name) == (FIRST, LAST)
    for kind in ("md", "csv"):
        rows = {line for line in table(sides, kind).splitlines() if "learning" in line}
        assert len(rows) == N_VARIANTS
    figure = scores_figure(sides)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert len(set(labels)) == N_VARIANTS
    figure.draw_without_rendering()
    # Names beside the axes leave room for the scores.
    assert figure.axes[0].get_position().width > 0.3


def test_a_report_names_each_variant(entries):
    html = html_report("sweep", entries)
    for name in (FIRST, LAST):
        assert f"<td>{name}</td>" in html
