"""Kubernetes events about a job, each told once.

An event's name is made from the job's UID and the event's key, so the API server itself knows which were told, also
after a restart of the operator.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from rlhf_api import API_VERSION, KIND
from rlhf_api.formats import format_time
from rlhf_operator.kube.client import FIELD_MANAGER, KubeClient
from rlhf_operator.kube.errors import ApiError
from rlhf_operator.kube.kinds import EVENT
from rlhf_operator.kube.store import JobKey
from rlhf_operator.planning.plan import Event
from rlhf_operator.telemetry.logging import log

_LONGEST_MESSAGE = 1024
_MOST_REMEMBERED = 256


class Events:
    """Tells of events.

    Args:
        client: The API server.
        identity: This replica's name.
        now: The time, UTC.
    """

    def __init__(self, client: KubeClient, *, identity: str, now: Callable[[], datetime]) -> None:
        self._client = client
        self._identity = identity
        self._now = now
        self._told: dict[JobKey, OrderedDict[str, None]] = {}

    async def tell(self, job: Mapping[str, Any], event: Event) -> bool:
        """Tell of an event about a job, unless it was told before.

        Returns:
            Whether it was new.

        Raises:
            ApiError: The API server does not take it.
        """
        meta = job["metadata"]
        key = JobKey(meta["namespace"], meta["name"])
        told = self._told.setdefault(key, OrderedDict())
        name = _name(meta["name"], meta["uid"], event.key)
        if name in told:
            told.move_to_end(name)
            return False
        new = True
        try:
            await self._client.create(self._manifest(meta, event, name), EVENT)
        except ApiError as error:
            if error.status == 403 and "NamespaceTerminating" in error.causes:
                return False
            if error.status != 409:
                raise
            new = False
        told[name] = None
        while len(told) > _MOST_REMEMBERED:
            told.popitem(last=False)
        if new:
            level = "warning" if event.type == "Warning" else "info"
            log(event.message, job=key, reason=event.reason, level=level)
        return new

    def forget(self, key: JobKey) -> None:
        """A job is gone."""
        self._told.pop(key, None)

    def _manifest(self, meta: Mapping[str, Any], event: Event, name: str) -> dict[str, Any]:
        now = format_time(self._now())
        message = event.message
        if len(message) > _LONGEST_MESSAGE:
            message = message[: _LONGEST_MESSAGE - 3] + "..."
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": meta["namespace"], "name": name},
            "involvedObject": {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
                "resourceVersion": meta.get("resourceVersion"),
            },
            "type": event.type,
            "reason": event.reason,
            "message": message,
            "source": {"component": FIELD_MANAGER},
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": self._identity,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def _name(job: str, uid: str, key: str) -> str:
    return f"{job}.{hashlib.sha256(f'{uid}/{key}'.encode()).hexdigest()[:16]}"
