"""Who answers a part of a step where any worker may: whoever is free takes the next one.

Generation takes as long as its longest answer, and a machine may be slow or gone. So the rows of such a step are cut
in more parts than there are workers, and no part belongs to one before it is sent: a slow worker answers fewer of them,
and those of a dead one are taken by the others at once. Which worker computes a row changes no number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlhf_runtime.control.graph import NodeState, Shard

if TYPE_CHECKING:
    from rlhf_runtime.control.engine import Engine
    from rlhf_runtime.control.processes import Process, RoleGroup, WorkerSeat

NOBODY = -1
"""The `worker` of a part that has not been sent, or not been answered by whom it was sent to."""


def seat_for(engine: Engine, shard: Shard) -> WorkerSeat | None:
    """Whom to ask for a part; None: nobody is free, and it waits."""
    group = engine.groups[shard.node.role]
    if not shard.node.spec.parts_per_worker:
        return group.find(shard.worker) or group.seats[shard.rank % len(group.seats)]
    busy = _busy(engine)
    free = [seat for seat in group.seats if seat.ready and seat.process not in busy]
    return min(free, key=lambda seat: seat.rank, default=None)


def feed(engine: Engine, group: RoleGroup) -> None:
    """Somebody of the role may be free: send the parts that wait, those of the oldest step first."""
    if not group.shares_parts:
        return  # asked after every call, of which a script may have thousands
    for node in sorted(engine.active.values(), key=lambda node: node.id):
        if node.role == group.role.name and node.spec.parts_per_worker and node.state in _BEGUN:
            for shard in node.shards:
                engine.attempt(shard)


_BEGUN = (NodeState.READY, NodeState.RUNNING)


def _busy(engine: Engine) -> set[Process]:
    """The processes that have something to do; colocated roles share theirs."""
    found = set()
    for node in engine.active.values():
        for shard in node.shards:
            if shard.running:
                found.add(engine.groups[node.role].seat(shard.worker).process)
    return found
