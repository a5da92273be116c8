"""A stand-in of the Hugging Face Hub on loopback: what its client asks to push, find and read."""

import base64
import contextlib
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import yaml

# A tiny run, and what it is called there.
RUN, REPO = "outputs/cartpole_bullet/ppo/day-s0", "somebody/cart-pole"
TOKEN = "hf_" + "StandInTokenOfNobody0123456789"
_LARGE = (".safetensors", ".npz", ".mp4", ".onnx", ".png", ".zip", ".pkl")


@dataclass(frozen=True)
class File:
    content: bytes
    is_large: bool = False  # in LFS

    @property
    def sha256(self):
        return hashlib.sha256(self.content).hexdigest()

    @property
    def git_hash(self):
        data = self.content
        if self.is_large:
            data = f"oid sha256:{self.sha256}\nsize {len(data)}\n".encode()
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Repo:
    commits: list = field(default_factory=list)  # (hash, files by name), oldest first
    private: bool = False
    tags: dict = field(default_factory=dict)  # further revisions

    @property
    def head(self):
        return self.commits[-1][0]

    def commit(self, files):
        text = repr(sorted((name, file.sha256) for name, file in files.items()))
        name = hashlib.sha1(f"{len(self.commits)}{text}".encode()).hexdigest()
        self.commits.append((name, dict(files)))
        return name

    def at(self, revision):
        wanted = self.tags.get(revision, revision)
        wanted = self.head if wanted == "main" else wanted
        return next((pair for pair in self.commits if pair[0] == wanted), None)


