"""A run directory from a stranger: the commands refuse it in one line, and nothing happens."""

import pytest
from support.evil_folders import CALLBACKS, ELSEWHERE, RUNS
from support.forged import copy_run

pytestmark = pytest.mark.training

SHORT = {
    "evaluate": ["--episodes", "1", "--n-envs", "1"],
    "enjoy": ["--no-window", "--episodes", "1"],
    "diagnose": ["--episodes", "1"],
    "robustness": ["--episodes", "1"],
    "record": ["--seconds", "0.1"],
    "export": ["--format", "sb3"],
    "metric": ["--metric", "none_such"],
}
# For a policy that is only played.
HARMLESS = (
    "name like a formula",
    "own launcher",
    *(name for name in RUNS if name.startswith("records")),
)
ALL = {**RUNS, **ELSEWHERE, **CALLBACKS}
CASES = [
    *(("evaluate", name) for name in RUNS if name not in HARMLESS),
    *(
        (verb, name)
        for verb in ("enjoy", "record", "diagnose", "inspect", "robustness")
        for name in RUNS
        if "own" in name and name not in HARMLESS
        # It imports the robots' physics before it loads a policy, which the watch would note.
        if verb != "robustness" or not name.startswith("best")
    ),
    *(("resume", name) for name in (*ELSEWHERE, *CALLBACKS, "own package", "FIFO", "merge bomb")),
    *(("verify-resume", name) for name in CALLBACKS),
    *[("record", "videos elsewhere"), ("plot", "plots elsewhere"), ("export", "export elsewhere")],
    *[("checkpoint", ".lock elsewhere"), ("robustness", "plots elsewhere")],
    *(("load", name) for name in RUNS if name.startswith("best")),
]
NEEDS_TRUST = {
    "own package": "evil_package",
    "own wrapper": "evil_package.Wrapper",
    "own wrapper, with arguments": "evil_package.Wrapper",
    "own algorithm": "evil_package",
    "own packages of a run": "evil_package",
    "own algorithm's class": "evil_package.PPO",
    "own extractor": "evil_package.Extractor",
    "own activation": "evil_package.Activation",
    "best with an own extractor": "evil_package.Extractor",
    "id with a module": "evil_package",
    "id of an own class": "evil_package",
    "id of old Gym": "GymV26Environment-v0",
}


@pytest.fixture(scope="module")
def outcome(guarded, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    good = copy_run(root / "good")
    evil = []
    cases = [
        *CASES,
        ("evaluate", "own launcher"),
        *((verb, name) for verb in ("runs", "metric") for name in RUNS),
    ]
    for number, (verb, name) in enumerate(cases):
        run = copy_run(root / str(number) / "run")
        ALL[name](run)
        evil.append(case(f"{verb}: {name}", verb, run))
    return guarded(root, [case("good", "evaluate", good), case("load", "load", good)], evil)


def case(name, verb, path):
    arguments = SHORT.get(verb, [])
    verb = "plot" if verb == "metric" else verb
    return {"name": name, "verb": verb, "path": str(path), "arguments": arguments}


def test_a_good_run_is_evaluated_under_the_same_watch(outcome):
    result = outcome[0]["good"]
    assert result["code"] == 0, result["text"]
    assert "mean return" in result["text"]
    assert result["events"] == []


@pytest.mark.parametrize(("verb", "name"), CASES)
def test_an_evil_run_is_refused_with_one_clear_line(outcome, assert_refused, verb, name):
    assert_refused(outcome[0][f"{verb}: {name}"])


@pytest.mark.parametrize("name", NEEDS_TRUST)
def test_a_run_with_code_of_its_own_names_it_and_asks_for_trust(outcome, name):
    text = outcome[0][f"evaluate: {name}"]["text"]
    assert NEEDS_TRUST[name] in text
    assert "--trust" in text


def test_the_launcher_of_a_run_is_no_part_of_playing_its_policy(outcome):
    result = outcome[0]["evaluate: own launcher"]
    assert (result["code"], result["events"]) == (0, []), result["text"]


@pytest.mark.parametrize("name", RUNS)
def test_an_evil_run_is_listed_without_harm(outcome, name):
    result = outcome[0][f"runs: {name}"]
    assert (result["code"], result["events"]) == (0, []), result["text"]
    assert all(line.isprintable() for line in result["text"].splitlines())
    assert result["seconds"] < 60


@pytest.mark.parametrize("name", RUNS)
def test_an_evil_run_is_searched_for_metrics_without_harm(outcome, name):
    result = outcome[0][f"metric: {name}"]
    assert (result["code"], result["events"]) == (2, []), result["text"]
    assert result["text"].isprintable()
    assert result["seconds"] < 60


def test_reading_changes_nothing_on_disk(outcome):
    _, before, after = outcome
    assert before == after
