"""What the attempts at a sweep's runs took, as `sweep status` tells it."""

import json

import pytest
from support.training import tiny_config
from support.workers import SWEEP, run_record, submit

from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.live import LiveRecord
from rlzoo_plus.workers.costs import RunCosts, costs_of_run, costs_of_sweep, lines_of


def _attempt(end, step=0, seconds=600.0, usd=0.01, processor="A", machine="c7a.large"):
    return {
        **{"worker": "w", "machine": machine, "processor": processor},
        **{"step": step, "seconds": seconds, "usd": usd, "end": end},
    }


def _live(*attempts, state="finished", before=0):
    usd = [a["usd"] for a in attempts if a["usd"] is not None]
    spent = {
        "attempts": before + len(attempts),
        "seconds": sum(a["seconds"] for a in attempts),
        "usd": sum(usd) if usd else None,
        "processors": sorted({a["processor"] for a in attempts}),
    }
    return {"state": state, "attempts": list(attempts), "spent": spent}


def _costs(*args, age_s=1.0, **more):
    return costs_of_run(LiveRecord("sweep/a", "tag", age_s, _live(*args, **more)))


def test_a_run_that_was_not_interrupted_is_told_by_its_price_alone():
    assert lines_of({"a": _costs(_attempt("finished"))}) == [
        "spent: 10m00s and $0.0100 at most, by all attempts"
    ]


def test_interruptions_are_told_with_their_cost():
    runs = {
        "a": _costs(_attempt("released"), _attempt("lost", 512), _attempt("finished", 768)),
        "b": _costs(_attempt("finished")),
        "c": RunCosts(),
    }
    assert lines_of(runs) == [
        "interrupted: a: 2 times, 20m00s and $0.0200; last on c7a.large from step 512, lost",
        "1 run interrupted, 2 times: those attempts took 20m00s and $0.0200",
        "spent: 40m00s and $0.0400 at most, by all attempts",
    ]


def test_a_worker_that_gives_no_sign_any_more_is_an_interruption():
    last = _attempt(None)
    assert _costs(last, state="running").n_interrupted == 0
    assert _costs(last, state="running", age_s=1000.0).n_interrupted == 1


def test_attempts_that_a_record_has_forgotten_count():
    assert _costs(_attempt("finished"), before=20).n_interrupted == 20


def test_runs_that_changed_processor_are_counted():
    runs = [_costs(_attempt("released"), _attempt("finished", 1, processor="B")), RunCosts()]
    assert costs_of_sweep(runs).changed_processor == 1
    assert any("1 run changed processor" in line for line in lines_of(dict(enumerate(runs))))


def test_without_prices_no_dollars_are_told():
    lines = lines_of({"a": _costs(_attempt("released", usd=None), _attempt("finished", usd=None))})
    assert len(lines) == 2
    assert not any("$" in line for line in lines)


@pytest.mark.parametrize("wrong", [None, 7, "x", [[]], {"usd": "\x1b[2J"}])
def test_a_forged_record_costs_nothing_and_prints_nothing(wrong):
    live = LiveRecord("sweep/a", "tag", 1.0, {"attempts": wrong, "spent": wrong})
    assert lines_of({"a": costs_of_run(live)}) == []


def test_status_tells_the_costs_of_a_sweep(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store = open_store(tmp_path / "store")
    (key,) = submit(store, run_record(tiny_config()))
    record = _live(_attempt("released"), _attempt("finished", 32, processor="B"))
    store.put(f"live/{SWEEP}/{key}.json", json.dumps(record).encode())
    assert run_verb("sweep", ["status", f"{store.url}/{SWEEP}"]) == 0
    assert "1 run interrupted, 1 time" in capsys.readouterr().out
    assert run_verb("sweep", ["status", f"{store.url}/{SWEEP}", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["costs"] == {
        "interrupted_runs": 1,
        "interruptions": 1,
        "interrupted_seconds": 600.0,
        "interrupted_usd": 0.01,
        "changed_processor": 1,
        "seconds": 1200.0,
        "usd": 0.02,
    }
    (job,) = data["jobs"]
    assert job["attempts"][1].items() >= {"machine": "c7a.large", "step": 32}.items()
    assert job["spent"]["processors"] == ["A", "B"]
