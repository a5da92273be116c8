"""Every verb that takes a path, each with what anybody may have put there, under an audit hook.

`python tests/support/attack.py` makes the folders, lets a process of its own run all pairs of verb
and injection, and prints a table of what each did. What counts is what a pair does, not what it
says: a command, a process, an import of the planted package, a connection, a write elsewhere.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1]
STARTS = ("os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn")
STARTS += ("subprocess.Popen", "pickle.find_class", "ctypes.dlopen/evil")
CONNECTS = ("socket.connect", "socket.bind", "socket.getaddrinfo", "urllib.Request")
# Which of an event's arguments are paths.
WRITES = {
    "os.remove": (0,), "os.rename": (0, 1), "os.mkdir": (0,), "os.rmdir": (0,), "os.link": (0, 1),
    "os.symlink": (1,), "os.chmod": (0,), "os.truncate": (0,), "os.utime": (0,),
    "shutil.rmtree": (0,), "shutil.move": (0, 1), "shutil.copyfile": (1,),
}  # fmt: skip
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PLANTED = "evil_package"


class Watch:
    """Notes what a pair must not do; writing is allowed below the folders of `inside`."""

    def __init__(self, inside):
        self.always = [os.path.realpath(path) for path in inside]
        self.inside, self.seen, self.on = [], [], False

    def begin(self, folder):
        self.inside = [*self.always, os.path.realpath(folder)]
        self.seen, self.on = [], True

    def __call__(self, event, args):
        if not self.on:
            return
        if event == "subprocess.Popen" and _is_own_worker(args[1]):
            # The environments of the command line are tried there; what it does is seen on disk.
            return
        if event in STARTS:
            self.seen.append(("execution", f"{event} {args!r:.90}"))
        elif event == "import" and args[0].split(".")[0] == PLANTED:
            self.seen.append(("execution", f"import {args[0]}"))
        elif event in CONNECTS:
            self.seen.append(("connection", f"{event} {args!r:.90}"))
        elif event in WRITES:
            for position in WRITES[event]:
                self._written(event, args[position], args)
        elif event == "open" and isinstance(args[2], int) and args[2] & WRITING:
            self._written(event, args[0], ())

    def _written(self, event, path, args):
        # Hydra makes the present folder, which is there.
        if isinstance(path, int) or (event == "os.mkdir" and os.path.isdir(path)):
            return
        text = os.fsdecode(path)
        # Relative to a folder that is open, as shutil.rmtree does.
        folder = args[-1] if args and isinstance(args[-1], int) and args[-1] > 0 else None
        if folder is not None and not os.path.isabs(text):
            text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
        # What is removed or renamed is the link itself; what is opened, is where it leads.
        place = os.path.realpath(text) if event == "open" else _itself(text)
        if place != os.devnull and not any(place.startswith(f"{i}/") for i in self.inside):
            self.seen.append(("write", f"{event} {place}"))


def _is_own_worker(words):
    return (
        list(words[:2]) == [sys.executable, "-c"]
        and "rlzoo_plus.sweeps.launchers.job_process" in words[2]
    )


def _itself(path):
    return os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))


def child():
    """Run the pairs of standard input in this process; print what each did."""
    import guard
    import matplotlib.font_manager  # noqa: F401  (the first time, it asks for the fonts there are)
    import urllib3  # noqa: F401  (as it is imported, it binds a socket to see if there is IPv6)
    from hydra.core.global_hydra import GlobalHydra

    from rlzoo_plus.tuning import study

    pairs = json.load(sys.stdin)
    study._ABOUT_PATIENCE_S = 0.0
    signal.signal(signal.SIGALRM, guard.hang)
    # The user's own cache of this package.
    cache = os.path.join(os.environ["XDG_CACHE_HOME"], "rlzoo_plus")
    watch = Watch([os.environ["TMPDIR"], os.environ["MPLCONFIGDIR"], cache])
    sys.addaudithook(watch)
    results = []
    for pair in pairs:
        GlobalHydra.instance().clear()
        sys.argv = ["train.py"]
        began = time.monotonic()
        signal.alarm(guard.LIMIT_S)
        watch.begin(pair["folder"])
        try:
            code, text = guard.load(pair)
        except BaseException as error:
            code, text = -1, f"{type(error).__name__}: {error!s:.300}"
        watch.on = False
        signal.alarm(0)
        done = {"code": code, "text": text, "seen": watch.seen}
        results.append({**pair, **done, "seconds": round(time.monotonic() - began, 2)})
    print(json.dumps(results))


def attack(root, each=None):
    """Make the folders below `root` and run the pairs; return what each did.

    Args:
        root: An empty folder.
        each: So many injections of each verb, None for all.

    Returns:
        The results, and what is there that was not before, outside of the folders that were given.
    """
    from attack_cases import make_pairs

    for name in ("cwd", "tmp", "matplotlib", "victim", "cache/rlzoo_plus"):
        (root / name).mkdir(parents=True)
    (root / "victim" / "precious").write_text("mine")
    canary = root / "canary"
    (root / f"{PLANTED}.py").write_text(f"open({str(canary)!r}, 'a').write('imported')\n")
    pairs = make_pairs(root, f"touch {canary}", each)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS), str(root)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(root / "tmp"),
        "MPLCONFIGDIR": str(root / "matplotlib"),
        "XDG_CACHE_HOME": str(root / "cache"),
    }
    done = subprocess.run(
        [sys.executable, __file__, "--child"],
        input=json.dumps(pairs),
        cwd=root / "cwd",
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    victim = [path.name for path in (root / "victim").rglob("*")]
    left = [path for path in (root / "cwd").rglob("*")] + [canary] * canary.exists()
    if victim != ["precious"] or (root / "victim" / "precious").read_text() != "mine":
        left.append(root / "victim")
    return json.loads(done.stdout.splitlines()[-1]), left


def table(results):
    """Return the pairs as text: a line each, and the sums."""
    lines = [f"{'verb':<22}{'injection':<46}{'exit':>4}  executed  written  connected"]
    kinds = ("execution", "write", "connection")
    sums = dict.fromkeys(kinds, 0)
    for result in results:
        counts = [sum(kind == seen for seen, _ in result["seen"]) for kind in kinds]
        for kind, count in zip(kinds, counts, strict=True):
            sums[kind] += count
        cells = "".join(f"{count:>10}" for count in counts)
        lines.append(f"{result['name']:<22}{result['injection']:<46}{result['code']:>4}{cells}")
    total = ", ".join(f"{sums[kind]} {kind}s" for kind in kinds)
    seconds = sum(result["seconds"] for result in results)
    return "\n".join([*lines, f"{len(results)} pairs: {total}; {seconds:.0f} s"])


def main():
    """Run the attack in a temporary folder and print the table."""
    sys.path[:0] = [str(TESTS.parent), str(TESTS), str(Path(__file__).parent)]
    if "--child" in sys.argv:
        child()
        return 0
    with tempfile.TemporaryDirectory() as folder:
        results, left = attack(Path(folder))
    print(table(results))
    for result in results:
        for kind, event in result["seen"]:
            print(f"{kind} by {result['name']}, {result['injection']}: {event}")
        if "--texts" in sys.argv:
            print(f"{result['name']}, {result['injection']}: {' '.join(result['text'].split())}")
    for path in left:
        print(f"left: {path}")
    return int(bool(left) or any(result["seen"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
