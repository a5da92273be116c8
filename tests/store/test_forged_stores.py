"""Forged submissions and leases: left out with a warning, or refused in one line, and no more."""

import json
import os
import re
from functools import partial

import pytest
from support.training import tiny_config

from rlzoo_plus.sweeps.sweep_job import make_job

KEY = "env/ppo/aaaaaaaaaaaaaaaa-s0"
LIVE = f"live/first/{KEY}.json"
CONTROLS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
NUMBERS = ("1e999", "-1e308", "1e308", "1" + "0" * 4000, "-5", "0.5", "true", '"7"', "[7]", "null")
EVIL = "x\u202e\x1b]0;owned\x07\n\x1b[2J"


@pytest.fixture
def store(folder, tmp_path, monkeypatch):
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return folder


@pytest.fixture
def say(say, tmp_path):
    """Return a function that runs a verb, and checks what must hold after every one."""

    def said(*words):
        code, out, err = say(*words)
        assert not CONTROLS.search(out + err)
        assert "Traceback" not in err
        # Nothing is written but the cache, and the store itself.
        assert {p.name for p in tmp_path.iterdir()} <= {"cache", "store", "work"}
        assert list((tmp_path / "work").iterdir()) == []
        return code, out, err

    return said


def _config(**values):
    config = make_job(tiny_config("ppo", "tests/TinyReach-v0")).config
    return {**config.model_dump(exclude={"run_dir", "sweep"}), **values}


def _json(line):
    # Composing takes a moment: not while tests are collected.
    return json.dumps(line, default=lambda make: make())


def _submit(store, *lines):
    about = {"event": "submission", "format": 1, "version": "1", "code": None}
    good = {"event": "added", "job": KEY, "config": _config(), "command": "train"}
    texts = [each if isinstance(each, str) else _json(each) for each in (about, good, *lines)]
    store.put("submissions/first/000001.jsonl", "\n".join(texts).encode())


@pytest.mark.parametrize(
    "line",
    [
        {"event": "added", "job": "../../work/owned", "config": {}},
        {"event": "added", "job": "env/../owned", "config": _config},
        {"event": "added", "job": "/env/ppo/owned", "config": _config},
        {"event": "added", "job": "env\\ppo/b/owned", "config": _config},
        {"event": "added", "job": "env/ppo/own*ed?", "config": _config},
        {"event": "added", "job": "env/.ppo/owned", "config": _config},
        {"event": "added", "job": f"env/ppo/{EVIL}", "config": _config},
        {"event": "added", "job": f"env/ppo/{'x' * 5000}", "config": _config},
        {"event": "added", "job": "env/ppo/owned", "config": None},
        {"event": "added", "job": "env/ppo/owned", "config": {"_target_": "os.system"}},
        {
            "event": "added",
            "job": "env/ppo/owned",
            "config": partial(_config, _target_="os.system"),
        },
        {"event": "added", "job": "env/ppo/owned", "config": partial(_config, device=EVIL)},
        {"event": "added", "job": "env/ppo/owned", "config": partial(_config, n_timesteps=10**400)},
        {"event": "added", "job": "env/ppo/owned", "config": partial(_config, seed=float("inf"))},
        '{"event": "added", "job": "a/b/c", "job": "a/b/d"}',
        '{"job": ' + "[" * 5000 + "]" * 5000 + "}",
        '{"job": ' + "1" * 5000 + "}",
        "\x1b[2J",
    ],
)
def test_a_forged_job_is_left_out_and_the_others_are_shown(store, say, line, caplog):
    _submit(store, line)
    code, out, _ = say("sweep", "status", "../store/first", "--json")
    assert code == 0
    assert [job["path"] for job in json.loads(out)["jobs"]] == [KEY]
    (warning,) = [r.getMessage() for r in caplog.records if r.name.startswith("rlzoo_plus")]
    assert warning.startswith("left out: ")
    assert "\n" not in warning
    assert not CONTROLS.search(warning)
    for verb in (["cancel"], ["resume"], ["logs", ""], ["prune", "--yes"]):
        assert say("sweep", verb[0], "../store/first", *verb[1:])[0] == 0


@pytest.mark.parametrize("line", ["[1]", '"x"', "null", '{"job": ["a"]}', '{"event": "removed"}'])
def test_a_line_without_a_job_says_nothing(store, say, line):
    _submit(store, line)
    code, out, _ = say("sweep", "status", "../store/first", "--json")
    assert (code, len(json.loads(out)["jobs"])) == (0, 1)


def test_of_many_forged_jobs_a_few_are_named(store, say, caplog):
    forged = [{"event": "added", "job": f"../x/{number}", "config": {}} for number in range(500)]
    _submit(store, *forged, *["{"] * 500)
    assert say("sweep", "status", "../store/first")[0] == 0
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) < 30
    assert any("490 more jobs" in message for message in messages)
    assert any("490 more lines" in message for message in messages)


