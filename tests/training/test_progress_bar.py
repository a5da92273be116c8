"""The bar stays on one line of the terminal, however narrow that is."""

import io

import pytest
from rich.console import Console

from rlzoo_plus.training.callbacks.progress_display import BarProgress


@pytest.mark.parametrize("width", [40, 60, 80, 100, 119, 120, 200])
def test_the_bar_is_one_line(width):
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    bar = BarProgress(1_000_000, console, "recurrent_ppo on inverted_double_pendulum_bullet")
    bar.progress.update(bar._task, completed=900_000)
    bar.on_evaluation({"mean_return": 123456.7, "step": 950_000}, is_best=True)
    bar.progress.tasks[0].finished_speed = 12345.6
    lines = console.render_lines(bar.progress.get_renderable(), pad=False)
    assert len(lines) == 1


def test_a_terminal_of_80_columns_shows_steps_rate_time_left_and_the_best_return():
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    bar = BarProgress(1_000_000, console, "ppo on halfcheetah_bullet")
    bar.on_evaluation({"mean_return": 2345.6, "step": 950_000}, is_best=True)
    bar.progress.tasks[0].finished_speed = 1234.5
    (line,) = console.render_lines(bar.progress.get_renderable(), pad=False)
    text = "".join(segment.text for segment in line)
    for part in ("950,000/1,000,000", "1,234/s", "0:40 left", "eval 2345.6, best 2345.6"):
        assert part in text
