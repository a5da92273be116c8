"""Instance metadata of EC2, version 2 only, from files, for a network namespace.

Use: python metadata_server.py FOLDER ADDRESS PORT

FOLDER/meta-data.json has the entries; FOLDER/instance-action.json is the notice of a Spot instance.
"""

import json
import secrets
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_LONGEST_S = 21_600


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    tokens: dict[str, float] = {}  # noqa: RUF012

    def do_PUT(self):
        life_s = int(self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "0"))
        if self.path != "/latest/api/token" or not 1 <= life_s <= _LONGEST_S:
            return self.answer(400)
        token = secrets.token_urlsafe(32)
        self.tokens[token] = time.monotonic() + life_s
        return self.answer(200, token, {"X-aws-ec2-metadata-token-ttl-seconds": str(life_s)})

    def do_GET(self):
        ends = self.tokens.get(self.headers.get("X-aws-ec2-metadata-token", ""), 0.0)
        if ends < time.monotonic():
            return self.answer(401)
        folder = self.server.folder
        if self.path == "/latest/meta-data/spot/instance-action":
            notice = folder / "instance-action.json"
            return self.answer(200, notice.read_text()) if notice.exists() else self.answer(404)
        known = json.loads((folder / "meta-data.json").read_text())
        found = known.get(self.path.removeprefix("/latest/meta-data/"))
        return self.answer(404) if found is None else self.answer(200, found)

    def answer(self, code, text="", headers=None):
        data = text.encode()
        self.send_response(code)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), Handler)
    server.folder = Path(sys.argv[1])
    server.serve_forever()
