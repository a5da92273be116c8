"""What checkpoints cost: time in training, bytes for new transitions, seconds to resume.

Trains SAC with a full replay buffer of a million transitions, and PPO, on HalfCheetah with the
tuned values. Blocks of iterations with a checkpoint and without one alternate in one process, so
that a busy machine slows both alike; the cost of one is set against a minute of training.

    python -m benchmarks.checkpoint [--rounds 8]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.envs.seeding import SeedStreams, seed_all
from rlzoo_plus.runs.load import load
from rlzoo_plus.training.callbacks import StopRequest, make_callbacks
from rlzoo_plus.training.callbacks.checkpoint_callback import CheckpointCallback
from rlzoo_plus.training.callbacks.outputs import make_logger
from rlzoo_plus.training.resume.replay_rows import row_groups

CADENCE_S = 60.0
COMMON = ["env=halfcheetah_bullet", "eval.every_steps=null", "device=cpu", "n_timesteps=10000000"]
SAC = [*COMMON, "algo=sac", "algo.hyperparams.buffer_size=1000000"]
SAC_ITERATIONS, PPO_ITERATIONS = 40, 1
SAVE_EVERY = 10_000


@dataclass
class Bench:
    """One training with its checkpoints, held in this process."""

    config: RunConfig
    run_dir: RunDir
    agent: Any
    callbacks: Any
    saving: CheckpointCallback
    close: Callable[[], None]


def build(overrides: list[str], folder: Path) -> Bench:
    """Build what a run consists of, without evaluations."""
    config = load([*overrides, "checkpoint.every_minutes=null", "checkpoint.keep=2"])
    torch.set_num_threads(1)
    seeds = SeedStreams.from_seed(0)
    seed_all(0)
    run_dir = RunDir(folder)
    folder.mkdir(parents=True, exist_ok=True)
    venv = make_train_env(config, seeds.train, run_dir.monitor)
    agent = make_agent(config, venv, seeds.agent)
    agent.set_logger(make_logger(config.log, run_dir, None))
    callbacks = make_callbacks(config, run_dir, None, StopRequest(), None)
    return Bench(config, run_dir, agent, callbacks, callbacks.checkpoint, venv.close)


def learn(bench: Bench, before_iteration: Callable[[], None]) -> None:
    """Run the algorithm's own loop until the hook ends it."""
    bench.agent.before_iteration = [before_iteration]
    with contextlib.suppress(StopTraining):
        bench.agent.learn(bench.config.n_timesteps, bench.callbacks.as_list())


def fill(buffer: Any) -> None:
    """Fill the buffer with copies of its real rows, each a little different."""
    columns = row_groups(buffer)["replay"].columns
    n_real = buffer.pos
    noise = np.random.default_rng(0)
    for start in range(n_real, buffer.buffer_size, n_real):
        stop = min(start + n_real, buffer.buffer_size)
        for name in columns:
            columns[name][start:stop] = columns[name][: stop - start]
        shift = noise.normal(0.0, 1e-3, columns["observations"][start:stop].shape)
        columns["observations"][start:stop] += shift.astype(np.float32)
        columns["next_observations"][start:stop] += shift.astype(np.float32)
    buffer.full, buffer.pos = True, 0


@dataclass
class Alternating:
    """Times blocks of iterations, every other with a checkpoint at its beginning."""

    bench: Bench
    n_iterations: int
    n_blocks: int
    blocks: list[float] = field(default_factory=list)
    held_up: list[float] = field(default_factory=list)
    count: int = 0
    started: float = 0.0

    def __call__(self) -> None:
        """Act at the top of an iteration."""
        if self.count % self.n_iterations == 0:
            now = time.perf_counter()
            if self.count:
                self.blocks.append(now - self.started)
            if len(self.blocks) == self.n_blocks:
                raise StopTraining("measured")
            self.started = time.perf_counter()
            if len(self.blocks) % 2 == 1:
                self.bench.saving.save()
                self.held_up.append(time.perf_counter() - self.started)
        self.count += 1


