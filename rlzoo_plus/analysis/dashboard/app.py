"""The page: Streamlit runs this file from top to bottom at each change of a widget.

Texts that come from runs are shown in tables and as plain text only: Markdown of an untrusted run
could bring images from elsewhere.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]
import streamlit as st

from rlzoo_plus.analysis.dashboard import view
from rlzoo_plus.analysis.index import RunEntry
from rlzoo_plus.analysis.run_list import STATES

_MOST_CURVES = 24
_SERVERS = {"TensorBoard": 6006, "optuna-dashboard": 8080}
_REFRESH = "2s"
_FIRST_PASS_S = 0.5
_NUMBERS = {
    **dict.fromkeys(("steps", "of"), st.column_config.NumberColumn(format="localized")),
    **dict.fromkeys(("best", "final"), st.column_config.NumberColumn(format="%.1f")),
}


def main() -> None:
    """Show the page."""
    folder = Path(sys.argv[1])
    st.set_page_config(page_title="rlzoo-plus", layout="wide")
    runs = view.shared_runs(folder)
    everything = runs.look()
    if runs.index.n_left:
        _read_on(runs, time.monotonic())
    chosen = _filters(everything)
    st.title("Runs")
    st.text(f"{len(chosen)} of {len(everything)} in {folder}")
    if not everything:
        st.text("There is no run yet. Start one: rlzoo-plus train algo=ppo env=cartpole_bullet")
        return
    selected = _table(chosen, folder)
    if any(run.summary.state == "running" for run in selected or chosen):
        _moving(selected or chosen[:_MOST_CURVES], runs, folder)
    elif selected:
        _curves(selected, folder)
    if not selected:
        st.text("Select runs in the table to see their curves, videos and settings.")
        return
    _videos(selected, folder)
    st.subheader("Settings" if len(selected) == 1 else "Settings that differ")
    st.dataframe(pd.DataFrame(view.settings(selected, folder)), hide_index=True)
    _links(selected)


def _filters(runs: list[RunEntry]) -> list[RunEntry]:
    chosen = {}
    with st.sidebar:
        for key, known in (("state", STATES), ("algo", None), ("env", None)):
            there = {str(getattr(run.summary, key)) for run in runs}
            options = [value for value in known if value in there] if known else sorted(there)
            chosen[key] = st.multiselect(key, options)
        text = st.text_input("path, reason, or setting", placeholder="algo.hyperparams.gamma=0.99")
    return view.filtered(runs, chosen, text)


def _table(runs: list[RunEntry], folder: Path) -> list[RunEntry]:
    """Show the table, and return the runs that are selected in it."""
    event = st.dataframe(
        pd.DataFrame(view.table(runs, folder)),
        hide_index=True,
        column_config=_NUMBERS,
        on_select="rerun",
        selection_mode="multi-row",
        # A selection is of rows: another table begins without one.
        key=f"runs-{hash(tuple(run.summary.path for run in runs))}",
    )
    return [runs[row] for row in event["selection"]["rows"][:_MOST_CURVES] if row < len(runs)]


@st.fragment(run_every=_REFRESH)
def _moving(runs: list[RunEntry], index: view.Runs, folder: Path) -> None:
    """Show progress and curves, and again every few seconds."""
    now = {run.summary.path: run for run in index.look()}
    current = [now.get(run.summary.path, run) for run in runs]
    for path, done, text in view.running(current):
        st.text(path)
        st.progress(done, text=text)
    _curves(current, folder)


def _curves(runs: list[RunEntry], folder: Path) -> None:
    metrics = view.metrics_of(runs)
    if not metrics:
        st.text("Nothing has been measured yet.")
        return
    metric = st.selectbox("metric", metrics)
    # Only here: the first page is there a quarter of a second earlier.
    import altair as alt

    legend = alt.Legend(orient="bottom", columns=2, labelLimit=600)
    rows = pd.DataFrame(view.curve_rows(runs, metric, folder))
    chart = (
        alt.Chart(rows)
        .mark_line(point=True)
        .encode(
            x=alt.X("step:Q", title="environment steps"),
            y=alt.Y("value:Q", title=metric, scale=alt.Scale(zero=False)),
            color=alt.Color("run:N", scale=alt.Scale(scheme="category20"), legend=legend),
            strokeDash=alt.StrokeDash("dash:N", legend=None),
            tooltip=["run", "step", "value"],
        )
    )
    st.altair_chart(chart)


def _videos(runs: list[RunEntry], folder: Path) -> None:
    with_videos = [(run, found) for run in runs if (found := view.videos(run))][:4]
    if not with_videos:
        return
    st.subheader("Videos")
    for column, (run, found) in zip(st.columns(len(with_videos)), with_videos, strict=True):
        with column:
            (label,) = view.labels([run], folder)
            st.text(label)
            names = [path.stem for path in found]
            name = st.selectbox("video", names, key=f"video-{run.summary.path}")
            st.video(found[names.index(name)].read_bytes(), autoplay=True, loop=True, muted=True)


def _links(runs: list[RunEntry]) -> None:
    st.subheader("More")
    for run in runs:
        st.code(f"rlzoo-plus enjoy {run.summary.path}", language=None)
        if run.run.tensorboard.is_dir():
            st.code(f"tensorboard --logdir {run.run.tensorboard}", language=None)
    for name, port in _SERVERS.items():
        if view.listens(port):
            st.link_button(f"{name} of this machine", f"http://127.0.0.1:{port}")


@st.fragment(run_every="1s")
def _read_on(runs: view.Runs, since: float) -> None:
    """Read the runs that are left, then show the page with all of them."""
    # Not while the page itself is made, of which this is a part at first.
    if time.monotonic() - since > _FIRST_PASS_S:
        runs.look(view.READ_ON_S)
    if not runs.index.n_left:
        st.rerun()
    st.text(f"{runs.index.n_left} runs are still to be read ...")


main()
