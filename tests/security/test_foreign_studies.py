"""A study directory from a stranger: it is looked at without harm, or refused in one line."""

import json
import shlex

import pytest
from support.evil_studies import FILES, JOURNALS, REPORTS
from support.studies import add_trial, make_study

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.storage import foreign_host
from rlzoo_plus.tuning.stored_study import StoredStudy, open_stored

pytestmark = pytest.mark.training

BASE = ["algo=ppo", "env=cartpole_bullet", "n_timesteps=4096"]
# Besides these a journal may be read: what is odd in it is shown as it is.
REFUSED = (
    *("no record", "zeros", "nothing", "an unknown kind", "a record without a kind"),
    *("a kind that is text", "deep JSON", "values that are text", "a second objective"),
    *("thousands of reports", "thousands of studies"),
    *("a distribution of another module", "a state that is none", "params without distributions"),
)
WORDS = {
    "a package": "env.packages=[evil_package]",
    "a callback": "callbacks=[evil_package.Callback]",
    "a wrapper": "env.wrappers=[evil_package.Wrapper]",
    "a module in an id": "env.id=evil_package:Env-v0",
    "a class as an id": "env.id=evil_package.Env",
    "a schedule": "algo.hyperparams.learning_rate=evil_package.fall",
    "a file of settings": "--config-dir=/tmp/evil",
    "another path for settings": "hydra.searchpath=[file:///tmp/evil]",
    "another folder": "run_dir=../../evil",
    "a secret": "algo.hyperparams.ent_coef=${oc.env:PGPASSWORD}",
    "a launcher": "hydra/launcher=evil",
    "a tracker": "tracker=wandb",
    "escapes": "\x1b[2J=1",
}
# All but the slow one, which reads no report.
TELLING = ("show", "best", "importance")
LOOKS = {"show": ["--all"], "best": [], "importance": ["--json"], "plot": []}


def copies(root, edits, verbs, first):
    """Yield the cases of some edits: a study of its own for each, looked at with some verbs."""
    for number, (name, edit) in enumerate(edits.items(), first):
        folder = root / str(number) / "study"
        study = make_study(folder, base=BASE)
        for value in (1.0, 3.0, 2.0):
            add_trial(study, [value], reports=[(1, value)])
        edit(folder)
        for verb in verbs:
            yield look(f"{verb}: {name}", verb, folder)


def look(name, verb, folder):
    words = [str(folder), *LOOKS[verb]]
    if verb == "plot":
        words += ["--out", str(folder.parent / "out.png")]
    return {"name": name, "verb": "study", "path": verb, "arguments": words}


def trained(root, name, word, number):
    folder = root / str(number) / "study"
    add_trial(make_study(folder, base=[*BASE, word]), [1.0])
    words = {"path": f"study={folder}", "arguments": ["trial=0"]}
    return {"name": f"train: {name}", "verb": "train", **words}


@pytest.fixture(scope="module")
def outcome(guarded, tmp_path_factory):
    root = tmp_path_factory.mktemp("studies")
    nothing = {"good": lambda folder: None}
    good = list(copies(root, nothing, LOOKS, 0))
    # The first refusals import what refuses.
    first = {"first": FILES["a database far away"]}
    good += [*copies(root, first, ["show"], 1), trained(root, "first", WORDS["a package"], 2)]
    evil = [
        *copies(root, JOURNALS, LOOKS, 1000),
        *copies(root, {f"file {name}": edit for name, edit in FILES.items()}, LOOKS, 2000),
        *copies(root, {f"report {name}": edit for name, edit in REPORTS.items()}, TELLING, 3000),
    ]
    words = enumerate(WORDS.items(), 4000)
    evil += [trained(root, name, word, number) for number, (name, word) in words]
    return guarded(root, good, evil)


def is_of_a_picture(name, event):
    # That nothing else was written is told from the disk.
    return name == "plot" and event.split()[0] in ("write", "os.rename", "os.mkdir", "os.remove")


def assert_harmless(result, verb):
    assert result["code"] in (0, 2), result["text"]
    assert [event for event in result["events"] if not is_of_a_picture(verb, event)] == []
    lines = result["text"].splitlines()
    assert all(line.isprintable() for line in lines), ascii(result["text"])
    assert "Traceback" not in result["text"]
    assert "hidden" not in result["text"]
    # Some tenths of a second, or a few for the largest; a busy machine takes several times that.
    assert result["seconds"] < 60
    if result["code"] == 2:
        assert len(lines) == 1
        assert 10 < len(lines[0]) < 1200


@pytest.mark.parametrize("verb", LOOKS)
def test_a_good_study_is_looked_at_under_the_same_watch(outcome, verb):
    result = outcome[0][f"{verb}: good"]
    assert result["code"] == 0, result["text"]
    assert_harmless(result, verb)


