"""Changes that a user or the operator makes while the run goes on; no step is lost, and no update made twice.

| change | what runs | what comes next |
|---|---|---|
| restart a role | is asked again; what may not be repeated is answered first | waits for the new processes |
| add a worker | keeps its split | is split over the new one too, once it is ready |
| take one away | is answered by it, then it ends | is split over those that stay |

Which worker computes a row changes no number: random numbers are counted by the row's place in the whole step.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from rlhf_api import names
from rlhf_api.enums import FailureReason
from rlhf_runtime.control.graph import NodeState, Shard
from rlhf_runtime.control.processes import ExpectedLoss, Process, RoleGroup, WorkerSeat
from rlhf_runtime.errors import HostDiedError, RlhfError, ScalingRefusedError, UnknownRoleError
from rlhf_runtime.worker import writing_methods

if TYPE_CHECKING:
    from rlhf_runtime.control.engine import Engine

_REASONS = {reason.value for reason in FailureReason}


class LiveChanges:
    """The part of an engine that changes its roles; called under the engine's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    # ---- restarts

    def restart_role(self, name: str, *, reason: str, counted: bool) -> None:
        """See `Engine.restart_role`."""
        group = self._living(name)
        known = FailureReason(reason) if reason in _REASONS else None
        why = f": {reason}" if reason and known is None else ""
        error = HostDiedError(f"restarted on request{why}", reason=known or FailureReason.DELETED_BY_USER)
        now: list[Process] = []
        for process in dict.fromkeys(seat.process for seat in group.everyone):
            if self._must_finish(process):
                process.restart_when_free = functools.partial(
                    self._engine.recovery.restart, [process], error, counted=counted
                )
            else:
                now.append(process)
        if now:
            self._engine.recovery.restart(now, error, counted=counted)

    def expect_loss(self, name: str, *, reason: FailureReason, seconds: float) -> None:
        """See `Engine.expect_loss`."""
        self._group(name).expected_loss = ExpectedLoss(until=self._engine.backend.now() + seconds, reason=reason)

    def settle(self, group: RoleGroup) -> None:
        """Something of the role is answered or given up: do what waited for that."""
        for seat in list(group.leaving):
            if not self._unanswered(seat):
                self.left(seat)
        for process in dict.fromkeys(seat.process for seat in group.everyone):
            restart = process.restart_when_free
            if restart is not None and not self._must_finish(process):
                process.restart_when_free = None
                restart()

    # ---- scaling

    def scale_role(self, name: str, replicas: int) -> list[str]:
        """See `Engine.scale_role`."""
        group = self._living(name)
        self._check_scalable(group, replicas)
        group.replicas = replicas
        surplus = len(group.seats) + len(group.joining) - replicas
        going = self._least_wanted(group)[:surplus] if surplus > 0 else []
        for seat in going:
            self._let_go(seat)
        for _ in range(-surplus):
            self._add(group)
        return self._idle_pods(group, going)

    def joined(self, seat: WorkerSeat) -> None:
        """A worker is ready; one that was added is asked from now on."""
        group = seat.group
        if seat in group.joining:
            group.joining.remove(seat)
            group.seats = sorted([*group.seats, seat], key=lambda s: s.rank)

    def given_up(self, seat: WorkerSeat) -> None:
        """A worker that was added cannot be made: the others go on as they are."""
        seat.group.replicas -= 1
        self.left(seat)

    def left(self, seat: WorkerSeat) -> None:
        """A worker leaves now; others answer what it has not answered."""
        group = seat.group
        for seats in (group.seats, group.joining, group.leaving):
            if seat in seats:
                seats.remove(seat)
        unanswered = self._unanswered(seat)
        seat.forget()
        group.last_attempts[seat.rank] = seat.attempt
        self._engine.pool.end(seat.process)
        for shard in unanswered:
            self._engine.attempt(shard)

    def _check_scalable(self, group: RoleGroup, replicas: int) -> None:
        name = group.role.name
        if replicas < 1:
            raise ScalingRefusedError(f'`replicas` of role "{name}" must be at least 1; got {replicas}')
        if replicas == group.replicas:
            return
        if writing := writing_methods(group.cls):
            raise ScalingRefusedError(
                f'role "{name}" must keep its {group.replicas} replicas: it has state, which '
                f"`{writing[0]}` of its class changes; scale a role that only scores or generates"
            )
        shares = [s.group.role.name for seat in group.seats for s in seat.process.seats if s.group is not group]
        if shares:
            raise ScalingRefusedError(
                f'role "{name}" must keep its {group.replicas} replicas: it shares its processes with "{shares[0]}"; '
                "take `colocateWith` away first"
            )

    def _least_wanted(self, group: RoleGroup) -> list[WorkerSeat]:
        """Whom a role can best do without, first."""
        by_use = [*sorted(group.seats, key=lambda s: (not s.ready, s.rank)), *group.joining]
        return by_use[::-1]

    def _let_go(self, seat: WorkerSeat) -> None:
        group = seat.group
        if seat.ready and self._unanswered(seat):
            group.seats.remove(seat)
            group.leaving.append(seat)
        else:
            self.left(seat)

    def _add(self, group: RoleGroup) -> None:
        if group.leaving:
            self._take_back(group)
            return
        taken = {seat.rank for seat in group.everyone}
        rank = next(r for r in range(len(taken) + 1) if r not in taken)
        process = Process()
        seat = WorkerSeat(group=group, rank=rank, process=process, attempt=group.last_attempts.get(rank, -1))
        process.seats.append(seat)
        group.joining.append(seat)
        self._engine.pool.start(process)

    def _take_back(self, group: RoleGroup) -> None:
        group.seats = sorted([*group.seats, group.leaving.pop()], key=lambda s: s.rank)

    def _idle_pods(self, group: RoleGroup, going: list[WorkerSeat]) -> list[str]:
        staying = [*group.seats, *group.joining]
        held = {seat.pod for seat in staying if seat.ready}
        idle = {seat.pod for seat in (*going, *group.leaving)}
        pods = set(self._engine.backend.pods_of(group.role.name) or ())
        if all(seat.ready for seat in staying) and held <= pods:  # else a worker may be on its way to any of them
            idle |= pods
        return sorted(idle - held - {""})

    # ---- looking

    def waiting_for(self) -> list[str]:
        """See `Engine.waiting_for`."""
        found = []
        for group in self._engine.groups.values():
            missing = [seat for seat in (*group.seats, *group.joining) if not seat.ready]
            if missing and group.failed is None:
                found += self._missing(group, missing)
        return found

    def _missing(self, group: RoleGroup, missing: list[WorkerSeat]) -> list[str]:
        process, name = missing[0].process, group.role.name
        if self._engine.pool.lacks_pod(process):
            if process.owner is not group:
                return []  # it waits with the role whose processes it shares
            there = len(self._engine.backend.pods_of(name) or ())
            wanted = -(-len(group.everyone) // group.role.per_pod)
            have = f"{there} of {wanted}" if there else "none" if wanted > 1 else "it"
            verb = "have" if wanted > 1 else "has not"
            labels = f"{names.JOB_LABEL}={self._engine.settings.job},{names.ROLE_LABEL}={name}"
            pods = "pods" if wanted > 1 else "pod"
            return [f'role "{name}" waits for its {pods}: {have} {verb} joined Ray; see `kubectl get pods -l {labels}`']
        seconds = self._engine.backend.now() - min(seat.since for seat in missing)
        doing = "restored" if any(seat.attempt > 0 for seat in missing) else "loaded"
        workers = ", ".join(seat.name for seat in missing)
        limit = group.role.start_timeout
        return [f'role "{name}" is being {doing}: {workers}, for {seconds:.0f} s of at most {limit:g} s']

    def _group(self, name: str) -> RoleGroup:
        groups = self._engine.groups
        if name not in groups:
            have = ", ".join(f'"{known}"' for known in groups) or "none yet"
            raise UnknownRoleError(f'there is no role "{name}"; roles: {have}')
        return groups[name]

    def _living(self, name: str) -> RoleGroup:
        group = self._group(name)
        if group.failed is not None:
            raise RlhfError(f'role "{name}" has failed for good: {group.failed}')
        return group

    def _must_finish(self, process: Process) -> bool:
        """Whether the process is at something that may not be done again."""
        shards = [shard for seat in process.seats for shard in self._unanswered(seat)]
        return any(shard.running and not shard.node.spec.repeatable for shard in shards)

    def _unanswered(self, seat: WorkerSeat) -> list[Shard]:
        nodes = [n for n in self._engine.active.values() if n.role == seat.group.role.name]
        begun = [n for n in nodes if n.state in (NodeState.READY, NodeState.RUNNING)]
        return [s for node in begun for s in node.shards if s.worker == seat.rank and s.reply is None]
