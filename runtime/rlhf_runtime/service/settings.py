"""What the controller's process is told by its pod: files, variables, ports. Tests give other ones."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhf_api import ending, in_pod

TERMINATION_VARIABLE = "RLHF_TERMINATION_FILE"
CLUSTER = "ray-cluster"
_OF_ONE_POD = ("file://", "local://", "memory:", "memory://")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """The settings of one controller process.

    Attributes:
        job_file: The job, as JSON.
        secrets: The folder with token, certificate and key.
        run_folder: Where the run writes what it leaves behind.
        state: The state store's folder or URI; None: in the run's folder.
        cache: Where models and data that are made once are kept; None: this user's cache.
        ray_address: `host:port` of the head.
        backend: Where the roles run.
        termination_file: Where the `Ending` goes.
        control_port: Of JobControl; 0: any that is free.
        health_port: Of the health service; 0: any that is free.
    """

    job_file: Path
    secrets: Path
    run_folder: Path
    state: str | None = None
    cache: str | None = None
    ray_address: str | None = None
    backend: str = CLUSTER
    termination_file: Path = Path(ending.TERMINATION_FILE)
    control_port: int = in_pod.CONTROL_PORT
    health_port: int = in_pod.HEALTH_PORT

    @property
    def cache_ends_with_the_pod(self) -> bool:
        """Whether what is put into the cache can be seen by no other pod."""
        return self.cache is not None and Path(self.cache).is_relative_to(in_pod.SCRATCH_FOLDER)

    @property
    def state_ends_with_the_pod(self) -> bool:
        """Whether the state is where neither the roles nor the next controller can reach it."""
        return self.state is not None and self.state.startswith(_OF_ONE_POD)


def read_settings(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> ServiceSettings:
    """The settings from the command line and the pod's variables."""
    parser = argparse.ArgumentParser(
        prog="python -m rlhf_runtime.service", description="Runs an RLHFJob's control flow in the controller's pod."
    )
    parser.add_argument("--job", default=in_pod.JOB_FILE, metavar="FILE", help="the job as JSON (%(default)s)")
    parser.add_argument("--secrets", default=in_pod.SECRET_FOLDER, metavar="FOLDER", help="%(default)s")
    parser.add_argument("--address", metavar="HOST:PORT", help="Ray's head; by default $RAY_ADDRESS")
    parser.add_argument("--backend", default=CLUSTER, help="where the roles run (%(default)s)")
    parser.add_argument("--control-port", type=int, default=in_pod.CONTROL_PORT, metavar="PORT")
    parser.add_argument("--health-port", type=int, default=in_pod.HEALTH_PORT, metavar="PORT")
    given = parser.parse_args(arguments)
    return ServiceSettings(
        job_file=Path(given.job),
        secrets=Path(given.secrets),
        run_folder=Path(environment.get(in_pod.RUN_FOLDER_VARIABLE) or f"{in_pod.SCRATCH_FOLDER}/run"),
        state=environment.get(in_pod.STATE_VARIABLE) or None,
        cache=environment.get(in_pod.CACHE_VARIABLE) or None,
        ray_address=given.address or environment.get("RAY_ADDRESS") or None,
        backend=given.backend,
        termination_file=Path(environment.get(TERMINATION_VARIABLE) or ending.TERMINATION_FILE),
        control_port=given.control_port,
        health_port=given.health_port,
    )
