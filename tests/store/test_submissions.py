"""Submissions: written once, numbered, and of two commands at once each adds what is missing."""

import threading

from rlzoo_plus.store.submissions import Submissions

ABOUT = {"version": "1", "code": None}


def _records(*keys, **values):
    return [{"event": "added", "job": key, "config": {"seed": 1, **values}} for key in keys]


def test_jobs_come_back_in_their_order(store):
    assert Submissions(store, "sweep").add(_records("b", "a"), ABOUT) == 1
    found = Submissions(store, "sweep").records()
    assert list(found) == ["b", "a"]
    assert found["a"]["config"] == {"seed": 1}
    assert found["a"]["about"].items() >= ABOUT.items()


def test_only_what_is_missing_is_added(store):
    submissions = Submissions(store, "sweep")
    submissions.add(_records("a"), ABOUT)
    assert submissions.add(_records("a"), ABOUT) is None
    assert submissions.add(_records("a", "b"), ABOUT) == 2
    assert [len(each.records) for each in Submissions(store, "sweep").read()] == [1, 1]


def test_a_job_with_another_content_replaces_the_one_before(store):
    submissions = Submissions(store, "sweep")
    submissions.add(_records("a"), ABOUT)
    assert submissions.add(_records("a", n_timesteps=7), ABOUT) == 2
    assert submissions.records()["a"]["config"]["n_timesteps"] == 7


def test_a_removed_job_is_no_longer_there_until_it_is_added_again(store):
    submissions = Submissions(store, "sweep")
    submissions.add(_records("a", "b"), ABOUT)
    submissions.add([{"event": "removed", "job": "a"}], ABOUT)
    assert list(submissions.records()) == ["b"]
    submissions.add(_records("a"), ABOUT)
    assert set(submissions.records()) == {"a", "b"}


def test_commands_at_once_lose_no_job_and_add_none_twice(store):
    keys = [f"j{number}" for number in range(12)]
    threads = [
        threading.Thread(
            target=Submissions(store, "sweep").add, args=(_records(*keys[i : i + 8]), ABOUT)
        )
        for i in (0, 2, 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = [r["job"] for each in Submissions(store, "sweep").read() for r in each.records]
    assert sorted(written) == sorted(keys)


def test_a_damaged_line_is_left_out(store, caplog):
    Submissions(store, "sweep").add(_records("a"), ABOUT)
    store.put("submissions/sweep/000002.jsonl", b'{"job": "b", "job": "c"}\n[1]\n{"job": "d"}\n')
    assert set(Submissions(store, "sweep").records()) == {"a", "d"}
    assert "000002.jsonl, line 1" in caplog.text
