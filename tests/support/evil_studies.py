"""Owns the malicious studies: edits of the directory of a good one."""

import json
import os

from rlzoo_plus.tuning.stored_study import NAME

JOURNAL = "journal.log"
ESCAPE = "\x1b[2J\u202eevil\x07"
STUDY, STUDY_ATTRIBUTE, TRIAL, PARAM, STATE, REPORT, ATTRIBUTE, SYSTEM = 0, 2, 4, 5, 6, 7, 8, 9
DONE, RUNNING = 1, 0
FLOAT = {"low": 0.0, "high": 1.0, "log": False, "step": None}
TIME = "2026-11-20T03:04:05"


def record(code, **fields):
    return {"op_code": code, "worker_id": "stranger", **fields}


def distribution(name="FloatDistribution", **attributes):
    return json.dumps({"name": name, "attributes": attributes or FLOAT})


def trial(count=1, **fields):
    """Return the record of a trial that is done, with changes."""
    whole = {
        "study_id": 0,
        "state": DONE,
        "values": [1.0],
        "datetime_start": TIME,
        "datetime_complete": TIME,
        "params": {"x": 0.5},
        "distributions": {"x": distribution()},
        "user_attrs": {"overrides": ["algo.hyperparams.gamma=0.9"]},
        "system_attrs": {},
        "intermediate_values": {"1": 0.5},
    }
    return [record(TRIAL, **{**whole, **fields})] * count


def journal(*records):
    """Write records behind those of the good journal."""

    def edit(folder):
        with (folder / JOURNAL).open("a") as file:
            for each in records:
                file.write((each if isinstance(each, str) else json.dumps(each)) + "\n")

    return edit


def trials(count=1, **fields):
    return journal(*trial(count, **fields))


