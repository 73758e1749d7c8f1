"""The outcome of a run: `summary.json`, and the same for the command line's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhf_runtime.job.run_folder import RunFolder, write_json

if TYPE_CHECKING:  # a complete run is recognized without torch
    from rlhf_api.types import RLHFJob
    from rlhf_runtime.control.processes import RoleGroup
    from rlhf_runtime.telemetry.role_times import RoleTimes

COMPLETE, INTERRUPTED, FAILED = "complete", "interrupted", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOutcome:
    """What one role did during the training steps of this session.

    Attributes:
        name: Of the role.
        type: Of the role.
        working_seconds: With a method running.
        waiting_seconds: Without.
        restarts: Deaths of its workers.
        peak_memory_bytes: Of its largest process; 0 where it could not be asked any more.
    """

    name: str
    type: str
    working_seconds: float
    waiting_seconds: float
    restarts: int
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended.

    Attributes:
        folder: Where everything lies.
        status: "complete", "interrupted" or "failed".
        steps: Committed steps.
        seconds: Wall time of all of them.
        heldout_start: Held-out accuracy before the first step, if it was evaluated.
        heldout_end: Held-out accuracy at the last evaluation after it.
        samples_per_second: Of the training steps; None before the first.
        roles: One entry per role.
        ran: False when the run had been complete before.
    """

    folder: Path
    status: str
    steps: int
    seconds: float
    heldout_start: float | None
    heldout_end: float | None
    samples_per_second: float | None
    roles: tuple[RoleOutcome, ...]
    ran: bool = True

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any], *, folder: Path, ran: bool) -> Outcome:
        """Read a summary back."""
        return cls(
            folder=folder,
            status=summary["status"],
            steps=summary["steps"],
            seconds=summary["seconds"],
            heldout_start=summary["heldout_accuracy_start"],
            heldout_end=summary["heldout_accuracy_end"],
            samples_per_second=summary["samples_per_second"],
            roles=tuple(RoleOutcome(**role) for role in summary["roles"]),
            ran=ran,
        )


def finished_run(folder: RunFolder, job: RLHFJob) -> Outcome | None:
    """The outcome of the run in `folder` if nothing of `job` is left to do, else None."""
    summary = folder.summary()
    if summary is None or summary["status"] != COMPLETE or summary["steps"] < job.spec.algorithm.total_steps:
        return None
    return Outcome.from_summary(summary, folder=folder.path, ran=False)


def write_summary(
    job: RLHFJob,
    folder: RunFolder,
    *,
    groups: Mapping[str, RoleGroup],
    memory: Mapping[str, int],
    times: RoleTimes,
    lines: Sequence[Mapping[str, Any]],
    status: str,
    failure: str,
) -> Outcome:
    """Write `summary.json` from what a run left, however it ended.

    Args:
        job: What was run.
        folder: Where it was run.
        groups: The roles' workers, by role.
        memory: The peak memory of each role, where known.
        times: Who worked when.
        lines: The lines of `metrics.jsonl`.
        status: How it ended.
        failure: Why, unless it is complete.
    """
    restarts = folder.restarts()
    trained = [line for line in lines if "seconds" in line]
    timed = [line for line in trained if line["seconds"] is not None]
    tried = [line for line in lines if "heldout_accuracy" in line]
    seconds = sum(line["seconds"] for line in timed)
    samples = sum(line["samples_per_second"] * line["seconds"] for line in timed)
    summary = {
        "job": job.name,
        "algorithm": job.spec.algorithm.name.value,
        "seed": job.spec.algorithm.seed,
        "status": status,
        "failure": failure,
        "steps": len(trained),
        "total_steps": job.spec.algorithm.total_steps,
        "seconds": round(seconds, 3),
        "heldout_accuracy_start": tried[0]["heldout_accuracy"] if tried and tried[0]["step"] == 0 else None,
        "heldout_accuracy_end": tried[-1]["heldout_accuracy"] if tried and tried[-1]["step"] > 0 else None,
        "samples_per_second": round(samples / seconds, 1) if seconds else None,
        "outside_roles_fraction": round(times.outside_fraction(), 4),
        "roles": [
            {
                "name": name,
                "type": group.role.role_type,
                "working_seconds": round(times.working(name), 3),
                "waiting_seconds": round(times.wall() - times.working(name), 3),
                "restarts": restarts[name],
                "peak_memory_bytes": memory.get(name, 0),
            }
            for name, group in groups.items()
        ],
    }
    write_json(folder.path / "summary.json", summary)
    return Outcome.from_summary(summary, folder=folder.path, ran=True)
