"""Where role processes live."""

from __future__ import annotations

import os

from rlhf_runtime.backends.base import Backend

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