@pytest.mark.parametrize("verb", LOOKS)
@pytest.mark.parametrize("name", JOURNALS)
def test_a_strangers_journal_does_no_harm(outcome, verb, name):
    assert_harmless(outcome[0][f"{verb}: {name}"], verb)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_journal_is_refused(outcome, assert_refused, name):
    assert_refused(outcome[0][f"show: {name}"])


@pytest.mark.parametrize("verb", LOOKS)
@pytest.mark.parametrize("name", FILES)
def test_a_strangers_study_file_is_refused_in_one_line(outcome, verb, name):
    result = outcome[0][f"{verb}: file {name}"]
    assert_harmless(result, verb)
    assert result["code"] == 2


@pytest.mark.parametrize("verb", LOOKS)
@pytest.mark.parametrize("name", [name for name in FILES if "far away" in name])
def test_a_database_far_away_is_named_and_not_asked_without_trust(outcome, verb, name):
    text = outcome[0][f"{verb}: file {name}"]["text"]
    assert "--trust" in text
    assert any(host in text for host in ("db.example.org", "203.0.113.7", "its service"))


@pytest.mark.parametrize("verb", TELLING)
@pytest.mark.parametrize("name", REPORTS)
def test_a_strangers_report_does_no_harm(outcome, verb, name):
    result = outcome[0][f"{verb}: report {name}"]
    assert_harmless(result, verb)
    assert result["code"] == 0


def test_an_experiment_in_a_report_is_a_quoted_word(outcome):
    text = outcome[0]["best: report an experiment that is a command"]["text"]
    assert shlex.split(text.splitlines()[-1])[-1] == "experiment=x; touch evil"


@pytest.mark.parametrize("name", WORDS)
def test_a_trial_that_may_run_code_is_not_trained_without_trust(outcome, assert_refused, name):
    result = outcome[0][f"train: {name}"]
    assert_refused(result)
    assert "--trust" in result["text"]


def test_looking_changes_nothing_but_the_pictures(outcome):
    _, before, after = outcome
    assert {path for path in after if path not in before and not path.endswith("/out.png")} == set()
    # The time of a folder changes with the picture in it.
    files = {
        path: told for path, told in before.items() if path.endswith((".log", ".json", "taken"))
    }
    assert {path: after.get(path) for path in files} == files


def test_a_link_where_the_picture_belongs_is_not_followed(tmp_path, monkeypatch):
    from rlzoo_plus.commands import dispatch

    study = make_study(tmp_path / "study", base=BASE)
    add_trial(study, [1.0], reports=[(1, 1.0)])
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "study" / "study.png").symlink_to(tmp_path / "precious")
    assert dispatch.run("study", ["plot", str(tmp_path / "study")]) == 0
    assert (tmp_path / "precious").read_text() == "mine"
    assert json.loads((tmp_path / "study" / "study.json").read_text())["name"] == "study"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me@localhost/x",
        "postgresql://me@127.0.0.1:5432/x",
        "postgresql://me@[::1]/x",
        "postgresql:///x",
        "postgresql:///x?host=/run/postgresql",
    ],
)
def test_a_database_of_this_machine_may_be_asked(url, monkeypatch):
    for name in ("PGHOST", "PGHOSTADDR", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    assert foreign_host(url) is None


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("postgresql://me@evil/x", "evil"),
        ("postgresql://127.0.0.1.evil/x", "127.0.0.1.evil"),
        ("postgresql://localhost/x?host=evil", "evil"),
        ("postgresql://localhost/x?hostaddr=192.0.2.1", "192.0.2.1"),
        ("postgresql:///x?host=localhost:1&host=evil:2", "evil"),
        ("postgresql:///x?service=evil", "the one of its service"),
        ("postgresql://localhost/x?sslkey=/etc/key", "the one of its sslkey"),
        ("postgresql:///host=evil", "the one of its name"),
    ],
)
def test_a_database_of_another_machine_is_foreign_however_it_is_written(url, host):
    assert foreign_host(url) == host


def test_a_host_of_the_environment_counts_where_the_url_names_none(monkeypatch):
    monkeypatch.setenv("PGHOST", "evil")
    assert foreign_host("postgresql:///x") == "evil"
    assert foreign_host("postgresql://localhost/x") is None


def test_a_database_far_away_is_asked_once_it_is_trusted(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(StoredStudy, "read", lambda *words: asked.append(words) or 1 / 0)
    make_study(tmp_path / "study", base=BASE)
    FILES["a database far away"](tmp_path / "study")
    with pytest.raises(ConfigError, match=r"db\.example\.org.*add --trust"):
        _ = open_stored(str(tmp_path / "study")).study
    assert asked == []
    with pytest.raises(ZeroDivisionError):
        _ = open_stored(str(tmp_path / "study"), trust=True).study
    assert asked[0][2] == "postgresql://me@db.example.org/studies"


def test_a_name_longer_than_any_file_is_no_study():
    with pytest.raises(ConfigError, match="no such study"):
        open_stored("x" * 5000)
