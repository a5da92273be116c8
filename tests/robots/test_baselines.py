"""What a policy earns that does nothing stands in each task's page, and is far from solved."""

import re
from pathlib import Path

import pytest

from benchmarks.baselines import make, nothing, play, settings
from robots import ROBOT_IDS

PAGES = Path(__file__).resolve().parents[2] / "docs" / "robots"
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
    """Return the table of baselines from the page that has it."""
    for page in PAGES.glob("*.md"):
        _, *after = re.split(rf"baselines --tasks {name}\b", page.read_text(encoding="utf-8"))
        if after:
            table, _, last = after[0].partition("| solved from")
            return f"{table}| solved from{last.splitlines()[0]}"
    return pytest.fail(f"no page in docs/robots has the baselines of {name}")


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
def test_doing_nothing_earns_what_the_page_states(name):
    envs = make(TASKS[name], 2)
    played = play(envs, nothing(envs), range(2))
    _, low, high, _ = stated(name)["zero action"]
    slack = 0.06 + 0.005 * abs(high)  # Rounded, and the last bits of another processor.
    assert all(low - slack <= value <= high + slack for value in played.returns)
    assert max(played.returns) < TASKS[name]["solved_return"]
    assert not all(played.successes)
