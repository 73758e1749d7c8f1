"""What the engine must know of the run it serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of one engine.

    Attributes:
        job: Name of the job.
        seed: The job's seed; every random number of the run comes from it.
        epoch: Of this controller: a newer one has a higher number, and workers refuse the calls of older ones.
        state_location: Where updates and snapshots are kept; None: in a temporary folder.
        restore_versions: The committed state version of each role, when a run is resumed.
        lag: How many iterations' writes a read need not wait for (0: synchronous).
        spares: How many blank processes are kept ready.
        log_folder: Where role processes write their output; None: where the backend puts it.
    """

    job: str = "script"
    seed: int = 0
    epoch: int = 1
    state_location: str | None = None
    restore_versions: Mapping[str, int] = field(default_factory=dict)
    lag: int = 0
    spares: int = 0
    log_folder: str | None = None
