"""Rank 0 of a training by several processes, the one with the run directory: the way in.

It starts the other ranks, tells them what to do, and is told why one has ended. They collect and
update; checkpoints, evaluations and logs are made here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import one_line, parse_json, printable
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.shares import share_of
from rlzoo_plus.envs.monitor import EpisodeMonitor, EpisodeRows
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.processes import how_it_ended, start_child
from rlzoo_plus.ranks.group import Group, Order
from rlzoo_plus.ranks.joint_updates import JointUpdates as JointUpdates
from rlzoo_plus.ranks.joint_updates import hash_of, shared_parameters
from rlzoo_plus.ranks.statistics_of_ranks import adopt, statistics_of
from robots.cores import machine_cores

log = logging.getLogger(__name__)
# Exit code of a rank that ends as another one has ended.
FOLLOWED = 3
READY = b"ready\n"
# What rank 0 says last: end as ordered, or at once.
END, STOP = b"end", b"stop"
# Rollouts between two comparisons of the weights.
CHECK_EVERY = 10
# Until the end of a process that has lost its connections is known, and until all have ended [s].
_EXIT_CODE_S, _END_S = 5.0, 10.0
_LONGEST_ANSWER = 2**16


def device_of(device: str, rank: int, size: int) -> str:
    """Return the device of a rank: with `cuda` each has a GPU of its own, with `auto` the CPU.

    Raises:
        ConfigError: There are fewer GPUs than ranks.
    """
    if device != "cuda":
        return "cpu"
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < size:
        raise ConfigError(
            f"device=cuda with distributed={size}: torch sees {count} CUDA devices here, and each "
            "process takes one. Set device=cpu, or distributed to at most their number."
        )
    return f"cuda:{rank}"


class RankZero:
    """The other ranks of a training, as rank 0 has them; a context manager that ends them.

    Attributes:
        share: The configuration of what this process builds.
        group: Connects all ranks, from `attach` on.
    """

    group: Group

    def __init__(self, config: RunConfig, run_dir: RunDir) -> None:
        """Start the other processes; they import and build beside this one.

        Raises:
            ConfigError: There are fewer GPUs than processes.
        """
        self._config, self._run_dir, size = config, run_dir, config.distributed
        device = device_of(config.device, 0, size)
        self._on_gpus = device != "cpu"
        self.share = share_of(config).model_copy(update={"device": device})
        if size > (cores := machine_cores()):
            log.warning("distributed=%d is more than the %d cores of this machine", size, cores)
        log.info("distributed: %d processes with %d environments each", size, self.share.n_envs)
        self._files: list[EpisodeRows] = []
        self._rollouts, self._has_begun = 0, False
        self._said: dict[int, bytes] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="rlzoo-ranks-")
        self._others: list[subprocess.Popen[bytes]] = []
        try:
            self._others += (self._start(rank) for rank in range(1, size))
        except BaseException:
            self.close()
            raise

    def _start(self, rank: int) -> subprocess.Popen[bytes]:
        ticket = {
            "config": self._config.model_dump(mode="json"),
            "run_dir": str(self._run_dir.path.absolute()),
            "folder": self._folder.name,
            "rank": rank,
            "leader": os.getpid(),
        }
        return start_child("rlzoo_plus.ranks.other_rank", ticket, session=False)

    def attach(self, agent: Any) -> None:
        """Connect an agent of this process with those of the others.

        Raises:
            ConfigError: Another rank refuses its configuration.
            RunError: One has ended.
        """
        for process in self._others:
            assert process.stdout is not None
            self._said[process.pid] = said = process.stdout.readline(_LONGEST_ANSWER)
            if said != READY:
                raise self._explain(RuntimeError("it did not begin"))
        folder, size = Path(self._folder.name), self._config.distributed
        self.group = Group(folder, 0, size, self._explain, on_gpus=self._on_gpus)
        join(agent, self)
        monitor = self._run_dir.monitor
        for index in range(self.share.n_envs, self._config.n_envs):
            file = monitor / f"{index}.{EpisodeMonitor.EXT}"
            self._files.append(EpisodeRows(file, self._config.env, time.time()))
        self._agent = agent

    def order(self, order: Order) -> None:
        """Tell the other ranks what to do, and how many steps have been taken."""
        if order is Order.ROLLOUT:
            if not self._has_begun:
                self._adopt()
            if self._rollouts % CHECK_EVERY == 0:
                self._check()
            self._rollouts += 1
        self.group.from_first(torch.tensor([int(order), int(self._agent.num_timesteps)]))

    def note_episodes(self, episodes: list[tuple[int, int, dict[str, Any], Any]]) -> None:
        """Count the episodes of all ranks as this agent's, and write the others' to monitor/."""
        agent, own = self._agent, self.share.n_envs
        for _, index, numbers, success in episodes:
            if numbers:
                agent.ep_info_buffer.append(numbers)
                if index >= own:
                    row = {key: numbers[key] for key in ("r", "l", "t")}
                    self._files[index - own].write_row(row)
            if success is not None:
                agent.ep_success_buffer.append(success)

    def states(self) -> list[dict[str, Any]]:
        """Return what a checkpoint holds of the other ranks, in their order."""
        self._check()
        self.order(Order.SEND_STATE)
        return self.group.gather({})[1:]

    def restore(self, states: Any) -> list[str]:
        """Restore the other ranks; return what could not be restored exactly, a text for each.

        Args:
            states: From `states`, of a checkpoint that anybody may have written.

        Raises:
            ValueError: It does not fit.
        """
        size = self._config.distributed
        if not isinstance(states, list) or len(states) != size - 1:
            count = len(states) + 1 if isinstance(states, list) else 1
            raise ValueError(f"it holds {count} of the {size} processes")
        self._has_begun = True
        self.order(Order.RESTORE)
        shared = {"shared": shared_parameters(self._agent)}
        self.group.scatter([{}, *({"state": state, **shared} for state in states)])
        found = []
        for rank, answer in enumerate(self.group.gather({})[1:], 1):
            if answer["misfit"] is not None:
                raise ValueError(f"rank {rank}: {answer['misfit']}")
            found += [f"rank {rank}: {problem}" for problem in answer["problems"]]
        return found

    def _adopt(self) -> None:
        """Let all ranks begin with the weights and statistics of this one."""
        self._has_begun = True
        self.order(Order.ADOPT)
        self.group.scatter([shared_parameters(self._agent)] * self.group.size)
        adopt(statistics_of(self._agent), self.group)

    def _check(self) -> None:
        """Compare the weights of all ranks.

        Raises:
            RunError: They differ.
        """
        if not self._has_begun:
            self._adopt()
        self.order(Order.CHECK)
        hashes = [part.tobytes() for part in self.group.of_all(hash_of(self._agent))]
        for rank, found in enumerate(hashes):
            if found != hashes[0]:
                raise RunError(
                    f"the weights of rank {rank} differ from those of rank 0 at step "
                    f"{self._agent.num_timesteps:,}: code of yours changes them in one process, or "
                    "computes in another way there."
                )

    def _explain(self, error: Exception) -> Exception:
        """Return the error to raise where the ranks have lost each other: which one has ended."""
        until = time.monotonic() + _EXIT_CODE_S
        while time.monotonic() < until:
            for rank, process in enumerate(self._others, 1):
                code = process.poll()
                if code is not None and code != FOLLOWED:
                    return self._end_of(rank, process)
            time.sleep(0.02)
        return RunError(f"the processes of this training lost each other: {one_line(error)}.")

    def _end_of(self, rank: int, process: subprocess.Popen[bytes]) -> Exception:
        """Return why a rank has ended, in its own words if it had time for some."""
        assert process.stdout is not None
        try:
            said = self._said.get(process.pid, b"") + process.stdout.read(_LONGEST_ANSWER)
            answer = parse_json(said.removeprefix(READY))
            kind = ConfigError if answer["is_users"] else RunError
            return kind(f"rank {rank}: {printable(str(answer['error']), _LONGEST_ANSWER)}")
        except (ValueError, LookupError, TypeError):
            how = how_it_ended(process.returncode)
            return RunError(f"rank {rank} (process {process.pid}) {how}: all ranks end.")

    def __enter__(self) -> RankZero:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        if kind is None and hasattr(self, "_agent"):
            with contextlib.suppress(RunError, ConfigError):
                self.order(Order.END)
        self.close(kind is None)

    def close(self, may_finish: bool = False) -> None:
        """End the other ranks; nothing of theirs is lost. They may finish what they were told."""
        for process in self._others:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.write(END if may_finish else STOP)
                process.stdin.close()
        until = time.monotonic() + _END_S
        for process in self._others:
            try:
                process.wait(max(until - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if hasattr(self, "group"):
            self.group.close()
        for file in self._files:
            file.close()
        self._folder.cleanup()


def start(config: RunConfig, run_dir: RunDir) -> RankZero:
    """Start the other ranks of a run.

    Raises:
        ConfigError: torch cannot connect them, or there are fewer GPUs than processes.
    """
    if not dist.is_available() or dist.is_initialized():
        raise ConfigError(
            f"distributed={config.distributed} needs torch.distributed, which this torch lacks, or "
            "which this process uses already. Leave distributed out."
        )
    return RankZero(config, run_dir)


def join(agent: Any, ranks: Any) -> None:
    """Make an agent one of several."""
    if getattr(agent, "recorded", None) is not None:
        agent.recorded = None
        log.info("updates are not recorded: gradients are averaged in the middle of each")
    agent.ranks = ranks
