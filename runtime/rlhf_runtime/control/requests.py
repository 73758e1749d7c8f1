"""Turns nodes into calls of single workers, and their answers into columns; pure but for reading second copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_runtime.backends.base import BufferRef
from rlhf_runtime.control.channels import ALL_OUTPUTS, DataChannel
from rlhf_runtime.control.graph import ColumnPiece, ColumnRef, Node, Shard
from rlhf_runtime.control.processes import RoleGroup, WorkerSeat
from rlhf_runtime.control.routing import NOBODY
from rlhf_runtime.control.settings import EngineSettings
from rlhf_runtime.errors import DataError, StepError
from rlhf_runtime.messages import SNAPSHOT, Assignment, CallRequest, Piece
from rlhf_runtime.resilience.state_store import StateStore
from rlhf_runtime.resilience.update_log import unpack_bytes
from rlhf_runtime.wire import Packed
from rlhf_runtime.worker import CallInfo, Dispatch, Effect, MethodSpec, method_spec

_SNAPSHOT_SPEC = MethodSpec(dispatch=Dispatch.ONE_TO_ALL, effect=Effect.READ)


def spec_of(groups: Mapping[str, RoleGroup], role: str, method: str) -> MethodSpec:
    """What the class of a registered role declares of `method`.

    Raises:
        ValueError: No such role is registered.
        UnknownMethodError: Its class has no such method.
    """
    if role not in groups:
        have = ", ".join(f'"{name}"' for name in groups) or "none"
        raise ValueError(f'role "{role}" must be registered before a step can name it; registered: {have}')
    return _SNAPSHOT_SPEC if method == SNAPSHOT else method_spec(groups[role].cls, method)


def assignment(seat: WorkerSeat, settings: EngineSettings) -> Assignment:
    """What a blank process is told to become this seat's next worker."""
    role = seat.group.role
    return Assignment(
        role=role.name,
        rank=seat.rank,
        world_size=seat.group.replicas,
        attempt=seat.attempt,
        epoch=settings.epoch,
        job=settings.job,
        seed=settings.seed,
        threads=role.threads,
        worker=role.worker,
        state_location=settings.state_location,
        restore_version=seat.group.version,
        log_file=f"{settings.log_folder}/{seat.name}.log" if settings.log_folder else None,
        process_group=role.process_group,
        meeting_place=seat.group.meeting_place,
    )


def columns_of(node: Node) -> dict[str, ColumnRef]:
    """Where the inputs of a node lie.

    Raises:
        StepError: A step that should have made one did not.
    """
    columns: dict[str, ColumnRef] = {}
    for name, value in node.inputs.items():
        columns |= value.node.results if name == ALL_OUTPUTS else {name: resolve(value)}
    return columns


def resolve(value: Any) -> ColumnRef:
    """Where an input of a node lies.

    Raises:
        StepError: The step that should have made it did not.
    """
    if not isinstance(value, DataChannel):
        assert isinstance(value, ColumnRef)
        return value
    results = value.node.results
    if value.name not in results:
        have = ", ".join(f'"{n}"' for n in results) or "nothing"
        raise StepError(f'{value.node} gave no output "{value.name}"; it gave: {have}')
    return results[value.name]


