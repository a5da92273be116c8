"""`Group`: what the processes of one training say to each other, as numbers and bytes.

Objects are sent as JSON and safetensors: torch's own collectives for them use pickle. All of it
stays on this machine: the processes find each other in a private folder and talk over loopback.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rlzoo_plus.artifacts.tree import STATE_FILE, TENSOR_FILE, pack, unpack

# Rank 0 may evaluate for hours. That a process has died shows at once, by its closed connections.
_PATIENCE = timedelta(days=30)
_LOOPBACK = ("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
_LARGEST_BYTES = 2**34
FILES = (STATE_FILE, TENSOR_FILE)


class Order(IntEnum):
    """What rank 0 tells the other ranks to do next."""

    ADOPT = 1  # take over its weights and statistics
    ROLLOUT = 2  # collect a rollout
    CHECK = 3  # compare the hash of the weights
    EXCHANGE = 4  # merge statistics, send the episodes that have ended
    UPDATE = 5  # update the networks
    SEND_STATE = 6  # send all that a checkpoint needs
    RESTORE = 7  # restore a state of a checkpoint
    END = 8  # end


class Group:
    """The processes of one training, each with its rank from 0 on.

    Every rank must make the same calls in the same order.

    Attributes:
        rank: That of this process.
        size: Number of processes.
        explain: Turns an error of torch's into the one to raise: most likely a process has died.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        size: int,
        explain: Callable[[Exception], Exception],
        *,
        on_gpus: bool = False,
    ) -> None:
        """Connect; returns when all ranks are there.

        Args:
            folder: Private to the user; the ranks find each other through a file in it.
            rank: That of this process.
            size: Number of processes.
            explain: See the class.
            on_gpus: Whether each rank has a GPU of its own; its tensors then go through NCCL.
        """
        self.rank, self.size, self.explain = rank, size, explain
        with _over_loopback():
            self._call(
                dist.init_process_group,
                backend="cpu:gloo,cuda:nccl" if on_gpus else "gloo",
                store=dist.FileStore(str(folder / "rendezvous"), size),  # type: ignore[attr-defined]
                rank=rank,
                world_size=size,
                timeout=_PATIENCE,
            )

    def close(self) -> None:
        """Leave the group."""
        with contextlib.suppress(RuntimeError, ValueError):
            dist.destroy_process_group()

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their mean over all ranks, with one message."""
        if not tensors:
            return
        flat = self.total(torch.cat([tensor.reshape(-1) for tensor in tensors])) / self.size
        start = 0
        for tensor in tensors:
            part = flat[start : start + tensor.numel()]
            tensor.copy_(part.view_as(tensor))
            start += tensor.numel()

    def total(self, values: Tensor) -> Tensor:
        """Add a tensor up over all ranks, in place; return it."""
        self._call(dist.all_reduce, values)
        return values

    def from_first(self, values: Tensor) -> Tensor:
        """Replace a tensor by that of rank 0, in place; return it."""
        self._call(dist.broadcast, values, 0)
        return values

    def of_all(self, array: np.ndarray) -> list[np.ndarray]:
        """Return an array of each rank; they have the same shape and type."""
        own = torch.from_numpy(np.array(array, order="C").reshape(-1).view(np.uint8))
        found = [torch.empty_like(own) for _ in range(self.size)]
        self._call(dist.all_gather, found, own)
        return [part.numpy().view(array.dtype).reshape(array.shape) for part in found]

    def gather(self, value: Any) -> list[Any]:
        """Return plain data of every rank, in their order, at rank 0; an empty list elsewhere."""
        files = pack(value)
        sizes = self.of_all(np.array([len(files[name]) for name in FILES], np.int64))
        if self.rank:
            for name in FILES:
                self._send(files[name], 0)
            return []
        others = enumerate(sizes[1:], 1)
        return [value, *(self._receive(lengths, rank) for rank, lengths in others)]

    def scatter(self, values: Sequence[Any] = ()) -> Any:
        """Return this rank's part of plain data that rank 0 has given, one part for each rank."""
        sizes = np.zeros((self.size, len(FILES)), np.int64)
        packed = [pack(value) for value in values]
        for rank, files in enumerate(packed):
            sizes[rank] = [len(files[name]) for name in FILES]
        self.from_first(torch.from_numpy(sizes))
        if self.rank:
            return self._receive(sizes[self.rank], 0)
        for rank, files in enumerate(packed[1:], 1):
            for name in FILES:
                self._send(files[name], rank)
        return values[0]

    def _send(self, data: bytes, to: int) -> None:
        self._call(dist.send, torch.from_numpy(np.frombuffer(data, np.uint8).copy()), to)

    def _receive(self, lengths: np.ndarray, source: int) -> Any:
        if not all(0 < length < _LARGEST_BYTES for length in lengths.tolist()):
            raise ValueError(f"rank {source} sends {lengths.tolist()} bytes")
        files = {}
        for name, length in zip(FILES, lengths.tolist(), strict=True):
            part = torch.empty(length, dtype=torch.uint8)
            self._call(dist.recv, part, source)
            files[name] = part.numpy().tobytes()
        return unpack(files)

    def _call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
        except RuntimeError as error:
            raise self.explain(error) from error


@contextlib.contextmanager
def _over_loopback() -> Iterator[None]:
    """Let connections that are made inside stay on this machine."""
    name, interface = _LOOPBACK
    before = os.environ.get(name)
    os.environ[name] = interface
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
