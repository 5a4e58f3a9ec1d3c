"""One process or several that train one run together: who does what, and how their numbers become one.

`torchrun --nproc-per-node N` starts them and says to each which it is. They cut every batch among them, so that a step
is the same step however many there are; the first alone writes files and speaks.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from qkv.errors import UserError
from qkv.run.run import resolve_device

Item = TypeVar("Item")
Result = TypeVar("Result")

logger = logging.getLogger("qkv")


@dataclass(frozen=True)
class Processes:
    """`rank` of `count` processes, each on its own `device`. All of them call the methods, in one order."""

    device: torch.device
    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """This process's part of `items`: every `count`-th, so that a sorted list is cut evenly."""
        return items if self.count == 1 else items[self.rank :: self.count]

    def divide(self, work: Callable[[Sequence[Item]], list[Result]], items: Sequence[Item]) -> list[Result]:
        """`work(items)`, each process doing its share; all get the whole, in the order of `items`."""
        if self.count == 1:
            return work(items)
        parts = self.gathered(work(self.share(items)))
        return [parts[place % self.count][place // self.count] for place in range(len(items))]

    def gathered(self, value: Result) -> list[Result]:
        """The value of each process, by rank."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def summed(self, *values: float) -> list[float]:
        """Sums over the processes."""
        if self.count == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def agreed(self, ask: Callable[[], Result]) -> Result:
        """What `ask` returns in the first process, in all of them; only that one asks."""
        if self.count == 1:
            return ask()
        answer: list[Any] = [ask() if self.first else None]
        dist.broadcast_object_list(answer, src=0)
        return answer[0]

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """The block runs in the first process, then in the others, who find what it fetched or cached."""
        if not self.first:
            dist.barrier()
        yield
        if self.first and self.count > 1:
            dist.barrier()

    def wait(self) -> None:
        """Returns when all processes have come this far."""
        if self.count > 1:
            dist.barrier()


class Interrupted(KeyboardInterrupt):
    """Training was stopped after saving; the message says how to go on."""


def is_first() -> bool:
    """Whether this process, if it is one of several, is the one that speaks."""
    return not _started_together() or os.environ["RANK"] == "0"


def started_by_torchrun() -> bool:
    """Whether somebody watches over this process and its like, and ends them together."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def _started_together() -> bool:
    return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys()


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """This process among those that torchrun started, connected while the block runs; alone when it started none.

    gloo connects processors, nccl GPUs, one GPU a process. Raises UserError for a device that several processes cannot
    share, and when another process ended before this one.
    """
    count = int(os.environ["WORLD_SIZE"]) if _started_together() else 1
    if count == 1:
        yield Processes(resolve_device(device))
        return
    rank, where = int(os.environ["RANK"]), _own_device(device)
    own = not dist.is_initialized()
    if own:
        cuda = where.type == "cuda"
        # The first may fetch and prepare data for long; of a process that died torchrun tells the others.
        dist.init_process_group(
            "nccl" if cuda else "gloo", timeout=timedelta(days=1), device_id=where if cuda else None
        )
    if rank:
        logger.setLevel(logging.WARNING)
    try:
        yield Processes(where, rank, count)
    except RuntimeError as error:
        if isinstance(error, dist.DistBackendError) or "gloo" in str(error):
            raise UserError("another process ended; what it says is why") from error
        raise
    except Interrupted:  # which all of them are at once; after an error of one, the others may never come here
        if own:
            dist.destroy_process_group()
        raise
    if own:
        dist.destroy_process_group()


def _own_device(name: str) -> torch.device:
    local, here = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    where = resolve_device(name)
    if where.type == "mps" or (where.type == "cuda" and where.index is not None and here > 1):
        raise UserError(f"{here} processes cannot share the device {name}: use --device cpu or --device cuda")
    if where.type != "cuda":
        return where
    if where.index is not None:
        torch.cuda.set_device(where)
        return where
    if here > torch.cuda.device_count():
        raise UserError(
            f"{here} processes, and {torch.cuda.device_count()} GPUs: torchrun --nproc-per-node "
            f"{torch.cuda.device_count()}, or --device cpu"
        )
    torch.cuda.set_device(local)
    return torch.device("cuda", local)
