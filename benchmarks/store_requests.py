"""How many requests a run with a store makes in an hour, and what they cost.

    python -m benchmarks.store_requests

An hour passes in a minute: beats, pushes and checkpoints are 60 times as frequent as usual, and
all else is the default job, PPO on cart-pole. Needs the extra `aws` and moto.
"""

from __future__ import annotations

import argparse
import tempfile

from benchmarks.flaky_s3 import serve_flaky_s3
from benchmarks.s3_server import BUCKET

FASTER = 60
# Of S3's standard class in us-east-1 [$ for a thousand requests].
PRICES = {"PUT": 0.005, "POST": 0.005, "LIST": 0.005, "GET": 0.0004, "HEAD": 0.0004}
GOAL = 400


def main() -> None:
    """Train for a minute and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("overrides", nargs="*", help="of another job")
    args = parser.parse_args()
    import rlzoo_plus as rz
    from rlzoo_plus.runs.store_sync import StoreSync
    from rlzoo_plus.store.sync import BEAT_S, PUSH_S

    StoreSync.intervals = {"beat_s": BEAT_S / FASTER, "push_s": PUSH_S / FASTER}
    overrides = ["algo=ppo", "env=cartpole_bullet", *args.overrides, f"store={BUCKET}/lab"]
    overrides += ["n_timesteps=100000000", "report.video=false", "report.plot=false"]
    overrides += [f"stop.wall_clock_minutes={60 / FASTER}", "eval.every_steps=20000"]
    overrides += [f"checkpoint.every_minutes={5 / FASTER}", "eval.episodes=5"]
    with serve_flaky_s3() as line, tempfile.TemporaryDirectory() as folder:
        line.new_requests()
        rz.train(*overrides, f"run_dir={folder}/ppo/run")
        found = line.new_requests()
    price = sum(PRICES[kind] * number / 1000 for kind, number in found.items())
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(found.items()))
    print(f"requests of an hour: {sum(found.values())} ({kinds}), ${price:.5f}")
    print(f"goal: {GOAL} at most")


if __name__ == "__main__":
    main()
