"""Podman as moto's Docker: containers without a disk of their own, over this machine's Python.

The image is empty. What a container sees of this machine, read-only, its runtime adds: the system,
the Python, and this repository. So nothing is copied, and a container starts in a second.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
import uuid
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ssl")
_RUNTIME = """\
#!/usr/bin/python3
import json, os, sys
words = sys.argv[1:]
if "create" in words and "--bundle" in words:
    path = os.path.join(words[words.index("--bundle") + 1], "config.json")
    config = json.load(open(path))
    # Not every kernel allows them to be raised.
    config["process"].pop("rlimits", None)
    for place in {places}:
        mount = dict(destination=place, source=place, type="bind", options=["rbind", "ro"])
        config["mounts"].append(mount)
    json.dump(config, open(path, "w"))
os.execv({runc!r}, ["runc", *words])
"""


def why_not():
    """Return why there are no containers here, None if there are."""
    missing = [name for name in ("podman", "runc", "conmon") if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    if os.geteuid() != 0:
        return "needs root"
    return None if Path("/usr/bin/python3").exists() else "needs a Python of the system"


@contextlib.contextmanager
def podman(folder, patch):
    """Serve podman's API until the end of the block, for moto and for `make_image`."""
    if reason := why_not():
        pytest.skip(reason)
    places = [place for place in _SYSTEM if Path(place).exists()]
    places += [str(REPOSITORY), sys.base_prefix]
    runtime = folder / "runtime"
    runtime.write_text(_RUNTIME.format(places=places, runc=shutil.which("runc")))
    runtime.chmod(0o755)
    storage = {"driver": "vfs", "graphroot": str(folder / "graph"), "runroot": str(folder / "run")}
    (folder / "storage.conf").write_text(_toml("storage", storage))
    engine = {"runtime": "bound", "cgroup_manager": "cgroupfs", "events_logger": "file"}
    text = _toml("containers", {"netns": "host"}) + _toml("engine", engine)
    text += f"[engine.runtimes]\nbound = [{json.dumps(str(runtime))}]\n"
    (folder / "containers.conf").write_text(text)
    patch.setenv("CONTAINERS_CONF", str(folder / "containers.conf"))
    patch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
    # A socket's path has to be short.
    socket = Path("/tmp") / f"podman-{uuid.uuid4().hex[:8]}.sock"
    patch.setenv("DOCKER_HOST", f"unix://{socket}")
    patch.setenv("MOTO_DOCKER_NETWORK_MODE", "host")
    words = ["podman", "system", "service", "--time=0", f"unix://{socket}"]
    with (folder / "podman.log").open("wb") as log:
        service = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not socket.exists():
            assert time.monotonic() < deadline, (folder / "podman.log").read_text()
            time.sleep(0.1)
        yield
    finally:
        subprocess.run(["podman", "rm", "--all", "--force"], capture_output=True, timeout=120)
        service.terminate()
        service.wait(60)
        socket.unlink(missing_ok=True)


def make_image(name, entry, **environ):
    """Make an image with an entry point and variables, whose user is not root."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for folder in ("tmp", *_SYSTEM, str(REPOSITORY), sys.base_prefix):
            info = tarfile.TarInfo(folder.strip("/"))
            # Others may write to /tmp, and search the folders above what is bound.
            info.type, info.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(info)
    variables = {"HOME": "/tmp", "PATH": "/usr/bin:/bin", **environ}
    changes = [f"ENV {key}={value}" for key, value in variables.items()]
    changes += [f"ENTRYPOINT {json.dumps(entry)}", "USER 10001", "WORKDIR /tmp"]
    words = ["podman", "import", *(word for change in changes for word in ("--change", change))]
    done = subprocess.run([*words, "-", name], input=data.getvalue(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def _toml(section, values):
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join([f"[{section}]", *lines, ""])
