"""Compares what the watches brought with what the API server lists: a watch may be deaf and nobody the wiser.

After a `410 Gone` a watch lists everything anew, but nothing tells it of what was deleted meanwhile; a connection may
be open and silent; a process in between may hold events back. So once in a while the metadata of each kind is listed,
which is cheap, and what differs from the store is put right. An object that the watch has not brought when it is
listed for the second time is a proof that the watch is deaf.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlhf_operator.kube.client import KubeClient
from rlhf_operator.kube.errors import ApiError
from rlhf_operator.kube.kinds import RLHF_JOB, SELECTOR, Kind
from rlhf_operator.kube.store import Store
from rlhf_operator.telemetry.logging import log

_FIRST_SECONDS = 2.0
"""Between two comparisons until each kind agreed once: readiness waits for it."""

Seen = tuple[Kind, str, str, str]
"""Kind, namespace, name and resource version."""


@dataclass(slots=True, kw_only=True)
class Audit:
    """Finds what the watches missed.

    Attributes:
        client: The API server.
        store: What the watches brought.
        namespaces: Where the operator watches; empty means everywhere.
        clock: Of this process, seconds.
        agreed: When each kind's watch was last found to have brought everything.
        agreed_once: The kinds of which all was there at least once.
        repairs: How many objects were put right.
    """

    client: KubeClient
    store: Store
    namespaces: Sequence[str]
    clock: Callable[[], float]
    agreed: dict[Kind, float] = field(default_factory=dict)
    agreed_once: set[Kind] = field(default_factory=set)
    repairs: int = 0
    _late: dict[Kind, set[Seen]] = field(default_factory=dict)

    async def run(self, kinds: Callable[[], Sequence[Kind]], *, every: float) -> None:
        """Audit all kinds for ever; one that cannot be listed now is tried again next time."""
        while True:
            now = kinds()  # none, until the cluster has been asked which it has
            for kind in now:
                try:
                    await self.audit(kind)
                except ApiError as error:
                    log("audit failed", kind=kind.kind, error=str(error), level="warning")
            settled = bool(now) and all(kind in self.agreed_once for kind in now)
            await asyncio.sleep(every if settled else min(every, _FIRST_SECONDS))

    def deaf(self, kinds: Sequence[Kind], *, since: float) -> list[Kind]:
        """The kinds whose watch was audited, and found wanting every time, for so many seconds."""
        now = self.clock()
        return [kind for kind in kinds if kind in self._late and self._late[kind] and now - self.agreed[kind] > since]

    async def audit(self, kind: Kind) -> int:
        """Compare one kind, and put right what the watch missed.

        Returns:
            The number of objects put right.
        """
        self.agreed.setdefault(kind, self.clock())
        before = {_seen(kind, thing["metadata"]) for thing in self.store.all(kind)}
        listed: set[Seen] = set()
        for namespace in self.namespaces or (None,):
            labels = "" if kind == RLHF_JOB else SELECTOR
            things = await self.client.list(kind, namespace, labels=labels, metadata_only=True)
            listed |= {_seen(kind, thing["metadata"]) for thing in things}
        names = {seen[:3] for seen in listed}
        repaired = 0
        for seen in before:
            if seen[:3] not in names:
                repaired += await self._refresh(seen)
        late = {seen for seen in listed if not self._has(seen)}
        for seen in late & self._late.get(kind, set()):
            repaired += await self._refresh(seen)
        self._late[kind] = late
        if not late:
            self.agreed[kind] = self.clock()
            self.agreed_once.add(kind)
        self.repairs += repaired
        return repaired

    def _has(self, seen: Seen) -> bool:
        kind, namespace, name, version = seen
        thing = self.store.get(kind, namespace, name)
        if thing is None:
            return False
        known = str(thing["metadata"].get("resourceVersion", ""))
        return known == version or (known.isdigit() and version.isdigit() and int(known) > int(version))

    async def _refresh(self, seen: Seen) -> int:
        """Read one object as it is; whether the store had it otherwise."""
        kind, namespace, name, _ = seen
        known = self.store.get(kind, namespace, name)
        found = await self.client.get(kind, namespace, name)
        if found is not None:
            if known is not None and known["metadata"].get("resourceVersion") == found["metadata"]["resourceVersion"]:
                return 0
            self.store.put(kind, found)
        elif known is not None:
            self.store.remove(kind, namespace, name, uid=known["metadata"]["uid"])
        else:
            return 0
        log("the watch missed a change", kind=kind.kind, object=f"{namespace}/{name}", level="warning")
        return 1


def _seen(kind: Kind, meta: dict[str, str]) -> Seen:
    return kind, meta["namespace"], meta["name"], str(meta.get("resourceVersion", ""))
