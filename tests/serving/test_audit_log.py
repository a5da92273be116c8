"""The audit log: what is written, what a change of it shows, and what a killed server loses."""

import json
import signal
import time

import numpy as np
import pytest
from support.serving import Server, say, until, write_policy

from rlzoo_plus.commands import dispatch
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.serving.audit_log import AuditLog, audit_files, hash_of_action
from rlzoo_plus.serving.audit_reading import query, verify
from rlzoo_plus.serving.decision import Decision


def decision(step=0, version="1"):
    action = np.array([step, 1], np.float32)
    return Decision(action, version, "s", "policy", step, None, None)


def write(folder, count=20, **options):
    log = AuditLog(folder, **options)
    for step in range(count):
        log.decided(decision(step), "robot", 0.5, 1e-4)
    log.close()


def lines_of(folder):
    return [line for path in audit_files(folder) for line in path.read_bytes().splitlines()]


def test_a_line_says_who_did_what_when_and_why(tmp_path):
    write(tmp_path, 1)
    (line,) = query(tmp_path, {"agent_id": "robot"}, 0, np.inf)
    assert line["action_hash"] == hash_of_action(np.array([0, 1], np.float32))
    assert (line["reward"], line["q_value"], line["exploration_flag"]) == (0.5, None, False)
    assert (line["version"], line["session"], line["source"]) == ("1", "s", "policy")
    assert line["latency_us"] == 100
    assert abs(line["timestamp"] - time.time()) < 60


def test_a_log_that_goes_on_is_whole(tmp_path):
    for _ in range(3):
        write(tmp_path)
    found = verify(tmp_path)
    assert (found.mistakes, found.notes, found.lost) == ([], [], 0)
    assert found.lines == found.last == 3 * 22


def test_files_of_a_log_follow_each_other(tmp_path):
    # The writer takes what waits at once.
    for _ in range(4):
        write(tmp_path, 30, largest=2000)
    files = audit_files(tmp_path)
    assert len(files) >= 3
    assert verify(tmp_path).mistakes == []
    files[0].unlink()
    found = verify(tmp_path)
    assert found.mistakes == []
    assert "older files" in found.notes[0]
    files[2].unlink()
    assert "cut or reordered" in verify(tmp_path).mistakes[0]


@pytest.mark.parametrize("way", ["changed", "cut", "reordered", "doubled", "end", "garbage"])
def test_what_was_done_to_a_log_is_found(tmp_path, way):
    write(tmp_path)
    (path,) = audit_files(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    match way:
        case "changed":
            lines[7] = lines[7].replace(b'"reward":0.5', b'"reward":0.6')
        case "cut":
            del lines[7]
        case "reordered":
            lines[7], lines[8] = lines[8], lines[7]
        case "doubled":
            lines.insert(7, lines[6])
        case "end":
            del lines[-3:]
        case "garbage":
            lines[7] = b"{}\n"
    path.write_bytes(b"".join(lines))
    assert verify(tmp_path).mistakes
    assert dispatch.run("audit", ["verify", str(tmp_path)]) == 1


def test_a_log_that_was_written_anew_lacks_a_hash_that_was_noted(tmp_path, capsys):
    write(tmp_path / "first")
    noted = verify(tmp_path / "first").sha256
    write(tmp_path / "second")
    assert verify(tmp_path / "first", noted).mistakes == []
    assert dispatch.run("audit", ["verify", str(tmp_path / "second"), "--head", noted]) == 1
    assert "--head" in capsys.readouterr().out


def test_only_one_server_writes_a_log(tmp_path):
    log = AuditLog(tmp_path)
    with pytest.raises(ConfigError, match="another server"):
        AuditLog(tmp_path)
    log.close()


class Full:
    """A file on a full disk, until there is room."""

    def __init__(self, file):
        self.file, self.has_room = file, False

    def write(self, data):
        return self.file.write(data if self.has_room else data[:5])

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("full", ["stop", "drop"])
def test_a_full_queue_stops_decisions_or_is_told(tmp_path, full):
    log = AuditLog(tmp_path, full=full, queue=10)
    until(lambda: len(log) == 0)
    disk = log._file = Full(log._file)
    log.decided(decision(), "robot", None, 0)
    until(lambda: log.failed is not None)
    assert log.is_stopped() == (full == "stop")
    for step in range(20):
        log.decided(decision(step), "robot", None, 0)
    assert log.dropped == 20
    disk.has_room = True
    until(lambda: log.failed is None)
    assert not log.is_stopped()
    log.decided(decision(), "robot", None, 0)
    log.close()
    found = verify(tmp_path)
    assert (found.mistakes, found.dropped) == ([], 20)


def test_a_killed_server_loses_what_waited_and_the_next_one_says_so(tmp_path, capsys):
    folder, audit = write_policy(tmp_path / "tiny"), tmp_path / "audit"
    with Server(folder, "--audit", audit) as server:
        socket, _ = server.connect()
        for _ in range(500):
            say(socket, observation=[0, 0, 0])
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    written = sum(b'"source"' in line for line in lines_of(audit))
    lost = 500 - written
    assert "killed" in " ".join(verify(audit).notes)
    with Server(folder, "--audit", audit) as server:
        server.post("/invocations", {"observation": [0, 0, 0]})
        assert f"rlzoo_plus_audit_lost {lost}" in server.metrics()
        if lost:
            assert f"{lost} lines of the audit log are lost" in server.output
        assert server.end() == 0
    assert dispatch.run("audit", ["verify", str(audit)]) == 0
    found = verify(audit)
    assert (found.lost, found.mistakes) == (lost, [])


def test_what_waits_in_a_killed_process_is_counted(tmp_path, monkeypatch):
    log = AuditLog(tmp_path)
    until(lambda: len(log) == 0)
    # What the writer of a killed process does.
    monkeypatch.setattr(AuditLog, "_write_some", lambda self: time.sleep(3600))
    for step in range(7):
        log.decided(decision(step), "robot", None, 0)
    with (tmp_path / "audit-000001.jsonl").open("ab") as file:
        file.write(b'{"n":2,"prev')
    log._lock.release()
    monkeypatch.undo()
    write(tmp_path, 1)
    found = verify(tmp_path)
    assert (found.mistakes, found.lost) == ([], 7)
    torn = lines_of(tmp_path)[2]
    assert json.loads(torn)["torn"] is True
    lines = b"\n".join(lines_of(tmp_path)).replace(b"prev\n", b"wrong\n")
    audit_files(tmp_path)[0].write_bytes(lines)
    assert verify(tmp_path).mistakes


def test_lines_are_searched_and_counted(tmp_path, capsys):
    write(tmp_path)
    assert dispatch.run("audit", ["query", str(tmp_path), "--source", "policy", "--count"]) == 0
    assert "20  policy" in capsys.readouterr().out
    assert dispatch.run("audit", ["query", str(tmp_path), "--agent", "robot", "--limit", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert dispatch.run("audit", ["query", str(tmp_path), "--until", "2001-01-01"]) == 0
    assert capsys.readouterr().out == ""
    assert dispatch.run("audit", ["query", str(tmp_path), "--since", "yesterday"]) == 2
