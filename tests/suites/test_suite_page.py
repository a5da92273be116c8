"""The page of a suite, made from a file of results alone."""

import json
from pathlib import Path

import pytest

from rlzoo_plus.commands import dispatch
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.suites.suite_file import load_suite
from rlzoo_plus.suites.suite_results import Result, Results, SideBySide

HERE = Path(__file__).parent
SHIPPED = Path(__file__).parents[2] / "benchmarks" / "results"


def test_the_page_is_made_from_the_results_alone(here):
    for name in ("mine.yaml", "results.json"):
        (here / name).write_bytes((HERE / "page" / name).read_bytes())
    words = ["--suite", "mine.yaml", "--results", "results.json", "--no-train"]
    assert dispatch.run("benchmark", [*words, "--write", "page.md"]) == 0
    text = (here / "page.md").read_text()
    assert text == (HERE / "page" / "page.md").read_text()
    assert {path.name for path in here.iterdir()} <= {
        *("mine.yaml", "results.json", "page.md", "cache"),
    }


def test_the_page_in_the_documentation_is_that_of_the_committed_results(here):
    # By the names that its command has, which the page shows.
    results, page = "benchmarks/results/suite-bullet.json", "benchmarks/results/suite-bullet.md"
    (here / results).parent.mkdir(parents=True)
    (here / results).write_bytes((SHIPPED / "suite-bullet.json").read_bytes())
    words = ["--suite", "bullet", "--results", results, "--no-train", "--write", page]
    assert dispatch.run("benchmark", words) == 0
    assert (here / page).read_text() == (SHIPPED.parents[1] / page).read_text()


@pytest.mark.parametrize("name", ["bullet", "robots"])
def test_committed_results_are_of_cells_of_the_suite(name):
    results = Results(SHIPPED / f"suite-{name}.json", name)
    assert {cell for cell, _ in results.runs} <= {cell.name for cell in load_suite(name).cells}


def test_two_commands_add_to_one_file(tmp_path):
    file = tmp_path / "results.json"
    first, second = Results(file, "mine"), Results(file, "mine")
    made = [Result(cell=c, seed=0, n_timesteps=1, episodes=1, mean=1.0) for c in ("ppo:a", "a2c:b")]
    first.add(made[0])
    second.add(made[1])
    first.add(SideBySide(cell="ppo:a", cores=2, target=1.0, minutes={"rl_zoo3": None}))
    assert list(Results(file, "mine").runs.values()) == made[::-1]
    assert Results(file, "mine").side_by_side["ppo:a"].minutes == {"rl_zoo3": None}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a file of results"),
        ('{"suite": "other"}', "has results of the suite 'other', not of 'mine'"),
        ('{"suite": "mine", "runs": [{"cell": "ppo:a"}]}', "runs.0.seed: field required"),
        ('{"suite": "mine", "runs": [{"mean": NaN}]}', "not a finite number"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path, text, said):
    file = tmp_path / "results.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said) as refused:
        Results(file, "mine")
    assert str(refused.value).startswith(f"{file}: ") or str(refused.value).startswith(f"{file} ")
    assert "\n" not in str(refused.value)


def test_the_file_has_a_line_for_each_run(tmp_path):
    results = Results(tmp_path / "results.json", "mine")
    for seed in (1, 0):
        results.add(Result(cell="ppo:a", seed=seed, n_timesteps=1, episodes=1, mean=1.0))
    lines = results.path.read_text().splitlines()
    assert [json.loads(line.rstrip(","))["seed"] for line in lines[2:4]] == [0, 1]