def split(node: Node, *, workers: Sequence[int]) -> list[Shard]:
    """The calls that a node becomes; a worker whose share would be empty is not called.

    Args:
        node: Its columns are there.
        workers: The ranks that can be asked.

    Raises:
        DataError: Batched inputs of a data-parallel step differ in rows, or a write or a collective step would not
            reach every worker.
    """
    dispatch = node.spec.dispatch
    reaches_all = node.spec.effect is Effect.WRITE or node.spec.collective
    world_size, parts = len(workers), node.spec.parts_per_worker

    def shard(rank: int, rows: tuple[int, int] | None = None) -> Shard:
        return Shard(node=node, rank=rank, worker=NOBODY if parts else workers[rank], rows=rows)

    if dispatch is Dispatch.RANK_ZERO:
        if reaches_all and world_size > 1:
            raise DataError(f"{node}: it must reach all {world_size} workers, not rank zero alone")
        return [shard(0)]
    counts = {name: ref.rows for name, ref in node.columns.items() if ref.rows is not None}
    if dispatch is not Dispatch.DATA_PARALLEL or not counts:
        return [shard(rank) for rank in range(world_size)]
    if len(set(counts.values())) > 1:
        listed = ", ".join(f'"{name}" has {rows}' for name, rows in counts.items())
        raise DataError(f"{node}: inputs of a data-parallel step must have the same number of rows: {listed}")
    total = next(iter(counts.values()))
    if world_size == 1:
        return [shard(0)]
    count = world_size * (parts or 1)
    edges = [total * rank // count for rank in range(count + 1)]
    shards = [shard(rank, (edges[rank], edges[rank + 1])) for rank in range(count)]
    if reaches_all and total < world_size:
        raise DataError(f"{node}: it must reach all {world_size} workers; there are {total} rows to split")
    return [s for s in shards if s.rows and s.rows[0] < s.rows[1]] or shards[:1]


def build(
    shard: Shard, settings: EngineSettings, *, durable: bool, world_size: int
) -> tuple[CallRequest, list[BufferRef]]:
    """The request for one worker, and the buffers that go with it, each once."""
    node = shard.node
    buffers: dict[int, tuple[int, BufferRef]] = {}

    def index(buffer: BufferRef) -> int:
        return buffers.setdefault(id(buffer), (len(buffers), buffer))[0]

    arguments = {
        name: tuple(
            Piece(buffer=index(piece.buffer), spec=piece.spec, rows=rows) for piece, rows in _overlap(ref, shard.rows)
        )
        for name, ref in node.columns.items()
    }
    writes = node.spec.effect is Effect.WRITE
    request = CallRequest(
        role=node.role,
        method=node.method,
        call=CallInfo(iteration=node.iteration, ordinal=node.ordinal, row_offset=shard.rows[0] if shard.rows else 0),
        epoch=settings.epoch,
        effect=node.spec.effect,
        arguments=arguments,
        expected_version=node.version if writes or (node.spec.effect is Effect.READ and not settings.lag) else None,
        update_id=f"{node.role}/{node.iteration}.{node.ordinal}" if writes else None,
        durable_key=durable_key(shard) if durable else None,
        world_size=world_size,
    )
    return request, [buffer for _, buffer in buffers.values()]


def _overlap(ref: ColumnRef, rows: tuple[int, int] | None) -> list[tuple[ColumnPiece, tuple[int, int] | None]]:
    """The pieces, and of each the rows, that hold `rows` of a column."""
    if rows is None or ref.rows is None:
        return [(piece, None) for piece in ref.pieces]
    wanted: list[tuple[ColumnPiece, tuple[int, int] | None]] = []
    first = 0
    for piece in ref.pieces:
        count = piece.spec.rows or 0
        low, high = max(rows[0], first), min(rows[1], first + count)
        if low < high:
            whole = high - low == count
            wanted.append((piece, None if whole else (low - first, high - first)))
        first += count
    return wanted or [(ref.pieces[0], (0, 0))]


def gather(node: Node) -> tuple[str, dict[str, ColumnRef]]:
    """The columns of a node whose every shard is answered.

    Raises:
        StepError: A declared output is missing.
    """
    first_only = node.spec.dispatch in (Dispatch.ONE_TO_ALL, Dispatch.RANK_ZERO) or (
        node.spec.dispatch is Dispatch.DATA_PARALLEL and all(shard.rows is None for shard in node.shards)
    )
    shards = node.shards[:1] if first_only else node.shards
    replies = [shard.reply for shard in shards if shard.reply is not None]
    results = {
        name: ColumnRef(
            tuple(
                ColumnPiece(spec=shard.reply.columns[name], buffer=shard.buffer, shard=shard)
                for shard in shards
                if shard.reply is not None and name in shard.reply.columns
            )
        )
        for name in replies[0].columns
    }
    shape = replies[0].shape
    if shape == "value" and node.outputs and len(node.outputs) == 1:
        results = {node.outputs[0]: results["value"]}
    if missing := [name for name in node.outputs or () if name not in results]:
        gave = ", ".join(f'"{name}"' for name in results) or "nothing"
        raise StepError(f'{node} failed: `{node.method}` must return the output "{missing[0]}"; it returned {gave}')
    return shape, results


def durable_key(shard: Shard) -> str:
    """Where the second copy of a shard's outputs lies in the state store."""
    node = shard.node
    return f"outputs/{node.iteration:08d}/{node.ordinal:04d}-{shard.rank:03d}"


def read_durable(shard: Shard, store: StateStore) -> Packed:
    """The second copy of a shard's outputs."""
    return unpack_bytes(store.read(durable_key(shard)))