def cost(bench: Bench, n_iterations: int, rounds: int) -> None:
    """Print what a checkpoint costs, as a share of a minute."""
    blocks = Alternating(bench, n_iterations, 2 * rounds + 2)
    learn(bench, blocks)
    bench.saving.wait()
    # The first pair warms up: its checkpoint writes the whole buffer.
    without, with_one = blocks.blocks[2::2], blocks.blocks[3::2]
    pairs = [b - a for a, b in zip(without, with_one, strict=True)]
    extra = statistics.median(pairs)
    held_up = statistics.median(blocks.held_up[1:])
    name = bench.config.algo.name
    print(
        f"{name}: a block takes {statistics.median(without):.2f} s, with a checkpoint "
        f"{extra * 1000:+.0f} ms ({min(pairs) * 1000:+.0f} to {max(pairs) * 1000:+.0f}); training "
        f"is held up {held_up * 1000:.1f} ms; first checkpoint {blocks.held_up[0] * 1000:.0f} ms"
    )
    print(f"{name}: share of a minute {100 * extra / CADENCE_S:.3f}%, must be below 1%", flush=True)


def bytes_written(folder: Path) -> None:
    """Print the bytes of new chunks for each 10,000 transitions of a learning policy."""
    bench = build([*SAC, "algo.hyperparams.learning_starts=100000"], folder)
    written: list[int] = []

    def before_iteration() -> None:
        agent = bench.agent
        if agent.num_timesteps and agent.num_timesteps % SAVE_EVERY == 0:
            before = names(folder)
            bench.saving.save(waits=True)
            written.append(sum(size for name, size in names(folder).items() if name not in before))
        if len(written) == 4:
            raise StopTraining("measured")

    learn(bench, before_iteration)
    bench.close()
    shown = ", ".join(f"{size / 1e6:.2f}" for size in written)
    print(f"chunks written for each 10,000 new transitions: {shown} MB, at most 1.2", flush=True)


def names(folder: Path) -> dict[str, int]:
    """Return the chunks there are, with their sizes."""
    return {p.name: p.stat().st_size for p in (folder / "checkpoints" / "chunks").glob("*")}


def resume(bench: Bench) -> None:
    """Print how long it takes to go on with a full buffer."""
    bench.saving.save(waits=True)
    again = build(SAC, bench.run_dir.path)
    started = time.perf_counter()
    checkpoint = again.run_dir.checkpoints().load_newest()
    assert checkpoint is not None
    read = time.perf_counter() - started
    again.agent.resume_from = checkpoint.step

    def restore() -> None:
        begun = time.perf_counter()
        again.saving.snapshot.restore(again.agent, checkpoint)
        restored = time.perf_counter() - begun
        size = sum(f.stat().st_size for f in again.run_dir.path.glob("checkpoints/**/*"))
        print(
            f"resume with 1,000,000 transitions: {read:.2f} s to read and verify, {restored:.2f} s "
            f"to put back; {size / 1e6:.0f} MB on disk for two checkpoints"
        )
        raise StopTraining("measured")

    learn(again, restore)
    again.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bytes_written(folder / "bytes")
        sac = build([*SAC, "algo.hyperparams.learning_starts=2000"], folder / "sac")
        learn(sac, lambda: _until(sac, 2_000))
        fill(sac.agent.replay_buffer)
        cost(sac, SAC_ITERATIONS, options.rounds)
        resume(sac)
        sac.close()
        ppo = build([*COMMON, "algo=ppo"], folder / "ppo")
        cost(ppo, PPO_ITERATIONS, options.rounds)
        ppo.close()


def _until(bench: Bench, n_steps: int) -> None:
    if bench.agent.num_timesteps >= n_steps:
        raise StopTraining("enough")


if __name__ == "__main__":
    main()