def test_code_that_a_job_names_is_not_imported(store, say, tmp_path, monkeypatch):
    (tmp_path / "store").mkdir(exist_ok=True)
    (tmp_path / "store" / "owned.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path / "store"))
    config = _config(callbacks=["owned.Callback"], packages=["owned"])
    config["env"] = {**config["env"], "packages": ["owned"]}
    config["infra"] = {**config["infra"], "name": "owned.Launcher"}
    _submit(store, {"event": "added", "job": "env/ppo/own", "config": config, "command": "train"})
    for words in (["status"], ["logs", "own"], ["cancel"], ["resume"], ["prune", "--yes"]):
        assert say("sweep", words[0], "../store/first", *words[1:])[0] == 0
    assert say("ls", "../store")[0] == 0


def _numbers(state, number):
    names = [f'"{name}": {number}' for name in ("steps", "rate", "training_time_s")]
    means = [f'"{name}": {{"mean_return": {number}}}' for name in ("best", "final", "evaluation")]
    return f'{{"state": "{state}", {", ".join([*names, *means])}}}'


def _records():
    states = ("running", "finished")
    numbers = [_numbers(states[at % 2], each) for at, each in enumerate(NUMBERS)]
    texts = [
        json.dumps({"state": state, "reason": EVIL, "worker": EVIL, "request": {"reason": EVIL}})
        for state in ("running", "released", "failed", "cancelled", EVIL)
    ]
    odd = [
        *('{"state": ["running"]}', '{"state": {}}', '{"reason": {"a": 1}}', '{"state": null}'),
        '{"state": "finished", "best": [], "final": 7, "evaluation": "x"}',
        '{"state": "failed", "reason": ["a", {"b": 1}], "worker": [1]}',
        '{"state": "failed", "reason": "' + "x" * 60_000 + '"}',
        *("", "[]", "{" * 30_000, '{"a":' * 9_000 + "1" + "}" * 9_000, "\x00", '{"state": NaN}'),
    ]
    return [*numbers, *texts, *odd]


@pytest.mark.parametrize("record", _records(), ids=range(len(_records())))
def test_a_forged_lease_is_shown_without_harm(store, say, record):
    _submit(store)
    store.put(LIVE, record.encode())
    for _ in range(2):
        # Once from the store, once from the cache.
        code, out, _ = say("sweep", "status", "../store/first", "--json")
        assert code == 0
        (job,) = json.loads(out, parse_constant=pytest.fail)["jobs"]
        values = [job["steps"], *(job[name] or 0 for name in ("best", "final", "time_s"))]
        assert all(abs(value) <= 1e15 for value in values)
        assert json.loads(say("ls", "../store", "--json")[1], parse_constant=pytest.fail)
    assert say("sweep", "status", "../store/first")[0] == 0
    assert say("ls", "../store")[0] == 0
    for verb in ("logs", "cancel", "resume", "retry-failed", "prune"):
        assert say("sweep", verb, "../store/first")[0] in (0, 1)


def _claim_ten_gigabytes(store, name):
    path = store.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, 10 * 2**30)


def test_a_lease_of_ten_gigabytes_is_not_read(store, say):
    _submit(store)
    _claim_ten_gigabytes(store, LIVE)
    code, out, _ = say("sweep", "status", "../store/first", "--json")
    assert (code, json.loads(out)["jobs"][0]["reason"]) == (0, "its record in the store is damaged")
    assert say("ls", "../store")[0] == 0
    code, out, _ = say("sweep", "cancel", "../store/first")
    assert (code, out.splitlines()[-1]) == (1, "the same command again goes on")


def test_a_submission_of_ten_gigabytes_is_refused_in_one_line(store, say):
    _claim_ten_gigabytes(store, "submissions/first/000001.jsonl")
    code, _, err = say("sweep", "status", "../store/first")
    assert code == 1
    assert err.startswith("error: ")
    assert re.search("more than [0-9]+ bytes", err)
    assert err.count("\n") == 1


def test_of_a_log_of_ten_gigabytes_the_end_is_read(store, say):
    _submit(store)
    _claim_ten_gigabytes(store, f"runs/first/{KEY}/log.txt")
    with (store.root / f"runs/first/{KEY}/log.txt").open("ab") as file:
        file.write(b"\nhello\n")
    code, out, _ = say("sweep", "logs", "../store/first", "env", "--lines", "1")
    assert (code, out.splitlines()[1:]) == (0, ["hello"])


def test_objects_with_odd_names_are_no_sweeps(store, say):
    _submit(store)
    for name in ("live/.x/a.json", "live/a:b/c.json", f"live/{EVIL}/c.json", "submissions/a"):
        path = store.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    code, out, _ = say("ls", "../store", "--json")
    assert (code, [folder["name"] for folder in json.loads(out)]) == (0, ["first"])
