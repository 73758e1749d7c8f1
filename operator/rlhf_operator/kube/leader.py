"""Only one replica works: the one that holds the lease.

The library's election waits for an answer as long as the API server likes, and gives up for good when a connection
breaks. Here each request has a limit, a broken connection is a failed try, and time counts from the last renewal that
succeeded, also when this process was stopped for a while: `sure()` is asked before every change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from rlhf_operator.config import ProcessSettings
from rlhf_operator.kube.client import KubeClient
from rlhf_operator.kube.errors import ApiError, LostLeaseError
from rlhf_operator.kube.kinds import LEASE
from rlhf_operator.telemetry.logging import log

LEASE_NAME = "rlhf-operator"


class _Lock(LeaseLock):
    """A lease whose requests end in time."""

    def __init__(self, *, namespace: str, identity: str, client: KubeClient, limit: float, renewed: Callable[[], None]):
        super().__init__(LEASE_NAME, namespace, identity, client.api)
        self._limit = limit
        self._renewed = renewed

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        try:
            async with asyncio.timeout(self._limit):
                return await super().get(name, namespace)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return False, ApiException(status=0, reason=f"the API server does not answer: {error!r}")

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        return await self._in_time(super().create(name, namespace, election_record))

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        return await self._in_time(super().update(name, namespace, updated_record))

    async def _in_time(self, request: Any) -> bool:
        try:
            async with asyncio.timeout(self._limit):
                done = bool(await request)
        except (TimeoutError, aiohttp.ClientError, OSError):
            return False
        if done:
            self._renewed()
        return done


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
