"""Where studies are kept: what is refused, and what a kill or a power failure leaves."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from support.postgres import PASSWORD

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.storage import check_storage, open_storage, patiently


def study_of(folder):
    import optuna

    storage = open_storage("journal", folder, 30)
    return optuna.create_study(study_name="swing", storage=storage, load_if_exists=True)


def fill(folder, count):
    study = study_of(folder)
    for number in range(count):
        trial = study.ask()
        trial.suggest_float("x", 0, 1)
        study.tell(trial, float(number))
    return folder / "journal.log"


@pytest.mark.parametrize("name", ["sqlite:///a.db", "mysql://u@h/d", "jurnal", "redis://h"])
def test_other_storages_are_refused_with_the_two_that_are_supported(name):
    with pytest.raises(ConfigError, match=r"journal, .*postgresql://user@host/database"):
        check_storage(name)


@pytest.mark.parametrize(
    "name",
    [
        "postgresql://u:geheim@h/d",
        "postgresql://u@h/d?password=geheim",
        "postgresql://localhost:/geheim@host/d",
        "mysql://u:geheim@h/d",
        "postgresql://u:geheim@h:99999999/d",
    ],
)
def test_a_password_in_the_url_is_refused_and_not_repeated(name):
    with pytest.raises(ConfigError) as caught:
        check_storage(name)
    assert "geheim" not in str(caught.value)


def test_a_url_without_a_database_is_refused():
    with pytest.raises(ConfigError, match="names no database"):
        check_storage("postgresql://user@host")


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2"])
def test_all_spellings_of_postgresql_are_one(scheme):
    assert check_storage(f"{scheme}://u@h/d") == "postgresql://u@h/d"


def test_a_journal_is_not_made_by_looking_for_it(tmp_path):
    with pytest.raises(ConfigError, match="holds no study"):
        open_storage("journal", tmp_path / "nothing", 30, create=False)
    assert not (tmp_path / "nothing").exists()


def test_a_journal_that_is_a_link_is_refused(tmp_path):
    (tmp_path / "other").write_text("")
    (tmp_path / "journal.log").symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match="no plain file"):
        open_storage("journal", tmp_path, 30)


def test_a_journal_cut_anywhere_in_its_last_records_is_read_and_written_on(tmp_path):
    whole = fill(tmp_path / "whole", 4).read_bytes()
    lines = whole.splitlines(keepends=True)
    start = len(whole) - sum(map(len, lines[-3:]))
    for cut in range(start, len(whole) + 1, 3):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / "journal.log").write_bytes(whole[:cut])
        before = len(study_of(folder).trials)
        fill(folder, 2)
        again = study_of(folder)
        assert len(again.trials) == before + 2, cut
        for line in (folder / "journal.log").read_bytes().splitlines():
            json.loads(line)


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 50, b"\0" * 50 + b"\n", b'{"op_code":4', b"{}"],
    ids=["zeros", "a line of zeros", "half a record", "no line"],
)
def test_a_last_record_of_zeros_or_a_torn_one_is_cut_off(tmp_path, tail):
    journal = fill(tmp_path, 2)
    sound = journal.read_bytes()
    journal.write_bytes(sound + tail)
    fill(tmp_path, 1)
    assert journal.read_bytes().startswith(sound)
    assert b"\0" not in journal.read_bytes()
    assert len(study_of(tmp_path).trials) == 3


def test_whoever_reads_while_a_record_is_torn_goes_on_after_its_repair(tmp_path):
    journal = fill(tmp_path, 2)
    reader = study_of(tmp_path)
    with journal.open("ab") as file:
        file.write(b'{"op_code":4,"study')
    assert len(reader.trials) == 2
    fill(tmp_path, 1)
    assert len(reader.trials) == 3


def test_records_longer_than_a_block_are_not_taken_for_torn_ones(tmp_path):
    study = study_of(tmp_path)
    study.set_user_attr("long", "x" * 200_000)
    study.set_user_attr("next", 1)
    assert study_of(tmp_path).user_attrs == {"long": "x" * 200_000, "next": 1}


def test_a_journal_of_something_else_is_said_to_be_damaged(tmp_path):
    (tmp_path / "journal.log").write_text('{"a": 1}\n{"op_code": 77, "worker_id": ""}\n')
    with pytest.raises(ConfigError, match="is damaged"):
        open_storage("journal", tmp_path, 30)


def test_a_lock_whose_holder_was_killed_is_free_at_once(tmp_path):
    fill(tmp_path, 1)
    code = (
        "import sys, time; from filelock import FileLock\n"
        "FileLock(sys.argv[1]).acquire(); print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / ".journal.lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        os.kill(holder.pid, signal.SIGKILL)
        started = time.monotonic()
        fill(tmp_path, 1)
        assert time.monotonic() - started < 5


def test_a_lock_file_of_optunas_own_does_not_block(tmp_path):
    journal = fill(tmp_path, 1)
    (tmp_path / "journal.log.lock").symlink_to(journal)
    fill(tmp_path, 1)
    assert len(study_of(tmp_path).trials) == 2


def test_a_server_that_does_not_answer_is_told_in_one_line():
    with pytest.raises(ConfigError) as caught:
        open_storage("postgresql://u@127.0.0.1:1/d", None, 30)
    assert "\n" not in str(caught.value)
    assert "refused" in str(caught.value)


def test_a_missing_database_is_told_with_what_makes_it(postgres):
    with pytest.raises(ConfigError, match=r'"nowhere" does not exist.*createdb'):
        open_storage(postgres.url("nowhere"), None, 30)


def test_a_password_comes_from_the_environment(postgres, monkeypatch):
    postgres.execute(f"CREATE ROLE guarded LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
    postgres.new_database()
    url = postgres.new_database().replace("tester", "guarded")
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with pytest.raises(ConfigError, match="PGPASSWORD"):
        open_storage(url, None, 30)
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(ConfigError, match="PGPASSWORD"):
        open_storage(url, None, 30)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert open_storage(url, None, 30).get_all_studies() == []


def test_processes_that_make_the_tables_at_once_all_succeed(postgres, tmp_path):
    url = postgres.new_database()
    code = (
        "import sys; from rlzoo_plus.tuning.storage import open_storage\n"
        "sys.stdin.readline(); open_storage(sys.argv[1], None, 30).get_all_studies()"
    )
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", code, url]
    started = [subprocess.Popen(command, **pipes) for _ in range(4)]
    outcomes = [process.communicate("go\n") for process in started]
    assert [process.returncode for process in started] == [0] * 4, outcomes


def test_without_optuna_each_command_names_the_extra(tmp_path):
    code = (
        "import sys; sys.modules['optuna'] = None\n"
        "from rlzoo_plus.commands.dispatch import run\n"
        "for words in sys.argv[1:]:\n"
        "    verb, *rest = words.split()\n"
        "    print('code', run(verb, rest), flush=True)\n"
    )
    commands = ["study show mine", "train study=mine trial=1"]
    commands += [f"{verb} -m hpo=ppo env=cartpole_bullet" for verb in ("train", "doctor")]
    done = subprocess.run(
        [sys.executable, "-c", code, *commands], capture_output=True, text=True, cwd=tmp_path
    )
    said = done.stdout + done.stderr
    assert said.count("pip install 'rlzoo-plus[tune]'") == done.stdout.count("code 2") == 4, said
    assert "Traceback" not in said


def test_a_missing_driver_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"rlzoo-plus\[postgres\]"):
        open_storage("postgresql://u@h/d", None, 30)


def test_a_transaction_that_broke_with_its_connection_is_tried_again():
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import PendingRollbackError

    answers = iter([PendingRollbackError("roll back first"), None])

    def read():
        error = next(answers)
        if error is not None:
            raise StorageInternalError("the commit failed") from error
        return "read"

    assert patiently(read, 5.0) == "read"
