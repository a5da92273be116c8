"""A PostgreSQL server of the tests' own: in a temporary directory, and as fragile as they want."""

import contextlib
import glob
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from support.processes import wait_for

PASSWORD = "a-password-of-the-tests"
# Durability is not what the tests are about, but a killed server must keep what it has committed:
# the system's cache does, as long as the machine runs.
_SETTINGS = (
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "max_connections=400",
    "unix_socket_directories=",
    "listen_addresses=127.0.0.1",
    "log_min_messages=fatal",
)


def programs() -> Path | None:
    """Return the folder of the server's programs, None if it is not installed."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    on_path = shutil.which("initdb")
    return Path(found[-1]).parent if found else Path(on_path).parent if on_path else None


def why_not() -> str | None:
    """Say why no server can be started here, None if one can."""
    if programs() is None:
        return "PostgreSQL is not installed"
    if find_spec("psycopg") is None:
        return "its driver comes with the extra postgres"
    if os.getuid() == 0 and subprocess.run(["id", "postgres"], capture_output=True).returncode:
        return "PostgreSQL does not run as root, and there is no user postgres"
    return None


class Server:
    """A server that can be killed and started again on the same data."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._data = folder, folder / "data"
        self.port = _free_port()
        self._process = None
        self._databases = 0
        secret = folder / "secret"
        secret.write_text(PASSWORD)
        if os.getuid() == 0:
            for path in (folder, secret):
                shutil.chown(path, "postgres", "postgres")
        words = ["-D", str(self._data), "-U", "tester", "-E", "UTF8", "--no-sync", "--locale=C"]
        self._run("initdb", *words, "-A", "trust", f"--pwfile={secret}")
        rule = "host all guarded 127.0.0.1/32 scram-sha-256\n"
        access = self._data / "pg_hba.conf"
        access.write_text(rule + access.read_text())

    def start(self) -> None:
        """Start it, and wait until it answers."""
        words = [str(programs() / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        for setting in _SETTINGS:
            words += ["-c", setting]
        with (self.folder / "log").open("ab") as log:
            os.chmod(self.folder / "log", 0o666)
            self._process = subprocess.Popen(words, stdout=log, stderr=log, **self._user())
        import psycopg

        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(psycopg.Error):
                self.execute("SELECT 1")
                return
            assert time.monotonic() < end, (self.folder / "log").read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """Kill it and all its processes, as a power failure does."""
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for victim in (pid, *map(int, children)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        self._process.wait()
        wait_for(lambda: not any(Path(f"/proc/{child}").exists() for child in children))

    def stop(self) -> None:
        """End it."""
        if self._process is not None and self._process.poll() is None:
            # Its data goes with it.
            self.kill()

    def new_database(self) -> str:
        """Return the URL of an empty database."""
        self._databases += 1
        name = f"study{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def url(self, database: str, user: str = "tester") -> str:
        """Return a database's URL."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str) -> None:
        """Run a statement in the server's own database."""
        import psycopg

        with psycopg.connect(
            self.url("postgres"), autocommit=True, connect_timeout=2
        ) as connection:
            connection.execute(statement)

    def _run(self, program: str, *words: str) -> None:
        command = [str(programs() / program), *words]
        done = subprocess.run(command, capture_output=True, text=True, **self._user())
        assert done.returncode == 0, done.stderr

    def _user(self) -> dict:
        # The folder of whoever runs the tests may be closed to that user.
        home = {"cwd": "/"}
        return {**home, "user": "postgres", "group": "postgres"} if os.getuid() == 0 else home


@contextlib.contextmanager
def running_server():
    """Yield a server in a temporary directory, which is removed in the end."""
    folder = Path(tempfile.mkdtemp(prefix="postgres"))
    server = None
    try:
        server = Server(folder)
        server.start()
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
