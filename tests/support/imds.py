"""The instance metadata of a Spot instance, as IMDSv2 serves them: nothing without a token."""

import contextlib
import json
import secrets
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from rlzoo_plus.workers.spot_notice import VARIABLE

PREFIX = "/latest/meta-data/"
_TOKEN, _TTL = "X-aws-ec2-metadata-token", "X-aws-ec2-metadata-token-ttl-seconds"


class Instance:
    """What an instance's metadata say.

    Attributes:
        entries: Texts by their names below `meta-data/`.
        tokens: Those that are valid.
        requests: Method and path of each request.
        environ: The variable that leads there.
    """

    def __init__(self, kind="c7a.large"):
        self.entries = {"instance-type": kind}
        self.tokens, self.requests, self.environ = set(), [], {}

    def interrupt(self, in_s=120.0, action="terminate"):
        """Give notice."""
        ends = datetime.now(UTC) + timedelta(seconds=in_s)
        notice = {"action": action, "time": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}
        self.entries["spot/instance-action"] = json.dumps(notice)


@contextlib.contextmanager
def instance_metadata(**more):
    """Serve the metadata of an instance; yields the `Instance`."""
    instance = Instance(**more)

    class Handler(BaseHTTPRequestHandler):
        def answer(self, code, text=""):
            data = text.encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_PUT(self):
            instance.requests.append(("PUT", self.path))
            if self.path != "/latest/api/token" or not 1 <= int(self.headers[_TTL]) <= 21_600:
                return self.answer(400)
            token = secrets.token_urlsafe(24)
            instance.tokens.add(token)
            return self.answer(200, token)

        def do_GET(self):
            instance.requests.append(("GET", self.path))
            if self.headers[_TOKEN] not in instance.tokens:
                return self.answer(401)
            text = instance.entries.get(self.path.removeprefix(PREFIX))
            return self.answer(404) if text is None else self.answer(200, text)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    instance.environ[VARIABLE] = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=lambda: server.serve_forever(0.05), daemon=True)
    thread.start()
    try:
        yield instance
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
