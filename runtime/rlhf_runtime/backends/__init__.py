"""Where role processes live."""

from __future__ import annotations

import os

from rlhf_runtime import ray_settings
from rlhf_runtime.backends.base import Backend

ray_settings.set_defaults(ray_settings.WORKERS, ray_settings.DRIVER)  # before any module here imports Ray

BACKENDS = ("ray", "ray-cluster", "in-process", "simulated")


def open_backend(name: str | None = None) -> Backend:
    """The backend of this name, by default the environment's `RLHF_BACKEND` or else Ray.

    "ray-cluster" is Ray in the pods of a job on Kubernetes, each role in its own.

    Raises:
        ValueError: There is no such backend.
    """
    name = name or os.environ.get("RLHF_BACKEND") or "ray"
    if name == "ray":
        from rlhf_runtime.backends.ray_backend import RayBackend

        return RayBackend()
    if name == "ray-cluster":
        from rlhf_runtime.backends.ray_backend import RayBackend

        return RayBackend(address=os.environ.get("RAY_ADDRESS") or "auto", places="role-pods")
    if name == "in-process":
        from rlhf_runtime.backends.inprocess import InProcessBackend

        return InProcessBackend()
    if name == "simulated":
        from rlhf_runtime.backends.simulated import SimulatedBackend

        return SimulatedBackend()
    raise ValueError(f'backend must be one of {", ".join(BACKENDS)}; got "{name}"')
