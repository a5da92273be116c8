"""Reading and showing what a stranger wrote."""

import os

import numpy as np
import pytest
import torch

from rlzoo_plus.agents.allocation import AllocationLimit, NetworkTooLargeError
from rlzoo_plus.analysis.find_run import Place
from rlzoo_plus.artifacts.atomic import write_atomic, write_folder
from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.untrusted import (
    has_control_characters,
    parse_json,
    parse_yaml,
    printable,
    read_plain_file,
    read_plain_lines,
)
from rlzoo_plus.commands import dispatch, plot
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.run import Run


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a \u00e4 \u6f22 b", "a \u00e4 \u6f22 b"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\r\tc\0", "a\\nb\\r\\tc\\x00"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
        ("x" * 999, "x" * 400 + "..."),
    ],
)
def test_a_terminal_is_shown_no_control_characters(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["\x1b", "\x07", "\u202e", "\x9b", "\0"])
def test_control_characters_are_found_wherever_they_are(text):
    assert has_control_characters({"a": [{"b": (text,)}]})
    assert has_control_characters({text: 1})
    assert not has_control_characters({"a": ["line\n\tline", 1, None, "\u00e4\u00a0"]})


def test_a_file_is_read_up_to_its_limit(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_plain_file(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ValueError, match="5 bytes, more than 4"):
        read_plain_file(tmp_path / "file", 4)


@pytest.mark.parametrize("limit", [2**40, 2**63, 2**200])
def test_no_more_is_allocated_than_a_file_has(tmp_path, limit):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_plain_file(tmp_path / "file", limit) == b"12345"


def test_lines_end_where_one_is_too_long(tmp_path):
    (tmp_path / "lines").write_bytes(b"1\n2\r\n" + b"3" * 99 + b"\n4\n")
    assert list(read_plain_lines(tmp_path / "lines", 50)) == [b"1", b"2"]


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000, b"\xff"])
def test_a_line_that_is_no_record_hides_no_other(tmp_path, line):
    (tmp_path / "records").write_bytes(line + b'\n{"step": 1}\n')
    assert read_records(tmp_path / "records") == [{"step": 1}]


def test_an_error_is_printed_without_control_characters(monkeypatch, capsys):
    def main(arguments):
        raise ConfigError("\x1b[2Jevil\n  second line\u202e")

    monkeypatch.setattr(plot, "main", main)
    assert dispatch.run("plot", []) == 2
    assert capsys.readouterr().err == "error: \\x1b[2Jevil\n  second line\\u202e\n"


@pytest.mark.parametrize("name", ["\u00b2", "\u0663" * 12, "7", "9" * 19, "x"])
def test_only_folders_named_as_ours_are_checkpoints(tmp_path, name):
    for folder in (name, "000000000007"):
        (tmp_path / folder).mkdir()
    assert CheckpointStore(tmp_path).steps() == [7]


def test_a_policy_asks_for_the_trust_that_was_given(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "rlzoo_plus.agents.policy.load_run_policy", lambda *a, trust: asked.append(trust) or 1 / 0
    )
    for trust in (False, True):
        with pytest.raises(ZeroDivisionError):
            Run(Place(tmp_path), trust=trust).policy("best")
    assert asked == [False, True]


def test_a_fifo_does_not_block_a_reader(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ValueError, match="not a plain file"):
        read_plain_file(tmp_path / "fifo", 10)


def test_a_device_is_not_read():
    from pathlib import Path

    with pytest.raises(ValueError, match="not a plain file"):
        read_plain_file(Path("/dev/zero"), 10)


@pytest.mark.parametrize("text", ["[NaN]", "[1e999]", '{"a":1,"a":1}', "[" * 101 + "]" * 101, "["])
def test_json_is_parsed_strictly(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text.encode())


STRICT_YAML = [
    "a: &a 1\nb: *a",
    "a: 1\na: 2",
    "!!python/name:os.system",
    "{",
    "[" * 101 + "]" * 101,
]
# The C library would use up the stack.
STRICT_YAML += ["[" * 200_000, "- " * 200_000, "{a: " * 200_000]


@pytest.mark.parametrize("text", STRICT_YAML, ids=lambda text: text[:12])
def test_yaml_is_parsed_strictly(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_yaml(text.encode())


def test_a_link_in_the_way_of_a_temporary_file_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / f".status.json.{os.getpid()}.tmp").symlink_to(tmp_path / "precious")
    write_atomic(tmp_path / "status.json", "theirs")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "status.json").read_text() == "theirs"


def test_a_link_in_the_way_of_a_file_is_replaced(tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "plot.png").symlink_to(tmp_path / "precious")
    write_atomic(tmp_path / "plot.png", "theirs")
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_link_in_the_way_of_a_temporary_folder_is_not_followed(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / f".best.{os.getpid()}.tmp").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="exists"):
        write_folder(tmp_path / "best", {"a": b"1"}, {})
    assert list((tmp_path / "theirs").iterdir()) == []


@pytest.mark.parametrize(
    "build",
    [
        lambda: torch.nn.Linear(10**5, 10**5),
        lambda: torch.nn.LSTM(8, 10**6),
        lambda: torch.nn.LSTM(1, 1, num_layers=10**9),
        lambda: torch.nn.Conv2d(10**5, 10**5, 8),
        lambda: torch.ones(10**9) * 2,
        lambda: torch.full((10**9,), 1.0),
        lambda: [torch.nn.Linear(1, 1) for _ in range(10**5)],
        lambda: torch.nn.Linear(-1, 3),
        lambda: torch.nn.Linear(10**30, 3),
    ],
)
def test_a_network_beyond_its_weights_is_refused_before_it_is_allocated(build):
    weights = {"weight": np.zeros((100, 100), np.float32)}
    with pytest.raises(NetworkTooLargeError), AllocationLimit.of_weights(weights):
        build()


def test_a_network_of_the_size_of_its_weights_is_built():
    weights = {"weight": np.zeros((2000, 2000), np.float32), "bias": np.zeros(2000, np.float32)}
    with AllocationLimit.of_weights(weights):
        layer = torch.nn.Linear(2000, 2000)
        torch.nn.init.orthogonal_(layer.weight)
    assert layer.weight.device.type == "cpu"
