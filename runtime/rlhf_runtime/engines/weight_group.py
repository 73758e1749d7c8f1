"""Weights through a collective group of two: the trainer and one replica.

    replica ─► takes a number at the trainer's store ─► the two form a group of that number ─► the weights, in pieces

Each request has a group of its own, so that a replica that is dead or slow holds up nobody but itself: gloo between
processors, NCCL between GPUs. The trainer serves from threads, from a copy, while it goes about its work.
"""

from __future__ import annotations

import atexit
import datetime
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d as stores

from rlhf_runtime.engines.ranks import open_meeting_place
from rlhf_runtime.engines.weight_sync import Told, version_of
from rlhf_runtime.errors import WeightsLostError

_PIECE_BYTES = 64 * 1024**2
_LOOK_SECONDS = 0.02
_CLOSE_SECONDS = 5.0
LIMIT_SECONDS = 120.0
"""Within which the two must meet, and each piece must arrive."""


class ThroughGroup:
    """The trainer's side; see the module.

    Args:
        seconds: See `LIMIT_SECONDS`.
    """

    def __init__(self, *, seconds: float = LIMIT_SECONDS) -> None:
        self._seconds = seconds
        self._published: tuple[int, Mapping[str, Tensor]] = (-1, {})
        self._address, self._store = open_meeting_place()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="rlhf-weights", daemon=True)
        self._thread.start()
        atexit.register(self.close)  # Python ends a thread that is in torch's code with an abort of the process

    def publish(self, weights: Mapping[str, Tensor], version: int) -> Told:
        """See `WeightSync.publish`; a replica that still asks for an older version is told that it is gone."""
        # A copy: whoever asks late must not get a half of the next version.
        held = {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in weights.items()}
        self._published = (version, held)
        layout = {name: [str(value.dtype).removeprefix("torch."), list(value.shape)] for name, value in held.items()}
        return {"version": version, "meet": self._address, "layout": layout}

    def close(self) -> None:
        """Serve nobody any more."""
        atexit.unregister(self.close)
        self._closed.set()
        self._thread.join(timeout=_CLOSE_SECONDS)

    def _serve(self) -> None:
        client, number = _connect(self._address, self._seconds), 0
        while not self._closed.is_set():
            if not client.check([_asked(number)]):  # its own wait warns of every second in which nobody asks
                self._closed.wait(_LOOK_SECONDS)
                continue
            threading.Thread(target=self._send, args=(number,), name=f"rlhf-weights-{number}", daemon=True).start()
            number += 1

    def _send(self, number: int) -> None:
        try:
            group = _pair(_connect(self._address, self._seconds), number, rank=0, seconds=self._seconds)
            version, weights = self._published
            device = next(iter(weights.values())).device
            group.send([torch.tensor([version], device=device)], 1, 0).wait()
            for tensor in weights.values():
                for piece in _pieces(tensor):
                    group.send([piece], 1, 0).wait()
        except (RuntimeError, dist.DistError) as error:  # it asks again, or is dead
            print(f"weights were not sent to the replica with number {number}: {error}", flush=True)


def receive_from_group(told: Told, device: torch.device, *, seconds: float = LIMIT_SECONDS) -> Mapping[str, Tensor]:
    """The replica's side.

    Args:
        told: What `ThroughGroup.publish` gave.
        device: Where the weights are wanted; both sides must be of one kind.
        seconds: See `LIMIT_SECONDS`.

    Raises:
        WeightsLostError: The trainer cannot be reached, breaks off, or has moved on to another version.
    """
    version, address = version_of(told), str(told["meet"])
    try:
        client = _connect(address, seconds)
        number = client.add("numbers", 1) - 1
        client.set(_asked(number), b"")
        group = _pair(client, number, rank=1, seconds=seconds, device=device)
        sent = torch.zeros(1, dtype=torch.int64, device=device)
        group.recv([sent], 0, 0).wait()
        weights = {
            name: torch.empty(shape, dtype=getattr(torch, dtype), device=device)
            for name, (dtype, shape) in told["layout"].items()
        }
        for tensor in weights.values():
            for piece in _pieces(tensor):
                group.recv([piece], 0, 0).wait()
    except (RuntimeError, dist.DistError) as error:
        lost = f"weights of version {version} did not come from the trainer at {address}: {error}"
        raise WeightsLostError(lost) from error
    if int(sent) != version:
        raise WeightsLostError(f"the trainer at {address} has weights of version {int(sent)}, not {version}")
    return weights


def _asked(number: int) -> str:
    return f"asked/{number}"


def _connect(address: str, seconds: float) -> Any:
    host, _, port = address.rpartition(":")
    return stores.TCPStore(host, int(port), is_master=False, timeout=datetime.timedelta(seconds=seconds))


def _pair(store: Any, number: int, *, rank: int, seconds: float, device: torch.device | None = None) -> Any:
    limit = datetime.timedelta(seconds=seconds)
    own = stores.PrefixStore(f"pair/{number}", store)
    if (device or torch.device("cuda" if torch.cuda.is_available() else "cpu")).type == "cuda":
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = limit
        return dist.ProcessGroupNCCL(own, rank, 2, options)
    return dist.ProcessGroupGloo(own, rank, 2, limit)


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    """Views of a tensor's memory, none larger than a piece; none at all of an empty tensor."""
    flat = tensor.view(-1)
    if flat.numel():
        yield from torch.split(flat, max(1, _PIECE_BYTES // flat.element_size()))
