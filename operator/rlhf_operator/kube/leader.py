"""Only one replica works: the one that holds the lease.

The library's election waits for an answer as long as the API server likes, gives up for good when a connection breaks,
and its own lock cannot create a Lease (37.0.2 refuses what it itself passes). So the lock here is ours: each request
has a limit, and a broken connection is a failed try. Time counts from the last renewal that succeeded, also when this
process was stopped for a while: `sure()` is asked before every change.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.baselock import BaseLock

from rlhf_operator.config import ProcessSettings
from rlhf_operator.kube.client import KubeClient
from rlhf_operator.kube.errors import ApiError, LostLeaseError
from rlhf_operator.kube.kinds import LEASE
from rlhf_operator.telemetry.logging import log

LEASE_NAME = "rlhf-operator"


class _Lock(BaseLock):
    """A Lease whose requests end in time.

    What the library calls a record has times as text of its own; they are taken over as they are, since only their
    changing matters to it.
    """

    def __init__(
        self, *, namespace: str, identity: str, client: KubeClient, limit: float, renewed: Callable[[], None]
    ) -> None:
        super().__init__(LEASE_NAME, namespace, identity)
        self._client = client
        self._limit = limit
        self._renewed = renewed
        self._seen: dict[str, Any] = {}

    async def get(
        self, name: str, namespace: str
    ) -> tuple[bool, LeaderElectionRecord] | tuple[bool, Exception] | tuple[bool, None]:
        try:
            self._seen = await self._client.request("GET", LEASE.path(namespace, name), seconds=self._limit)
        except ApiError as error:
            if error.status != 404:
                log("the lease cannot be read", error=str(error), level="warning")
            failed = ApiException(status=error.status, reason=str(error))
            failed.body = json.dumps({"code": error.status})
            return False, failed
        spec = self._seen.get("spec") or {}
        seconds = spec.get("leaseDurationSeconds")
        return True, LeaderElectionRecord(
            spec.get("holderIdentity") or None,
            str(seconds) if seconds else None,
            spec.get("acquireTime"),
            spec.get("renewTime"),
        )

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        self._seen = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {"name": name, "namespace": namespace},
        }
        return await self._write("POST", LEASE.path(namespace), election_record)

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        return await self._write("PUT", LEASE.path(namespace, name), updated_record)

    async def _write(self, method: str, path: str, record: LeaderElectionRecord) -> bool:
        old = self._seen.get("spec") or {}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = old.get("holderIdentity") == record.holder_identity
        spec = {
            "holderIdentity": record.holder_identity,
            "leaseDurationSeconds": int(float(record.lease_duration or 0)),
            "acquireTime": old.get("acquireTime", now) if ours else now,
            "renewTime": now,
            "leaseTransitions": old.get("leaseTransitions", 0) + (not ours and bool(old)),
        }
        try:
            # With the version that was read: of two replicas that try at once, one is refused.
            await self._client.request(method, path, body={**self._seen, "spec": spec}, seconds=self._limit)
        except ApiError as error:
            log("the lease is not ours", error=str(error), level="debug" if error.status == 409 else "warning")
            return False
        self._renewed()
        return True


class Leader:
    """Takes part in the election.

    Args:
        client: The API server.
        namespace: Where the lease is.
        settings: Times, and this replica's identity.
        clock: Seconds that also pass while this process is stopped.
    """

    def __init__(
        self, client: KubeClient, *, namespace: str, settings: ProcessSettings, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._settings = settings
        self._clock = clock
        self._renewed_at: float | None = None
        self.leading = asyncio.Event()

    def sure(self) -> bool:
        """Whether no other replica can be the leader now."""
        if self._renewed_at is None:
            return False
        return self._clock() - self._renewed_at < self._settings.lease_seconds

    async def run(self) -> None:
        """Wait for the lease, and renew it until it is lost.

        Raises:
            LostLeaseError: The lease is lost; the process must end, since another replica works now.
        """
        settings = self._settings
        lock = _Lock(
            namespace=self._namespace,
            identity=settings.identity,
            client=self._client,
            limit=settings.retry_seconds,
            renewed=self._renewed,
        )
        election = LeaderElection(
            Config(
                lock,
                lease_duration=settings.lease_seconds,
                renew_deadline=settings.renew_seconds,
                retry_period=settings.retry_seconds,
                onstarted_leading=self._started,
                onstopped_leading=_nothing,
            )
        )
        log("waiting for the lease", lease=f"{self._namespace}/{LEASE_NAME}", identity=settings.identity)
        await election.run()
        raise LostLeaseError(
            f"the lease could not be renewed within {settings.renew_seconds:g} s; another replica goes on"
        )

    async def release(self) -> None:
        """Let another replica have the lease at once, if it is ours."""
        if not self.sure():
            return
        body = {"spec": {"holderIdentity": None}}
        try:
            await self._client.merge(LEASE, self._namespace, LEASE_NAME, body)
        except (ApiError, LostLeaseError) as error:
            log("the lease was not released; it ends by itself", error=str(error), level="warning")
        self._renewed_at = None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _renewed(self) -> None:
        self._renewed_at = self._clock()

    async def _started(self) -> None:
        log("leading", identity=self._settings.identity)
        self.leading.set()


async def _nothing() -> None:
    return None
