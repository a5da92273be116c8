"""A TCP proxy in front of a server, which is slow, refuses, or breaks connections on demand."""

import contextlib
import re
import socket
import struct
import threading
import time

_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
_CHUNK = 2**16


class FlakyProxy:
    """Forwards connections to a port of this machine; what it does to them may change any time.

    Attributes:
        port: Where it listens.
        delay_s: Each request is forwarded so much later [s].
        is_gone: Refuse connections, and break those that are open.
        breaks_from: Break the connection of each PUT of at least so many bytes after half of them;
            None for none.
        cuts: Reset so many connections, the next ones, after `cut_after` bytes of the answer.
        requests: How many requests of each method it has seen, of a client that sends the start of
            each in a packet of its own.
    """

    def __init__(self, server_port):
        self.delay_s, self.is_gone, self.breaks_from = 0.0, False, None
        self.cuts = self.cut_after = 0
        self.requests = {}
        self._server_port, self._open = server_port, set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        """Listen no more, and break what is open."""
        self._listener.close()
        self._break_all()

    def leave(self):
        """Be gone."""
        self.is_gone = True
        self._break_all()

    def come_back(self):
        """Forward again."""
        self.is_gone = False

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_gone:
                    _break(client)
                else:
                    threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port))
        except OSError:
            _break(client)
            return
        pair = (client, server)
        self._open.add(pair)
        for sock in pair:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        most = self.cut_after if self.cuts > 0 else None
        self.cuts -= most is not None
        back = threading.Thread(target=_forward, args=(server, client, most), daemon=True)
        back.start()
        # OSError: the other side has broken the connection.
        with contextlib.suppress(OSError):
            self._forward_requests(client, server)
        for sock in pair:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        self._open.discard(pair)

    def _forward_requests(self, client, server):
        left = 0  # of the content of a PUT, until the connection breaks
        while data := client.recv(_CHUNK):
            method = data.partition(b" ")[0]
            if method in (b"PUT", b"GET", b"HEAD", b"POST", b"DELETE"):
                kind = "LIST" if b"list-type=2" in data.split(b"\r\n")[0] else method.decode()
                self.requests[kind] = self.requests.get(kind, 0) + 1
                time.sleep(self.delay_s)
                head, _, data_after = data.partition(b"\r\n\r\n")
                found = _LENGTH.search(head)
                size = int(found[1]) if found and method == b"PUT" else 0
                is_broken = self.breaks_from is not None and size >= self.breaks_from
                left = size // 2 if is_broken else 0
                server.sendall(data[: len(data) - len(data_after)])
                data = data_after
            if left and len(data) >= left:
                server.sendall(data[:left])
                _break(client, server)
                return
            left = max(left - len(data), 0)
            server.sendall(data)

    def _break_all(self):
        for pair in list(self._open):
            _break(*pair)


def _forward(source, target, most):
    """Forward what comes, or break the connection after so many bytes of it."""
    with contextlib.suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data[:most])
            if most is not None and (most := most - len(data)) <= 0:
                _break(source, target)
                return
        target.shutdown(socket.SHUT_WR)


def _break(*sockets):
    """Close sockets as a machine that loses power would: the other side gets a reset."""
    for sock in sockets:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # Only the last close of a socket that a thread reads from sends the reset.
            sock.shutdown(socket.SHUT_RD)
        with contextlib.suppress(OSError):
            sock.close()
