"""The ranks of a role that computes as one: a torch process group, and the little that they tell each other.

Rank 0's process keeps the store at which they meet (`open_meeting_place`); the controller tells everybody where that
is. Every attempt of the role meets at a new place, under a new name, so that nobody finds who belongs to an old one.
"""

from __future__ import annotations

import datetime
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as stores
from torch.distributed import distributed_c10d as c10d

from rlhf_runtime.errors import RlhfError
from rlhf_runtime.worker import WorkerContext

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

_MEETING_SECONDS = 600.0
_WAIT_FOR_PEERS_SECONDS = 3600.0
"""Of a collective operation. The controller gives up much earlier and ends all ranks (`methodTimeoutSeconds`)."""


class RanksError(RlhfError):
    """The ranks of a role did not come together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process's place among those that hold the model together.

    Attributes:
        rank: From 0.
        size: How many there are.
        mesh: Torch's name for them; None: this process alone, without a process group.
    """

    rank: int = 0
    size: int = 1
    mesh: DeviceMesh | None = None

    def sums(self, values: dict[str, torch.Tensor]) -> dict[str, float]:
        """The sum of each scalar over the ranks; all must call it with the same names."""
        if not values:
            return {}
        stacked = torch.stack([value.detach().double().reshape(()) for value in values.values()])
        if self.mesh is not None:
            dist.all_reduce(stacked, group=self.mesh.get_group())
        return dict(zip(values, stacked.tolist(), strict=True))

    def most(self, number: int) -> int:
        """The largest of the ranks' numbers; all must call it."""
        if self.mesh is None:
            return number
        largest = torch.tensor(number, device=self.mesh.device_type)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=self.mesh.get_group())
        return int(largest)


ALONE = Ranks()


def own_device(context: WorkerContext) -> torch.device:
    """Where this rank computes: a GPU of its own where there is one, else the processor."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", context.rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def open_meeting_place() -> tuple[str, Any]:
    """Open a store on a free port of this machine; gives its address and the store, which lives as long as it is kept.

    Raises:
        RanksError: No port can be had.
    """
    host = _own_address()
    try:
        store = stores.TCPStore(host, 0, is_master=True, wait_for_workers=False)
    except (RuntimeError, dist.DistError) as error:
        raise RanksError(f"rank 0 cannot open a port at {host} for the other ranks to meet: {error}") from error
    return f"{host}:{store.port}", store


def join_ranks(context: WorkerContext, *, seconds: float = _MEETING_SECONDS) -> Ranks:
    """Meet the other ranks of the role; all must call it at about the same time.

    Two roles that share their processes share the process group too. A single rank has nobody to meet, but a process
    group all the same.

    Args:
        context: Says which rank this is, of how many, and where they meet.
        seconds: How long to wait for the others.

    Raises:
        RanksError: Others did not come, or cannot be reached.
    """
    if context.world_size > 1 and not context.meeting_place:
        raise RanksError(
            f'the {context.world_size} ranks of role "{context.role}" have no place to meet: '
            "give the role `process_group=True`, and processes of their own (the Ray backend)"
        )
    try:
        if not dist.is_initialized():
            _initialize(context, seconds)
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh(own_device(context).type, (context.world_size,))
    except (RuntimeError, ValueError, dist.DistError) as error:
        raise RanksError(
            f"{context.worker_name} did not meet the other {context.world_size - 1} at {context.meeting_place} "
            f"within {seconds:g} s: {error}"
        ) from error
    return Ranks(rank=context.rank, size=context.world_size, mesh=mesh)


def _initialize(context: WorkerContext, seconds: float) -> None:
    limit = datetime.timedelta(seconds=seconds)
    if context.meeting_place:
        host, _, port = context.meeting_place.rpartition(":")
        store: Any = stores.TCPStore(host, int(port), is_master=False, timeout=limit)
    else:
        store = stores.HashStore()
    dist.init_process_group(
        "nccl" if own_device(context).type == "cuda" else "gloo",
        store=stores.PrefixStore(f"{context.role}/{context.attempt}", store),
        rank=context.rank,
        world_size=context.world_size,
        timeout=limit,
    )
    dist.barrier()
    c10d._set_pg_timeout(datetime.timedelta(seconds=_WAIT_FOR_PEERS_SECONDS))


def _own_address() -> str:
    """The address at which the other ranks' machines reach this one."""
    import ray

    if ray.is_initialized():
        return str(ray.util.get_node_ip_address())
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"
