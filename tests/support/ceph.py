"""A Ceph RGW of the tests' own, a real server of S3: in a temporary directory, on loopback."""

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "monmaptool", "setpriv")
# As for moto: boto3 keeps the first ones it finds.
KEY, SECRET = "test", "test"
_PATIENCE_S = 120.0
# One disk in memory, no copies, nothing to prove to each other. The newer protocol wants keys.
_SETTINGS = """
[global]
fsid = {fsid}
mon host = {monitor}
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
mon data = {folder}/mon
mon data avail crit = 1
mon data avail warn = 2
osd data = {folder}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
osd class load list = *
osd class default list = *
ms bind ipv6 = false
ms bind msgr2 = false
public addr = 127.0.0.1
cluster addr = 127.0.0.1
run dir = {folder}
log file = {folder}/$name.log
admin socket = {folder}/$name.asok
pid file =
rgw data = {folder}/rgw
rgw dns name = localhost
"""


def why_not() -> str | None:
    """Say why no Ceph can be started here, None if one can."""
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    return f"Ceph is not installed: no {missing[0]}" if missing else None


class Cluster:
    """A monitor, a disk in memory and a gateway; each a process of ours in the foreground."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes = []
        self._conf = folder / "ceph.conf"
        self.endpoint = ""

    def start(self) -> None:
        """Start it, and wait until it answers."""
        fsid, monitor = str(uuid.uuid4()), f"[v1:127.0.0.1:{_free_port()}/0]"
        for name in ("mon", "osd", "rgw"):
            (self.folder / name).mkdir()
        self._conf.write_text(_SETTINGS.format(fsid=fsid, monitor=monitor, folder=self.folder))
        monmap = self.folder / "monmap"
        self._call("monmaptool", "--create", "--addv", "a", monitor, "--fsid", fsid, monmap)
        self._call("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap)
        self._serve("ceph-mon", "-i", "a")
        disk = str(uuid.uuid4())
        self._until_it_works("ceph", "osd", "new", disk)
        self._call("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        self._serve("ceph-osd", "-i", "0")
        place = ("osd.0", "1.0", "root=default", "host=local")
        self._until_it_works("ceph", "osd", "crush", "add", *place)
        # Another process may take a free port before it is used, so it is chosen late.
        port = _free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        frontend = f"--rgw-frontends=beast endpoint=127.0.0.1:{port}"
        self._serve("radosgw", "-n", "client.rgw", frontend)
        self._until_it_answers(port)
        keys = ("--access-key", KEY, "--secret", SECRET)
        self._call("radosgw-admin", "user", "create", "--uid=t", "--display-name=t", *keys)

    def stop(self) -> None:
        """End all its processes."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _serve(self, program, *words) -> None:
        # It ends with the tests, even if those are killed.
        command = ["setpriv", "--pdeathsig", "KILL", program, "-c", self._conf, "-f", *words]
        with (self.folder / "output").open("ab") as output:
            self._processes.append(
                subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
            )

    def _call(self, program, *words) -> str:
        done = self._try(program, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _try(self, program, *words, timeout_s=_PATIENCE_S) -> subprocess.CompletedProcess:
        command = [program, "-c", self._conf, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)

    def _until_it_works(self, *command) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if self._try(*command, timeout_s=10.0).returncode == 0:
                    return
            self._check(deadline)

    def _until_it_answers(self, port) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return
            self._check(deadline)

    def _check(self, deadline) -> None:
        output = (self.folder / "output").read_text(errors="replace")[-2000:]
        ended = {p.args[3]: p.returncode for p in self._processes if p.poll() is not None}
        assert not ended, f"{ended}: {output}"
        assert time.monotonic() < deadline, output
        time.sleep(0.1)


@functools.cache
def shared_cluster() -> Cluster:
    """Return the cluster of all tests of this process, which ends and is removed with it."""
    # Two clusters that start at the same moment may get in each other's way.
    for is_last_attempt in (False, False, True):
        folder = Path(tempfile.mkdtemp(prefix="ceph"))
        cluster = Cluster(folder)
        # Last registered, first called.
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(cluster.stop)
        try:
            cluster.start()
        except AssertionError:
            cluster.stop()
            if is_last_attempt:
                raise
        else:
            return cluster
    raise AssertionError("unreachable")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
