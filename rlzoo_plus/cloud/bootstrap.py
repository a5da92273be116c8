"""Run by `python3 -c` on a machine that has Python alone: installs rlzoo_plus, starts a worker."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile


def main() -> None:
    """Install from the wheel in the bucket; the arguments are a JSON object, then the worker's."""
    # A process 1 ignores signals that it does not handle; 75 asks for another attempt.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(75))
    began = time.monotonic()
    how = json.loads(sys.argv[1])
    folder = tempfile.mkdtemp()
    python, wheel = f"{folder}/bin/python", f"{folder}/{os.path.basename(how['object'])}"
    run("start", sys.executable, "-m", "venv", folder)
    pip = [python, "-m", "pip", "-q", "--no-input", "--disable-pip-version-check"]
    pip += ["install", "--no-cache-dir"]
    run("install boto3", *pip, *how["boto3"])
    fetch = "import boto3, sys; boto3.client('s3').download_file(*sys.argv[1:])"
    run("fetch rlzoo_plus", python, "-c", fetch, how["bucket"], how["object"], wheel)
    with open(wheel, "rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != how["sha256"]:
            sys.exit(f"{how['object']} is not what its name says")
    with zipfile.ZipFile(wheel) as archive:
        archive.extract("rlzoo_plus/docker/constraints.txt", folder)
    constraints = f"{folder}/rlzoo_plus/docker/constraints.txt"
    torch = [*pip, "--no-deps", "--index-url", how["torch_index"], how["torch"]]
    run("install torch", *torch)
    run("install rlzoo_plus", *pip, "-c", constraints, f"{wheel}[{how['extras']}]")
    print(f"rlzoo_plus was installed in {time.monotonic() - began:.0f} s", flush=True)
    # A public image starts in /, which its user may not write.
    os.chdir(folder)
    os.environ["PATH"] = f"{folder}/bin:{os.environ.get('PATH', '')}"
    os.execv(python, [python, "-m", "rlzoo_plus", "worker", *sys.argv[2:]])


def run(doing: str, *command: str) -> None:
    """Run a command, and end with an error if it fails."""
    code = subprocess.call(command)
    if code != 0:
        sys.exit(f"cannot {doing}: exit code {code}")


if __name__ == "__main__":
    main()
