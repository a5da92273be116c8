"""Functions that jobs run in the tests of launchers and controllers."""

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.run_dir import RunDir


def say(data: Any) -> int:
    print("said", data["word"], "at", os.getcwd())
    print("complained", file=sys.stderr)
    return int(data.get("code", 0))


def fail(data: Any) -> None:
    raise RuntimeError("the gearbox broke")


def kill_itself(data: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def grow(data: Any) -> int:
    filled = bytearray(data["mib"] * 2**20)
    time.sleep(60)
    return len(filled)


def wait(data: Any) -> int:
    """Wait for SIGTERM, as a training does, and write `stopped` when it comes."""
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    Path(data["file"]).write_text(str(os.getpid()))
    while not stopped:
        time.sleep(0.02)
    Path(data["file"]).write_text("stopped")
    return 75


def wait_and_linger(data: Any) -> int:
    """Wait for SIGTERM, with an exit handler that takes its time."""
    atexit.register(time.sleep, 1.0)
    return wait(data)


def write_down(data: Any) -> int:
    """Write the data of the job as JSON."""
    Path(data["file"]).write_text(json.dumps(data))
    return 0


def leave_child(data: Any) -> int:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
    Path(data["file"]).write_text(str(child.pid))
    return 0


def wait_with_child(data: Any) -> None:
    leave_child(data)
    time.sleep(100)


def finish(data: Any) -> int:
    """Write what a training writes that finishes at once."""
    config = data["config"]
    run = RunDir(Path(config["run_dir"]))
    run.start(config, data["command"], {})
    record = {"mean_return": float(config["seed"])}
    run.write_result({"best": record, "final": record, "num_timesteps": config["n_timesteps"]})
    run.write_status("finished", n_timesteps=config["n_timesteps"])
    return 0


def finish_slowly(data: Any) -> int:
    """Finish after half a second, and write the times of begin and end beside the run."""
    began = time.time()
    time.sleep(0.5)
    code = finish(data)
    folder = Path(data["config"]["run_dir"])
    (folder / "times.json").write_text(json.dumps([began, time.time()]))
    return code
