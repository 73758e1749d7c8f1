"""How much a pod gets: resources as request and limit, /dev/shm, and Ray's object store within it.

The object store gets six tenths of /dev/shm, which with the default (half of the memory) is the share of memory that
Ray takes by itself; the rest of /dev/shm is for NCCL and torch. All of it counts against the pod's memory limit.
"""

from __future__ import annotations

from decimal import Decimal

from rlhf_api.quantity import parse_quantity
from rlhf_api.types import Resources

_SHARED_MEMORY_WITHOUT_LIMIT = Decimal(2 * 1024**3)
_LEAST_OBJECT_STORE = 75 * 1024**2
"""Ray starts with nothing smaller."""
_LEAST_SHARED_MEMORY = Decimal(128 * 1024**2)
_BINARY_SUFFIXES = ((1024**3, "Gi"), (1024**2, "Mi"), (1024, "Ki"))

HEAD_REQUESTS = {"cpu": "200m", "memory": "1Gi"}
HEAD_LIMITS = {"memory": "2Gi"}
"""The head works little but its memory grows with the job; enough for hundreds of actors."""
CONTROLLER_REQUESTS = {"cpu": "200m", "memory": "1Gi"}
CONTROLLER_LIMITS = {"memory": "4Gi"}
"""The controller holds references to data, not data: what it reads is a few columns of a batch."""


def container_resources(
    resources: Resources, *, requests: dict[str, str] | None = None, limits: dict[str, str] | None = None
) -> dict[str, dict[str, str]]:
    """A container's `resources`: what the user wrote is request and limit; the defaults are for what is unwritten."""
    written = {name: quantity for name, quantity in (("cpu", resources.cpu), ("memory", resources.memory)) if quantity}
    if resources.accelerators.count:
        written[resources.accelerators.name] = str(resources.accelerators.count)
    written |= resources.extended
    both = {
        "requests": {**_but(requests, written), **written},
        "limits": {**_but(limits, written), **written},
    }
    return {name: amounts for name, amounts in both.items() if amounts}


def shared_memory(resources: Resources, *, memory: str | None = None) -> str:
    """The size of /dev/shm.

    Args:
        resources: The pod's.
        memory: The memory limit where the user wrote none.
    """
    if resources.shared_memory is not None:
        wanted, text = parse_quantity(resources.shared_memory), resources.shared_memory
    elif limit := resources.memory or memory:
        wanted = parse_quantity(limit) / 2
        text = _bytes(int(wanted))
    else:
        wanted = _SHARED_MEMORY_WITHOUT_LIMIT
        text = _bytes(int(wanted))
    return text if wanted >= _LEAST_SHARED_MEMORY else _bytes(int(_LEAST_SHARED_MEMORY))


def object_store_bytes(shared_memory: str) -> int:
    """The size of Ray's object store in a /dev/shm of this size."""
    return max(_LEAST_OBJECT_STORE, int(parse_quantity(shared_memory) * Decimal("0.6")))


def ray_cpus(resources: Resources) -> int:
    """The whole cores that Ray counts in a role's pod, at least 1."""
    return max(1, int(parse_quantity(resources.cpu))) if resources.cpu else 1


def _but(defaults: dict[str, str] | None, written: dict[str, str]) -> dict[str, str]:
    return {name: amount for name, amount in (defaults or {}).items() if name not in written}


def _bytes(size: int) -> str:
    for unit, suffix in _BINARY_SUFFIXES:
        if size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)