class StandIn:
    """The server, its repositories, and what it was asked."""

    def __init__(self):
        self.repos, self.large, self.far, self.requests = {}, {}, {}, []
        # What it says in place of the truth: sizes in listings, contents of downloads.
        self.sizes, self.contents = {}, {}
        self.before_download = lambda: None
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                server.answer(self, "GET")

            def do_POST(self):
                server.answer(self, "POST")

            def do_PUT(self):
                server.answer(self, "PUT")

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self):
        self.http.shutdown()
        self.http.server_close()

    def put(self, repo, files, **options):
        """Commit files, contents by name, as somebody who knows no rules."""
        found = self.repos.setdefault(repo, Repo(**options))
        made = {name: File(data, name.endswith(_LARGE)) for name, data in files.items()}
        return found.commit(made)

    def names(self, repo):
        return set(self.repos[repo].commits[-1][1])

    def answer(self, request, method):
        size = int(request.headers.get("Content-Length") or 0)
        body = request.rfile.read(size) if size else b""
        if request.headers.get("Transfer-Encoding") == "chunked":
            while n := int(request.rfile.readline(), 16):
                body += request.rfile.read(n)
                request.rfile.readline()
            request.rfile.readline()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((method, request.path, headers, body))
        parts = urlsplit(request.path)
        is_allowed = request.headers.get("Authorization") == f"Bearer {TOKEN}"
        found = self._found(method, unquote(parts.path), parse_qs(parts.query), body, is_allowed)
        status, data, headers = found
        if isinstance(data, (dict, list)):
            data = json.dumps(data).encode()
            headers = {**headers, "Content-Type": "application/json"}
        request.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        # The client may have read enough.
        with contextlib.suppress(OSError):
            request.wfile.write(data)

    def _found(self, method, path, query, body, is_allowed):
        if method == "PUT":
            self.large[path.rpartition("/")[2]] = body
            return 200, b"", {}
        if path.startswith("/far/"):
            name = path.removeprefix("/far/")
            return 200, self.contents.get(name, self.far.get(name, b"")), {}
        if path == "/api/models":
            return 200, self._search(query), {}
        if method == "POST" and not is_allowed:
            return _error(401, "Unauthorized", "Invalid username or password.")
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}, {}
        if path == "/api/repos/create":
            given = json.loads(body)
            name = f"{given['organization']}/{given['name']}"
            is_new = name not in self.repos
            private = given.get("private") or given.get("visibility") == "private"
            if is_new:
                self.repos[name] = Repo(private=bool(private))
                self.repos[name].commit({})
            told = {"url": f"{self.url}/{name}", "name": name, "id": name}
            return (200, told, {}) if is_new else (409, told, {})
        match = re.fullmatch(
            r"(?:/api/models)?/(?P<repo>[^/]+/[^/]+?)(?:\.git)?(?:/(?P<act>[a-z]+)(?:/(?P<rest>.+))?)?",
            path,
        )
        repo = self.repos.get(match["repo"]) if match else None
        if repo is None or (repo.private and not is_allowed):
            return _error(404, "RepoNotFound", "Repository not found")
        act, rest = match["act"], match["rest"] or "main"
        if act == "info":
            objects = json.loads(body)["objects"]
            for each in objects:
                each["actions"] = {"upload": {"href": f"{self.url}/large/{each['oid']}"}}
            return 200, {"transfer": "basic", "objects": objects}, {}
        if act == "preupload":
            files = json.loads(body)["files"]
            for each in files:
                each["uploadMode"] = "lfs" if each["path"].endswith(_LARGE) else "regular"
                each["shouldIgnore"] = False
            return 200, {"files": files}, {}
        if act == "commit":
            return self._commit(repo, body)
        revision, _, name = rest.partition("/")
        found = repo.at(revision)
        if found is None:
            return _error(404, "RevisionNotFound", "Revision not found")
        commit, files = found
        if act in (None, "revision"):
            return 200, {"id": match["repo"], "sha": commit, "tags": []}, {}
        if act == "tree":
            return 200, [self._entry(name, file) for name, file in files.items()], {}
        self.before_download()
        if name not in files:
            return _error(404, "EntryNotFound", "Entry not found")
        if files[name].is_large:
            # As there, another host has it.
            self.far[name] = files[name].content
            host = self.url.replace("127.0.0.1", "localhost")
            return 302, b"", {"Location": f"{host}/far/{name}"}
        return 200, self.contents.get(name, files[name].content), {"X-Repo-Commit": commit}

    def _entry(self, name, file):
        size = self.sizes.get(name, len(file.content))
        entry = {"type": "file", "path": name, "size": size, "oid": file.git_hash}
        if file.is_large:
            entry["lfs"] = {"oid": file.sha256, "size": size, "pointerSize": 130}
        return entry

    def _commit(self, repo, body):
        files = dict(repo.commits[-1][1])
        for line in body.splitlines():
            key, value = (json.loads(line)[name] for name in ("key", "value"))
            if key == "file":
                files[value["path"]] = File(base64.b64decode(value["content"]))
            elif key == "lfsFile":
                files[value["path"]] = File(self.large[value["oid"]], is_large=True)
            elif key == "deletedFile":
                del files[value["path"]]
        oid = repo.commit(files)
        told = {
            "commitUrl": f"{self.url}/a/b/commit/{oid}",
            "commitOid": oid,
            "pullRequestUrl": None,
        }
        return 200, {**told, "success": True}, {}

    def _search(self, query):
        found = []
        for name, repo in self.repos.items():
            card = repo.commits[-1][1].get("README.md")
            data = yaml.safe_load(card.content.split(b"---")[1]) if card else {}
            tags = [*data.get("tags", []), data.get("library_name")]
            is_wanted = all(tag in tags for tag in query.get("filter", []))
            if is_wanted and name.startswith(query.get("author", [""])[0]) and not repo.private:
                index = data.get("model-index")
                told = {"id": name, "tags": tags, "model-index": index, "downloads": 7}
                found.append({**told, "lastModified": "2026-11-26T08:00:00.000Z"})
        return found[: int(query.get("limit", ["20"])[0])]


def _error(status, code, text):
    return status, {"error": text}, {"X-Error-Code": code, "X-Error-Message": text}
