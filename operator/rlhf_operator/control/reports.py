"""A report as planning has it, from what the wire brought."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from rlhf_api.job_control import messages
from rlhf_operator.planning.snapshot import Incident, Report, RoleReport


def report_of(reply: messages.Report) -> Report:
    """A controller's report."""
    progress = reply.progress
    return Report(
        epoch=reply.epoch,
        phase=_phase(reply.phase),
        message=reply.message,
        time=_utc(reply.time),
        step=progress.step,
        total_steps=progress.total_steps or None,
        reward=_optional(progress, "reward"),
        evaluation=_optional(progress, "evaluation"),
        snapshot_step=_optional(progress, "snapshot_step"),
        started=_utc(progress.started) if progress.HasField("started") else None,
        effective_training_time_ratio=_optional(progress, "effective_training_time_ratio"),
        roles=tuple(_role(role) for role in reply.roles),
        incidents=tuple(_incident(incident) for incident in reply.incidents),
    )


def _role(role: messages.RoleReport) -> RoleReport:
    return RoleReport(
        name=role.name,
        desired=role.desired,
        ready=role.ready,
        restarts=role.restarts,
        uncounted_restarts=role.uncounted_restarts,
        class_name=role.class_name,
        training_engine=role.training_engine,
        rollout_engine=role.rollout_engine,
        last_recovery_milliseconds=_optional(role, "last_recovery_milliseconds"),
    )


def _incident(incident: messages.Incident) -> Incident:
    return Incident(
        id=incident.id,
        role=incident.role,
        worker=incident.worker,
        rank=incident.rank,
        reason=incident.reason or "Unknown",
        exit_code=_optional(incident, "exit_code"),
        pod=incident.pod,
        node=incident.node,
        time=_utc(incident.time),
        message=incident.message,
        step=incident.step,
        counted=incident.counted,
    )


def _phase(phase: int) -> str:
    """Its name; a newer controller may have phases that are unknown here."""
    named = messages.Phase.DESCRIPTOR.values_by_number.get(phase)
    return named.name if named is not None else messages.Phase.Name(messages.PHASE_UNSPECIFIED)


def _optional(message: Any, field: str) -> Any:
    return getattr(message, field) if message.HasField(field) else None


def _utc(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)
