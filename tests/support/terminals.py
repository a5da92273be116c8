"""Commands in a pseudo-terminal, as a user has them on the screen: keys go in, text comes out."""

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading

from support.processes import environ_of_tests

CTRL_C = b"\x03"


class Terminal:
    """A terminal with one command in it; the keyboard's signals go to its whole process group."""

    def __init__(self, folder, words, columns=100, lines=40):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._ours, self._seen = ours, bytearray()
        self.process = subprocess.Popen(
            [str(word) for word in words],
            cwd=folder,
            env=_environ(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=_take_the_terminal,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def press(self, keys):
        """Type."""
        os.write(self._ours, keys)

    @property
    def text(self):
        """Everything that was written so far, control sequences included."""
        return bytes(self._seen).decode(errors="replace")

    def wait(self, timeout_s=60.0):
        """Wait for the command to end; return its exit code."""
        code = self.process.wait(timeout=timeout_s)
        self._reader.join(timeout=5.0)
        return code

    def close(self):
        """End the command and everything that it has in the terminal."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 9)
        self.process.wait()
        self._reader.join(timeout=5.0)
        os.close(self._ours)

    def _read(self):
        # Reading fails once nothing has the other end open any more.
        with contextlib.suppress(OSError):
            while data := os.read(self._ours, 65536):
                self._seen += data


def _take_the_terminal() -> None:
    """Make the pseudo-terminal the new session's own, and Ctrl-C count.

    A test run that a shell has put into the background ignores SIGINT, and so would its children.
    """
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _environ():
    environ = environ_of_tests(TERM="xterm-256color", OMP_NUM_THREADS="1")
    # The size is the terminal's.
    return {key: value for key, value in environ.items() if key not in ("COLUMNS", "LINES")}


@contextlib.contextmanager
def terminals_in(folder):
    """Yield a function that opens a terminal with a command in a folder."""
    opened = []

    def open_it(*words, **options):
        opened.append(Terminal(folder, words, **options))
        return opened[-1]

    yield open_it
    for terminal in opened:
        terminal.close()
