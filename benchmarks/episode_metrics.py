"""What logging the reward terms, ends and violations of episodes costs: processor time of training.

    .venv/bin/python -m benchmarks.episode_metrics --rounds 5

Trains the cart-pole with PPO, in turn with and without it, and compares the sums.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from unittest import mock

OVERRIDES = (
    *("env=cartpole_bullet", "n_envs=8", "n_timesteps=8192", "eval.every_steps=null"),
    *("report.plot=false", "report.video=false", "log.progress=false", "log.level=warning"),
    "env.kwargs.safety={max_velocity: 1.0}",
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    _train()  # imports, and the first look at everything
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds):
        for is_logged in (True, False) if number % 2 else (False, True):
            seconds[is_logged].append(_train(is_logged=is_logged))
    ratios = sorted(a / b for a, b in zip(seconds[True], seconds[False], strict=True))
    for is_logged, name in ((True, "with"), (False, "without")):
        print(f"{name:<8}{sum(seconds[is_logged]) / rounds:.2f} s of processor time a run")
    fastest = min(seconds[True]) / min(seconds[False])
    print(f"cost    {fastest - 1:+.1%} of the fastest, median round {ratios[rounds // 2] - 1:+.1%}")


def _train(*, is_logged: bool = True) -> float:
    """Return the processor time of a training [s]."""
    import rlzoo_plus as rz

    with tempfile.TemporaryDirectory() as folder:
        words = [*OVERRIDES, f"run_dir={Path(folder) / 'run'}"]
        off = mock.patch("rlzoo_plus.envs.monitor.episode_numbers", return_value={})
        began = time.process_time()
        if is_logged:
            rz.train(*words, quiet=True)
        else:
            with off:
                rz.train(*words, quiet=True)
        return time.process_time() - began


if __name__ == "__main__":
    main()
