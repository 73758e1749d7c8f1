"""Repairs what dies under the engine: restores workers, repeats their calls, computes lost outputs again.

A process that is gone takes its workers with it and nobody else's. Each is seated in a spare, brought back to the
version of its state that the controller has seen complete, and asked again what it was asked when it died. A write
that was in flight is then made on the state it was meant for: its effect happens once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlhf_api.enums import FailureReason
from rlhf_runtime.control import requests, routing
from rlhf_runtime.control.graph import ColumnPiece, ColumnRef, Node, NodeState, Shard
from rlhf_runtime.control.processes import Process, RoleGroup, WorkerSeat
from rlhf_runtime.errors import (
    BufferLostError,
    HostDiedError,
    PeerLostError,
    RemoteError,
    RlhfError,
    RoleExhaustedError,
    StepError,
    VersionMovedError,
)
from rlhf_runtime.resilience.incidents import Incident, Verdict, describe, judge, reason_of, signature
from rlhf_runtime.worker import Effect

if TYPE_CHECKING:
    from rlhf_runtime.control.engine import Engine

_UNEXPLAINED = {FailureReason.KILLED, FailureReason.NODE_LOST, FailureReason.EXITED, FailureReason.UNKNOWN}
_CAUSE_SECONDS = 5.0
_LOSSES = 20  # of one call's inputs: it is not luck any more
_EXPECTED = "ended on purpose, as was announced"


class Recovery:
    """The part of an engine that deals with failure; called under the engine's lock."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def shard_failed(self, shard: Shard, error: BaseException, *, cause_awaited: bool = False) -> None:
        """A worker answered with an error, or not at all."""
        node = shard.node
        group = self._engine.groups[node.role]
        seat = group.seat(shard.worker)
        if isinstance(error, PeerLostError) and not cause_awaited:
            self._await_cause(shard, error)
            return
        if isinstance(error, VersionMovedError) and node.version != group.version:
            self._engine.fail(node, _not_again(node))  # a lost output was wanted again, too late
            return
        verdict = judge(error, failures=shard.failures)
        shard.failures.append(signature(error))
        if verdict is Verdict.RECOMPUTE_INPUTS:
            if len(shard.failures) > _LOSSES:
                self._engine.fail(node, error, worker=seat.name)
            else:
                self._recompute_inputs(shard, error)
            return
        again = verdict is Verdict.RESTORE and node.spec.repeatable
        if not again:
            self._engine.fail(node, error, worker=seat.name)
        if verdict is Verdict.RESTORE or (isinstance(error, RemoteError) and error.poisoned):
            self.restart([seat.process], error, node=node)

    def _await_cause(self, shard: Shard, error: PeerLostError) -> None:
        """A rank noticed that another is gone; who that is, and of what it died, is about to be known too."""
        shard.running = True  # nobody else asks for it meanwhile
        token = shard.token

        def look(_: None) -> None:
            if shard.token == token and shard.running:
                shard.running = False
                self.shard_failed(shard, error, cause_awaited=True)

        self._engine.backend.call_later(_CAUSE_SECONDS, lambda: self._engine.guard(look)(None))

    def restart(
        self, dead: Sequence[Process], error: BaseException, *, node: Node | None = None, counted: bool = True
    ) -> None:
        """Replace processes of one role; a role whose ranks hold state together loses them all.

        Args:
            dead: Which.
            error: Why.
            node: The step that suffered from it.
            counted: Whether it uses up the role's budget, unless the loss was expected.
        """
        if self._engine.closed:
            return
        now = self._engine.backend.now()
        processes = dict.fromkeys(dead)
        noted: set[str] = set()
        for process in dead:
            expected = _expected(process, error, now)
            for seat in process.seats:
                group = seat.group
                if group.meets and group.role.name in noted:
                    continue  # its ranks are one: what happens to several at once happened once
                noted.add(group.role.name)
                counts = counted and expected is None and seat not in group.leaving
                group.restarts += counts
                group.uncounted_restarts += not counts
                own = node if node and node.role == group.role.name else None
                self._record_incident(seat, error, node=own, counted=counts, reason=expected)
                if len(group.seats) > 1 and (group.meets or self._has_state(group)):
                    processes |= dict.fromkeys(s.process for s in group.seats)
        for process in dead:
            used_up = [s.group for s in process.seats if s.group.restarts > s.group.role.max_restarts]
            if used_up:
                self._exhausted(process, used_up[0], error)
                return
        for process in processes:
            process.down_since = now
            for seat in process.seats:
                seat.ready = False
                seat.group.part()
                self._forget_running(seat, whole_writes=len(seat.group.seats) > 1)
        for process in processes:
            if any(seat in seat.group.leaving for seat in process.seats):
                self._engine.live.left(process.seats[0])  # it was to end anyway: others answer what it did not
            else:
                self._engine.pool.start(process)
        for group in {seat.group.role.name: seat.group for process in processes for seat in process.seats}.values():
            routing.feed(self._engine, group)  # the others take over what it had

    def _has_state(self, group: RoleGroup) -> bool:
        writing = any(n.role == group.role.name and n.spec.effect is Effect.WRITE for n in self._engine.active.values())
        return group.version > 0 or writing

    def _forget_running(self, seat: WorkerSeat, *, whole_writes: bool) -> None:
        for node in self._engine.active.values():
            if node.role != seat.group.role.name:
                continue
            for shard in node.shards:
                if shard.worker == seat.rank and shard.running:
                    shard.running = False
                    shard.token += 1
                    if node.spec.parts_per_worker:
                        shard.worker = routing.NOBODY
                together = node.spec.effect is Effect.WRITE or node.spec.collective
                if whole_writes and together and shard.worker == seat.rank:
                    shard.reply = None

    def seat_joined(self, seat: WorkerSeat) -> None:
        """A worker is ready: ask it what waits for it."""
        process = seat.process
        process.heard = self._engine.backend.now()
        if process.down_since is not None and all(s.ready for s in process.seats):
            seconds = self._engine.backend.now() - process.down_since
            process.down_since = None
            for member in process.seats:
                member.group.last_recovery_ms = round(1000 * seconds)
                self._engine.observer.recovered(member.group.role.name, member.name, seconds)
            self._engine.pool.fill_spares()
        self._engine.live.joined(seat)
        for node in sorted(self._engine.active.values(), key=lambda n: n.id):
            if node.role == seat.group.role.name and node.state in (NodeState.READY, NodeState.RUNNING):
                for shard in node.shards:
                    if shard.worker == seat.rank or seat.group.meets:
                        self._engine.attempt(shard)
        routing.feed(self._engine, seat.group)

    def seat_failed(self, seat: WorkerSeat, error: BaseException) -> None:
        """A worker could not be made: a death is tried again, an exception in its constructor is final."""
        if isinstance(error, HostDiedError):
            self.restart([seat.process], error)
            return
        if seat in seat.group.joining:
            self._record_incident(seat, error, node=None, counted=False)
            self._engine.live.given_up(seat)
            return
        seat.group.failed = RlhfError(f"{seat.name}: {describe(error)}")
        seat.group.failed.__cause__ = error
        self._fail_active(seat.group)

    def _exhausted(self, process: Process, group: RoleGroup, error: BaseException) -> None:
        """A role's budget is used up: it is over for it, and for those that share the process."""
        name, limit = group.role.name, group.role.max_restarts
        message = f'role "{name}" has used up its `maxRestarts` ({limit}); the last cause: {describe(error)}'
        if process.host is not None:
            self._engine.backend.kill(process.host)
        for seat in process.seats:
            seat.ready = False
            shared = "" if seat.group is group else f'role "{seat.group.role.name}" shares its processes: '
            seat.group.failed = RoleExhaustedError(shared + message)
            self._fail_active(seat.group)

    def _fail_active(self, group: RoleGroup) -> None:
        assert group.failed is not None
        for node in [n for n in self._engine.active.values() if n.role == group.role.name]:
            if node.state in (NodeState.READY, NodeState.RUNNING):
                self._engine.fail(node, group.failed)

    def recompute(self, ref: ColumnRef, error: BufferLostError) -> None:
        """Get a column that the controller wants to read again.

        Raises:
            StepError: It cannot be had again.
        """
        for shard in _makers(list(ref.pieces), error):
            self._redo(shard, error)

    def _recompute_inputs(self, shard: Shard, error: BaseException) -> None:
        assert isinstance(error, BufferLostError)
        node = shard.node
        pieces = [piece for ref in node.columns.values() for piece in ref.pieces]
        if error.buffer is not None and all(piece.buffer != error.buffer for piece in pieces):
            self._engine.attempt(shard)  # another call has already had it made again
            return
        try:
            for maker in _makers(pieces, error):
                self._redo(maker, error, awaited_by=node)
        except StepError as final:
            self._engine.fail(node, final)
            return
        if not node.redo_waits:
            self.inputs_are_there(node)

    def _redo(self, shard: Shard, error: BufferLostError, *, awaited_by: Node | None = None) -> None:
        """Get a lost output again: from its second copy, or by running its step again at the same version."""
        node = shard.node
        group = self._engine.groups[node.role]
        if shard not in node.shards:
            raise _not_again(node)
        if shard.reply is not None and error.buffer is not None and shard.buffer != error.buffer:
            return  # it is there again
        if self._engine.needs_second_copy(node):
            store = self._engine.backend.open_store(self._engine.settings.state_location or "")
            shard.buffer = self._engine.backend.put(requests.read_durable(shard, store).buffer)
            node.shape, node.results = requests.gather(node)
            return
        moved = node.spec.effect is not Effect.NONE and node.version != group.version
        if node.spec.effect is Effect.WRITE or moved or not node.spec.repeatable:
            raise _not_again(node)
        if awaited_by is not None:
            awaited_by.redo_waits.add(node)
            node.dependents.append(awaited_by)
        if node.finished:
            node.state = NodeState.READY
            self._engine.active[node.id] = node
        self._hold_back_writes(node)
        for again in node.shards if node.spec.collective else [shard]:
            again.reply = None
            self._engine.attempt(again)

    def _hold_back_writes(self, node: Node) -> None:
        """A write that has not begun must not move the version under a step that is run again."""
        for other in self._engine.active.values():
            writes = other.role == node.role and other.spec.effect is Effect.WRITE
            if writes and other.state is NodeState.WAITING and node.spec.effect is Effect.READ:
                other.needs.add(node)
                node.dependents.append(other)

    def computing_again(self, write: Node) -> list[Node]:
        """The steps of its role that a new write must wait for though they were done before."""
        if write.spec.effect is not Effect.WRITE:
            return []
        reads = [n for n in self._engine.active.values() if n.role == write.role and n.spec.effect is Effect.READ]
        return [n for n in reads if n.state in (NodeState.READY, NodeState.RUNNING)]

    def inputs_are_there(self, node: Node) -> None:
        """Lost inputs of `node` were made again, perhaps not yet all."""
        node.columns = requests.columns_of(node)
        for shard in node.shards:
            self._engine.attempt(shard)

    def _record_incident(
        self,
        seat: WorkerSeat,
        error: BaseException,
        *,
        node: Node | None,
        counted: bool,
        reason: FailureReason | None = None,
    ) -> None:
        joined = seat.joined if seat.ready else None  # one that is being replaced has not joined anywhere
        self._engine.observer.incident(
            Incident(
                role=seat.group.role.name,
                worker=seat.name,
                attempt=seat.attempt,
                reason=reason or reason_of(error),
                message=_EXPECTED if reason else str(error).splitlines()[0] if str(error) else type(error).__name__,
                step=str(node) if node else "",
                pid=joined.pid if joined else 0,
                time=self._engine.backend.now(),
                rank=seat.rank,
                pod=joined.pod if joined else "",
                node=joined.node if joined else "",
                epoch=self._engine.settings.epoch,
                iteration=node.iteration if node else self._engine.iteration,
                exit_code=error.exit_code if isinstance(error, HostDiedError) else None,
                counted=counted,
            )
        )


def _expected(process: Process, error: BaseException, now: float) -> FailureReason | None:
    """Why the process was expected to be lost, if it was and nothing says that it died of something else."""
    if reason_of(error) not in _UNEXPLAINED:
        return None
    losses = [seat.group.expected_loss for seat in process.seats]
    return next((loss.reason for loss in losses if loss is not None and now <= loss.until), None)


def _makers(pieces: list[ColumnPiece], error: BufferLostError) -> list[Shard]:
    """Which calls made what is lost; all of them when the backend cannot tell what that is.

    Raises:
        StepError: Nobody is left who could make it again.
    """
    lost = [piece for piece in pieces if error.buffer is None or piece.buffer == error.buffer]
    makers = [piece.shard for piece in lost if piece.shard is not None]
    if not makers:
        raise StepError(f"data is lost, and what made it cannot be run again: {error}") from error
    return list(dict.fromkeys(makers))


def _not_again(node: Node) -> StepError:
    return StepError(f"the outputs of {node} are lost, and it cannot be run again: declare it `durable`")
