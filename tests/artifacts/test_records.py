"""Append-only JSON lines."""

import json
import math

import pytest

from rlzoo_plus.artifacts.records import Follower, append_records, read_records


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run" / "metrics.jsonl"


def test_records_come_back_in_order(path):
    append_records(path, [{"step": 1}, {"step": 2, "tags": {"a": [1, "x", None]}}])
    append_records(path, [{"step": 3}])
    assert [record["step"] for record in read_records(path)] == [1, 2, 3]
    assert read_records(path)[1]["tags"] == {"a": [1, "x", None]}


def test_no_records_make_no_file(path):
    append_records(path, [])
    assert not path.exists()
    assert read_records(path) == []


def test_each_record_is_one_line_whatever_it_holds(path):
    text = "a\nb\u2028c\u0085d"
    append_records(path, [{"text": text}, {"text": text}])
    assert len(path.read_bytes().splitlines()) == 2
    assert [record["text"] for record in read_records(path)] == [text, text]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_json_does_not_know_becomes_null_at_every_depth(path, value):
    append_records(path, [{"value": value, "returns": [1.0, value], "tags": {"x": (value,)}}])
    strict = json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
    assert strict == {"value": None, "returns": [1.0, None], "tags": {"x": [None]}}


def test_floats_come_back_exactly(path):
    values = [0.1, 1e-320, 1.7976931348623157e308, -0.0, 1 / 3]
    append_records(path, [{"values": values}])
    assert read_records(path)[0]["values"] == values


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_torn_last_line_is_passed_over(path, cut):
    append_records(path, [{"step": 1}, {"step": 22222}])
    path.write_bytes(path.read_bytes()[:-cut])
    steps = [record["step"] for record in read_records(path)]
    assert steps == ([1, 22222] if cut == 1 else [1])


@pytest.mark.parametrize("torn", [b'{"step": 2', '{"text": "Zü'.encode()[:-1]])
def test_a_torn_line_is_passed_over_and_a_record_after_it_is_not_lost(path, torn):
    append_records(path, [{"step": 1}])
    with path.open("ab") as file:
        file.write(torn)
    assert read_records(path) == [{"step": 1}]
    append_records(path, [{"step": 3}])
    assert [record["step"] for record in read_records(path)] == [1, 3]


def test_lines_that_are_no_records_are_passed_over(path):
    path.parent.mkdir()
    path.write_text('[1]\n3\nnull\n\nnot json\n{"step": 1}\n')
    assert read_records(path) == [{"step": 1}]


def test_a_follower_gives_each_new_record_once(path):
    append_records(path, [{"a": 1}])
    follower = Follower(path)
    assert list(follower.new()) == []
    append_records(path, [{"a": 2}, {"a": 3}])
    assert list(follower.new()) == [{"a": 2}, {"a": 3}]
    assert list(follower.new()) == []


def test_a_follower_waits_for_the_rest_of_a_line(path):
    follower = Follower(path)
    path.parent.mkdir()
    path.write_bytes(b'{"a": 1}\n{"a"')
    assert list(follower.new()) == [{"a": 1}]
    with path.open("ab") as file:
        file.write(b": 2}\n")
    assert list(follower.new()) == [{"a": 2}]
