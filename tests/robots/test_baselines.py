"""What doing nothing earns is measured, said on each task's page, and far from solved."""

import re
from pathlib import Path

import pytest

from benchmarks.baselines import make, nothing, play, settings
from robots import ROBOT_IDS

ROOT = Path(__file__).resolve().parents[2]
MEASURED = (ROOT / "benchmarks" / "results" / "baselines.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (.+?) \| (-?[\d.]+) \((-?[\d.]+) to (-?[\d.]+)\) \| (\d+)% \|$", re.MULTILINE
)
TASKS = settings()
MARGIN = 0.2
"""Share of the threshold by which it stands above what is earned without learning."""
MOST_SUCCESS = 10
"""Percent of episodes that may succeed by doing nothing, or anything."""
BLIND = ("husky_drive", "kuka_reach", "racecar_drive")
"""Tasks whose pages say what a policy earns that does not see its goal."""


def table_of(name):
    """Return the table of baselines of a task."""
    _, _, after = MEASURED.partition(f"\n## {name}\n")
    return after.partition("\n## ")[0]


def stated(name):
    """Return mean, lowest and highest return and percent of success by policy."""
    rows = ROW.findall(table_of(name))
    return {policy: tuple(map(float, numbers)) for policy, *numbers in rows}


def test_every_robot_has_a_task_that_is_shipped():
    assert {task["id"] for task in TASKS.values()} == set(ROBOT_IDS)


@pytest.mark.parametrize("name", TASKS)
def test_the_threshold_stands_far_above_what_is_earned_without_learning(name):
    solved, rows = TASKS[name]["solved_return"], stated(name)
    assert {"zero action", "random actions"} <= rows.keys()
    assert (name in BLIND) <= any(policy.endswith("not seen") for policy in rows)
    for policy, (mean, low, high, success) in rows.items():
        assert low <= mean <= high
        assert mean <= solved - MARGIN * abs(solved), policy
        assert success <= MOST_SUCCESS or policy.endswith("not seen"), policy
    assert f"| solved from | {solved:g} | |" in table_of(name)


@pytest.mark.parametrize("name", TASKS)
def test_the_page_of_a_task_states_what_is_earned_without_learning(name):
    rows, solved = stated(name), TASKS[name]["solved_return"]
    nothing, random = (f"{rows[policy][0]:.1f}" for policy in ("zero action", "random actions"))
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "robots").glob("*.md")]
    (text,) = (" ".join(text.split()) for text in pages if re.search(rf"`env={name}`[^`]", text))
    earned = f"doing nothing earns {nothing}, random actions {random}"
    assert re.search(rf"{re.escape(earned)}[^;]*; solved from {solved:g}\.", text), earned


@pytest.mark.parametrize("name", TASKS)
def test_doing_nothing_earns_what_is_stated(name):
    envs = make(TASKS[name], 2)
    played = play(envs, nothing(envs), range(2))
    _, low, high, _ = stated(name)["zero action"]
    slack = 0.06 + 0.005 * abs(high)  # Rounded, and the last bits of another processor.
    assert all(low - slack <= value <= high + slack for value in played.returns)
    assert max(played.returns) < TASKS[name]["solved_return"]
    assert not all(played.successes)
