"""What a push of SAC with a million transitions sends, set against what its checkpoint wrote.

Fills a replay buffer with a million transitions, saves and pushes, takes 10,000 more steps with a
random policy, saves and pushes again. S3 is moto on this machine; each push is its own process.

    python -m benchmarks.store_push [--steps 10000] [--weights-mb 200]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from benchmarks.checkpoint import SAC, build, fill, learn
from benchmarks.s3_server import BUCKET, serve_s3
from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.artifacts.checkpoint import CheckpointStore

# Dollars of a request, S3 Standard in us-east-1.
PRICES = {"GetObject": 0.4e-6}
PRICE = 5e-6


def push(url: str, run: Path) -> None:
    """Push in a process of its own, and print what it took."""
    process = multiprocessing.get_context("spawn").Process(target=_push, args=(url, run))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit("the push failed")


def _push(url: str, run: Path) -> None:
    from rlzoo_plus.store.contract import open_store
    from rlzoo_plus.store.mirror import RunMirror

    store, requests = open_store(url), Counter[str]()
    for client in (store._client, store._quick):  # type: ignore[attr-defined]
        client.meta.events.register(
            "before-call.s3", lambda model, **_: requests.update([model.name])
        )
    before = _peak_mb()
    sent = RunMirror(store, "bench/run", run).push()
    dollars = sum(PRICES.get(name, PRICE) * count for name, count in requests.items())
    by_kind = ", ".join(f"{count} {name}" for name, count in sorted(requests.items()))
    print(
        f"  sent {sent.size / 1e6:.2f} MB in {sent.objects} objects; {by_kind}: ${dollars:.6f}; "
        f"memory {before:.0f} MB before, {_peak_mb():.0f} MB at most",
        flush=True,
    )


def _peak_mb() -> float:
    # Not that of `getrusage`: a new process begins with that of its parent.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def sizes(run: Path) -> dict[Path, int]:
    """Return the files of all checkpoints, with their sizes [bytes]."""
    return {p: p.stat().st_size for p in (run / "checkpoints").rglob("*") if p.is_file()}


def buffer_of_a_million(url: str, run: Path, steps: int) -> None:
    """Push a full replay buffer, and again after some steps."""
    sac = build([*SAC, "algo.hyperparams.learning_starts=10000000"], run)
    began = 2_000

    def before_iteration() -> None:
        taken = sac.agent.num_timesteps
        if taken == began and not sac.agent.replay_buffer.full:
            fill(sac.agent.replay_buffer)
            _save_and_push("1,000,000 transitions")
        elif taken >= began + steps:
            _save_and_push(f"{steps:,} more steps")
            raise StopTraining("measured")

    def _save_and_push(what: str) -> None:
        before = sizes(run)
        sac.saving.save(waits=True)
        wrote = sum(size for path, size in sizes(run).items() if path not in before)
        print(f"{what}: the checkpoint wrote {wrote / 1e6:.2f} MB", flush=True)
        push(url, run)

    learn(sac, before_iteration)
    sac.close()


def large_weights(url: str, run: Path, megabytes: int) -> None:
    """Push a checkpoint of large weights: it is sent from memory."""
    weights = np.random.default_rng(0).random(megabytes * 2**18, np.float32)
    run.mkdir()
    CheckpointStore(run / "checkpoints").save(1, {"weights": weights}, {})
    del weights
    print(f"{megabytes} MB of weights", flush=True)
    push(url, run)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--weights-mb", type=int, default=200)
    options = parser.parse_args()
    with serve_s3(), tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        buffer_of_a_million(f"{BUCKET}/sac", folder / "sac", options.steps)
        large_weights(f"{BUCKET}/large", folder / "large", options.weights_mb)


if __name__ == "__main__":
    main()
