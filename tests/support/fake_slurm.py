"""Commands with the names of SLURM's, for one machine: a queue of files, jobs in the background."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = ("sbatch", "srun", "squeue", "scancel")


def install(folder, state):
    """Write the commands into a folder; `FAKE_SLURM` must name the folder of their state."""
    folder.mkdir()
    state.mkdir()
    for name in COMMANDS:
        file = folder / name
        file.write_text(f'#!/bin/sh\nexec {sys.executable} -S {__file__} {name} "$@"\n')
        file.chmod(0o755)


def main(name, arguments, state):
    if name == "sbatch":
        return sbatch(Path(arguments[-1]), state)
    if name == "squeue":
        print("\n".join(file.stem for file in state.glob("*.job")))
        return 0
    if name == "scancel":
        return scancel(arguments, state)
    return srun(arguments, state)


def sbatch(script, state):
    text = script.read_text()
    if "--partition=nowhere" in text:
        print("sbatch: error: invalid partition specified: nowhere", file=sys.stderr)
        return 1
    number = str(1000 + len(list(state.glob("*.sh"))))
    (state / f"{number}.sh").write_text(text)
    (state / f"{number}.job").write_text("pending")
    environ = {**os.environ, "SLURM_JOB_ID": number, "SLURM_PROCID": "0"}
    subprocess.Popen(
        [sys.executable, "-S", __file__, "run", number], env=environ, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    print(f"Submitted batch job {number}")
    return 0


def run(number, state):
    """Be the node of a job: run its script, then take it out of the queue."""
    entry = state / f"{number}.job"
    while (state / "hold").exists():
        time.sleep(0.05)
        if not entry.exists():
            return 0
    text = (state / f"{number}.sh").read_text()
    output = re.search(r"--output=(\S+)", text).group(1).replace("%j", number)
    with open(output, "a") as file:
        subprocess.run(["bash", str(state / f"{number}.sh")], stdout=file, stderr=file, check=False)
    entry.unlink(missing_ok=True)
    return 0


def srun(arguments, state):
    command = [word for word in arguments if not word.startswith("--")]
    if "--output" in arguments:
        command.remove(arguments[arguments.index("--output") + 1])
    (state / f"{os.environ['SLURM_JOB_ID']}.job").write_text(str(os.getpid()))
    os.execvp(command[0], command)


def scancel(arguments, state):
    entry = state / f"{arguments[-1]}.job"
    if not entry.exists():
        return 1
    pid = entry.read_text()
    options = dict(word.lstrip("-").split("=") for word in arguments[:-1])
    if options.get("state") == "PENDING":
        if pid == "pending":
            entry.unlink()
    elif pid != "pending":
        os.kill(int(pid), signal.Signals[f"SIG{options.get('signal', 'KILL')}"])
    return 0


if __name__ == "__main__":
    folder = Path(os.environ["FAKE_SLURM"])
    action, *words = sys.argv[1:]
    sys.exit(run(words[0], folder) if action == "run" else main(action, words, folder))