def raw(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def settings(**changes):
    """Change study.json; a value of None removes a key."""

    def edit(folder):
        data = {**json.loads((folder / NAME).read_bytes()), **changes}
        (folder / NAME).write_text(json.dumps(data))

    return edit


def hpo(**changes):
    def edit(folder):
        data = json.loads((folder / NAME).read_bytes())
        data["hpo"] |= changes
        (folder / NAME).write_text(json.dumps(data))

    return edit


def replaced(name, make):
    """Put something else in place of a file."""

    def edit(folder):
        path = folder / name
        if path.exists():
            path.rename(folder.parent / "taken")
        else:
            (folder.parent / "taken").write_text("mine")
        path.parent.mkdir(exist_ok=True)
        make(path)

    return edit


def link(path):
    inside = path.parent if path.parent.name != ".controllers" else path.parent.parent
    path.symlink_to(inside.parent / "taken")


def folder(path):
    path.mkdir()


def sparse(path):
    with path.open("wb") as file:
        file.truncate(2**36)


DEEP = "[" * 100_000 + "]" * 100_000
JOURNALS = {
    "no record": journal("{", "{}"),
    "zeros": raw(JOURNAL, b"\0" * 5000 + b"\n{}\n"),
    "nothing": raw(JOURNAL, b""),
    "no text": raw(JOURNAL, bytes(range(256)) * 50),
    "a record without a kind": journal({"worker_id": "a"}),
    "an unknown kind": journal(record(99)),
    "a kind that is text": journal(record("exec")),
    "a kind that is a list": journal(record([4])),
    "a kind that is huge": journal('{"op_code": ' + "9" * 4000 + ', "worker_id": "a"}'),
    "no worker": journal({"op_code": 4, "study_id": 0}),
    "a line of 10 MB": journal('{"op_code": 8, "evil": "' + "x" * 10**7 + '"}'),
    "a line of 10 MB of a trial": trials(user_attrs={"reason": "x" * 10**7}),
    "deep JSON": journal('{"op_code": ' + DEEP + "}", "{}"),
    "deep JSON in an attribute": journal(
        '{"op_code":8,"worker_id":"a","trial_id":2,"user_attr":{"x":' + "[" * 900 + "]" * 900 + "}}"
    ),
    "a study of another name": journal(record(1, study_id=0)),
    "a second objective": raw(
        JOURNAL, json.dumps(record(STUDY, study_name="study", directions=[2, 1])).encode() + b"\n"
    ),
    "a direction that is none": raw(
        JOURNAL, json.dumps(record(STUDY, study_name="study", directions=[7])).encode() + b"\n"
    ),
    "no directions": raw(
        JOURNAL, json.dumps(record(STUDY, study_name="study", directions=[])).encode() + b"\n"
    ),
    "a study id that is a list": trials(study_id=[]),
    "values that are text": trials(values=["os.system"]),
    "values that are no list": trials(values=7),
    "values of lists": trials(values=[[1.0]]),
    "too many values": trials(5, values=[1.0, 2.0]),
    "no values": trials(5, values=None),
    "values beyond floats": journal(
        json.dumps(trial()[0]).replace('"values": [1.0]', '"values": [' + "9" * 400 + "]")
    ),
    "values NaN": trials(5, values=[float("nan")]),
    "values infinite": trials(5, values=[float("inf")]),
    "values far apart": journal(*trial(2, values=[1.7e308]), *trial(2, values=[-1.7e308])),
    "a state that is none": trials(state=77),
    "a state that is text": trials(state="DONE"),
    "a time that is none": trials(datetime_start="evil"),
    "a time that is a number": trials(datetime_complete=3),
    "an end before the beginning": trials(5, datetime_complete="1990-01-01T00:00:00"),
    "params without distributions": trials(distributions={}),
    "params NaN": trials(5, params={"x": float("nan")}),
    "params infinite": trials(5, params={"x": float("inf")}),
    "params that are lists": trials(5, params={"x": [1]}),
    "params beyond floats": journal(
        json.dumps(trial()[0]).replace('"x": 0.5', '"x": ' + "9" * 400)
    ),
    "a distribution that is none": trials(distributions={"x": "evil"}),
    "a distribution of another module": trials(distributions={"x": distribution("os.system")}),
    "a distribution with other arguments": trials(distributions={"x": distribution(evil=1)}),
    "a distribution that is a list": trials(distributions={"x": []}),
    "a range of huge numbers": trials(
        5,
        params={"x": 5},
        distributions={
            "x": distribution("IntDistribution", low=0, high=10**300, log=False, step=1)
        },
    ),
    "a million choices": trials(
        5,
        params={"x": 5},
        distributions={"x": distribution("CategoricalDistribution", choices=list(range(10**5)))},
    ),
    "choices that are lists": trials(
        5,
        params={"x": 0},
        distributions={"x": distribution("CategoricalDistribution", choices=[[1], {"a": 1}])},
    ),
    "a choice beyond the last": trials(
        params={"x": 9},
        distributions={"x": distribution("CategoricalDistribution", choices=[1])},
    ),
    "names of escapes": trials(
        5,
        params={ESCAPE: 0.5},
        distributions={ESCAPE: distribution()},
        user_attrs={
            "overrides": [f"algo={ESCAPE}"],
            "reason": ESCAPE,
            "owner": ESCAPE,
            "figures": {ESCAPE: 1},
            "folder": f"../{ESCAPE}",
        },
    ),
    "a failed one with escapes": trials(state=3, values=None, user_attrs={"reason": ESCAPE}),
    "a running one with escapes": trials(state=0, values=None, user_attrs={"owner": ESCAPE}),
    "a text of escapes as a choice": trials(
        5,
        params={"x": 0},
        distributions={"x": distribution("CategoricalDistribution", choices=[ESCAPE, "$\\frac{"])},
    ),
    "names that are formulas": trials(
        5, params={"$\\frac{": 0.5}, distributions={"$\\frac{": distribution()}
    ),
    "thousands of names": trials(
        5,
        params={f"x{i}": 0.5 for i in range(3000)},
        distributions={f"x{i}": distribution() for i in range(3000)},
    ),
    "thousands of trials": trials(4000),
    "attributes of all kinds": trials(
        5,
        user_attrs={
            "overrides": {"a": 1},
            "figures": [1],
            "retry_of": [0],
            "root": "x",
            "kind": ["x"],
            "folder": ["../.."],
            "reason": {"x": 1},
            "owner": 7,
        },
    ),
    "attributes that are no mapping": trials(user_attrs=[1]),
    "system attributes that are no mapping": trials(system_attrs="x"),
    "constraints that are text": trials(5, system_attrs={"constraints": ["evil"]}),
    "constraints that are a mapping": trials(5, system_attrs={"constraints": {"a": "b"}}),
    "reports that are text": trials(intermediate_values={"1": "evil"}),
    "reports at no step": trials(intermediate_values={"x": 1.0}),
    "reports that are nothing": trials(5, intermediate_values={"1": None}),
    "reports at huge steps": trials(5, intermediate_values={str(10**18): 1.0, "-5": 2.0}),
    "reports beyond floats": trials(5, intermediate_values={"1": float("inf"), "2": 1e308}),
    "a report at a step that is a list": journal(
        record(TRIAL, study_id=0, datetime_start=TIME),
        record(REPORT, trial_id=3, step=[1], intermediate_value=1),
    ),
    "a report at steps of two kinds": journal(
        record(TRIAL, study_id=0, datetime_start=TIME),
        record(REPORT, trial_id=3, step="a", intermediate_value=1),
        record(REPORT, trial_id=3, step=1, intermediate_value=1),
    ),
    "an attribute that is a list": journal(
        record(TRIAL, study_id=0, datetime_start=TIME),
        record(ATTRIBUTE, trial_id=3, user_attr=[1]),
    ),
    "about that is text": journal(record(STUDY_ATTRIBUTE, study_id=0, user_attr={"about": "x"})),
    "thousands of reports": journal(
        record(TRIAL, study_id=0, datetime_start=TIME),
        *(record(REPORT, trial_id=3, step=i, intermediate_value=1) for i in range(50_000)),
    ),
    "thousands of studies": journal(
        *(record(STUDY, study_name=f"{i}", directions=[2]) for i in range(50_000))
    ),
    "a pickle in an attribute": trials(
        5, system_attrs={"cma:optimizer:0": b"cos\nsystem\n(S'touch evil'\ntR.".hex()}
    ),
}
FILES = {
    "no JSON": raw(NAME, b"{"),
    "a list": raw(NAME, b"[]"),
    "deep": raw(NAME, DEEP.encode()),
    "not a number": raw(NAME, b'{"format": NaN}'),
    "large": raw(NAME, b" " * 2**23),
    "binary": raw(NAME, bytes(range(256))),
    "empty": raw(NAME, b""),
    "twice": raw(NAME, b'{"format": 1, "format": 1}'),
    "another format": settings(format="\x1b[2J"),
    "no name": settings(name=None),
    "another name": settings(name=ESCAPE),
    "storage on disk": settings(storage="sqlite:////etc/evil.db"),
    "storage of another driver": settings(storage="mysql+evil_package://me@host/x"),
    "storage with a password": settings(storage="postgresql://me:hidden@localhost/x"),
    "base of numbers": settings(base=[1]),
    "base of text": settings(base="algo=ppo"),
    "hpo of text": settings(hpo="x"),
    "hpo with more": hpo(evil=1),
    "hpo without objectives": hpo(objectives={}),
    "hpo with two objectives": hpo(objectives={"a": "maximize", "b": "minimize"}),
    "hpo with many objectives": hpo(objectives={f"a{i}": "maximize" for i in range(50_000)}),
    "hpo with a huge number": hpo(n_trials=-(10**400)),
    "a database far away": settings(storage="postgresql://me@db.example.org/studies"),
    "storage with a password that looks like a path": settings(
        storage="postgresql://localhost:/hidden@203.0.113.7/db"
    ),
    "a database far away, by query": settings(storage="postgresql:///db?host=203.0.113.7"),
    "a database far away, by address": settings(
        storage="postgresql://localhost/db?hostaddr=203.0.113.7"
    ),
    "a database far away, by service": settings(storage="postgresql:///db?service=evil"),
    "a journal that is a link": replaced(JOURNAL, link),
    "a journal that is a FIFO": replaced(JOURNAL, os.mkfifo),
    "a journal that is a folder": replaced(JOURNAL, folder),
    "a journal without end": replaced(JOURNAL, sparse),
    "no journal": lambda path: (path / JOURNAL).unlink(),
    "study.json that is a link": replaced(NAME, link),
    "study.json that is a FIFO": replaced(NAME, os.mkfifo),
    "study.json that is a folder": replaced(NAME, folder),
    "study.json without end": replaced(NAME, sparse),
}
REPORTS = {
    "no JSON": raw("report.json", b"{"),
    "a list": raw("report.json", b"[]"),
    "deep": raw("report.json", DEEP.encode()),
    "escapes": raw("report.json", json.dumps({"winner": 0, "experiment": ESCAPE}).encode()),
    "a winner of text": raw("report.json", b'{"winner": "0", "experiment": "x"}'),
    "a winner beyond all": raw("report.json", b'{"winner": ' + b"9" * 4000 + b"}"),
    "an experiment elsewhere": raw("report.json", b'{"winner": 0, "experiment": "../../x"}'),
    "an experiment that is a command": raw(
        "report.json", b'{"winner": 0, "experiment": "x; touch evil"}'
    ),
    "a FIFO": replaced("report.json", os.mkfifo),
    "a link": replaced("report.json", link),
    "a folder": replaced("report.json", folder),
    "without end": replaced("report.json", sparse),
    "a lock that is a link": replaced(".controllers/1.lock", link),
    "a lock that is a FIFO": replaced(".controllers/1.lock", os.mkfifo),
    "the journal's lock a link": replaced(".journal.lock", link),
}
