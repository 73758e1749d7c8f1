"""Where role processes live."""

from __future__ import annotations

import os

from rlhf_runtime.backends.base import Backend

# Read by Ray when it is imported or starts its processes, so set before any module here imports it; a user's own
# setting wins.
for _name, _value in {
    "RAY_worker_niceness": "0",  # Ray's workers run at nice 15 otherwise
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # the buffer beside a failed reply is one of those
    "RAY_enable_metrics_collection": "0",
}.items():
    os.environ.setdefault(_name, _value)

BACKENDS = ("ray", "in-process", "simulated")


def open_backend(name: str | None = None) -> Backend:
    """The backend of this name, by default the environment's `RLHF_BACKEND` or else Ray.

    Raises:
        ValueError: There is no such backend.
    """
    name = name or os.environ.get("RLHF_BACKEND") or "ray"
    if name == "ray":
        from rlhf_runtime.backends.ray_backend import RayBackend

        return RayBackend()
    if name == "in-process":
        from rlhf_runtime.backends.inprocess import InProcessBackend

        return InProcessBackend()
    if name == "simulated":
        from rlhf_runtime.backends.simulated import SimulatedBackend

        return SimulatedBackend()
    raise ValueError(f'backend must be one of {", ".join(BACKENDS)}; got "{name}"')
