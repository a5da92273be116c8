"""What a notebook shows of a run."""

import json
import sys
import types

import pytest

import rlzoo_plus as rz
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.runs.notebook import LiveCurve, page


class Shown:
    """Stands for IPython: keeps what is displayed, and how often it was replaced."""

    def __init__(self, kernel):
        self.pages = []
        self.shell = types.SimpleNamespace(kernel=kernel)
        self.display = types.SimpleNamespace(HTML=str, display=self.show)

    def get_ipython(self):
        return self.shell

    def show(self, html, display_id):
        assert display_id
        self.pages.append(html)
        return types.SimpleNamespace(update=self.pages.append)


def write(run, n):
    lines = [{"step": 10 * k, "mean_return": float(k), "std_return": 0.5} for k in range(1, n + 1)]
    run.evaluations_file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_curve_is_drawn_once_a_second_at_most_and_in_a_kernel_only(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("rlzoo_plus.runs.notebook.time.monotonic", lambda: now[0])
    run = RunDir(tmp_path)
    for kernel, expected in ((object(), 3), (None, 0)):
        ipython = Shown(kernel)
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        curve = LiveCurve()
        for n, at, is_last in ((1, 0.0, False), (2, 0.5, False), (3, 1.5, False), (4, 1.6, True)):
            write(run, n)
            now[0] = at + 10.0 * (kernel is None)
            curve.show(run, "ppo", is_last=is_last)
        assert len(ipython.pages) == expected
    monkeypatch.delitem(sys.modules, "IPython")
    LiveCurve().show(run, "ppo")


def test_what_a_front_end_refuses_ends_no_training(tmp_path, monkeypatch):
    ipython = Shown(object())
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    run = RunDir(tmp_path)
    write(run, 1)
    curve = LiveCurve()
    monkeypatch.setattr(ipython.display, "HTML", lambda html: 1 / 0)
    curve.show(run, "ppo")
    write(run, 2)
    curve.show(run, "ppo", is_last=True)
    assert ipython.pages == []


def test_what_a_run_holds_is_escaped_and_odd_numbers_are_left_out():
    rows = [{"step": 1, "mean_return": float("nan"), "success_rate": "<script>"}]
    shown = page("<b>run", rows)
    assert "<script>" not in shown
    assert "&lt;b&gt;run" in shown
    assert "<svg" not in shown
    one = page("run", [{"step": 1, "mean_return": 2.0}])
    assert one.count("<circle") == 1


@pytest.mark.training
def test_a_run_is_the_same_with_a_curve_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {"tuned": "none", "n_steps": 32, "batch_size": 32, "total_timesteps": 64}
    values |= {"eval.every_steps": 32, "eval.episodes": 1, "report.video": False}
    plain = rz.train("ppo", "cartpole_bullet", **values)
    ipython = Shown(object())
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    drawn = rz.train("ppo", "cartpole_bullet", **values)
    assert "<polyline" in ipython.pages[-1]
    files = ("evaluations.jsonl", "config.yaml")
    assert [(plain.path / name).read_bytes() for name in files] == [
        (drawn.path / name).read_bytes() for name in files
    ]
    quiet = rz.train("ppo", "cartpole_bullet", quiet=True, **values)
    assert quiet.result["config_hash"] == drawn.result["config_hash"]
    assert f"{quiet.path}" not in "".join(ipython.pages)
