"""kopf's part: it watches, and puts what it sees into the store. There is no logic here.

kopf runs in a thread and an event loop of its own: when it ends it cancels every task of its loop, and here it is
ended and begun anew when a kind appears in the cluster or goes, such as when KubeRay is installed after us.

The index handlers run for each object as soon as it is seen, the event handlers only after every kind was listed
once. So by the first wake of a worker the store has all that there was.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from itertools import chain, repeat
from typing import Any

import kopf
from kubernetes.aio.client.configuration import Configuration

from rlhf_operator.kube.kinds import RLHF_JOB, SELECTOR, Kind
from rlhf_operator.kube.store import Store, job_of

_SERVER_SECONDS = 300
_LOGIN_SECONDS = 30.0


class _Patience:
    """The pauses between tries of one request: without end, since an API server may be away for long."""

    def __iter__(self) -> Iterator[float]:
        return chain((0.5, 1, 2, 3, 5), repeat(8.0))


class KindGoneError(Exception):
    """The definition of a watched kind was deleted; it may be back already."""


class Watches:
    """Watches kinds until it is stopped.

    Args:
        store: Gets all that is seen; touched only from the loop in which this was made.
        kinds: What to watch.
        namespaces: Where; empty means everywhere.
        connection: How to reach the API server, asked again when credentials have ended.
    """

    def __init__(
        self,
        store: Store,
        *,
        kinds: Sequence[Kind],
        namespaces: Sequence[str],
        connection: Callable[[], Any],
    ) -> None:
        self._store = store
        self._kinds = tuple(kinds)
        self._namespaces = tuple(namespaces)
        self._connection = connection
        self._home = asyncio.get_running_loop()
        self._stopped = False
        self._loop: asyncio.AbstractEventLoop | None = None  # kopf's
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Watch until `stop` is called.

        Raises:
            KindGoneError: The API server does not know a watched kind any more.
            Exception: A watch met another error that kopf cannot heal.
        """
        ended: asyncio.Future[None] = self._home.create_future()

        def settle(error: BaseException | None) -> None:
            if not ended.done():
                ended.set_result(None) if error is None else ended.set_exception(error)

        def work() -> None:
            try:
                asyncio.run(self._watch())
            except Exception as error:
                gone = getattr(error, "status", None) == HTTPStatus.NOT_FOUND  # kopf's error, which is not public
                self._tell(settle, KindGoneError() if gone else error)
            else:
                self._tell(settle, None)

        # A daemon: when it does not end in time, the process ends all the same.
        threading.Thread(target=work, name="watches", daemon=True).start()
        await ended

    def stop(self) -> None:
        """End the watches."""
        self._stopped = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._stop.set)

    async def _watch(self) -> None:
        """In kopf's loop.

        The flag must be of the loop: kopf waits for one of threads in a thread, which would outlive a watch that
        failed, and the failure would never be seen.
        """
        self._loop = asyncio.get_running_loop()
        if self._stopped:
            return
        await kopf.operator(
            registry=self._registry(),
            settings=_settings(self._kinds),
            standalone=True,
            clusterwide=not self._namespaces,
            namespaces=self._namespaces,
            stop_flag=self._stop,
        )
        if not self._stopped:
            raise RuntimeError("kopf has ended although nobody asked it to")

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            asked = asyncio.run_coroutine_threadsafe(self._connection(), self._home)
            return await connection_info(await asyncio.wait_for(asyncio.wrap_future(asked), _LOGIN_SECONDS))

        for kind in self._kinds:
            self._register(registry, kind)
        return registry

    def _register(self, registry: kopf.OperatorRegistry, kind: Kind) -> None:
        name = kind.plural

        @kopf.index(kind.group, kind.version, kind.plural, id=f"keep-{name}", registry=registry)
        async def keep(body: kopf.Body, **_: Any) -> None:
            self._tell(self._keep, kind, dict(body))

        @kopf.on.event(kind.group, kind.version, kind.plural, id=f"tell-{name}", registry=registry)
        async def tell(event: kopf.RawEvent, **_: Any) -> None:
            self._tell(self._changed, kind, event["type"], dict(event["object"]))

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function in the store's loop; calls keep their order."""
        if not self._home.is_closed():
            self._home.call_soon_threadsafe(function, *arguments)

    def _keep(self, kind: Kind, thing: dict[str, Any]) -> None:
        self._store.put(kind, thing, quiet=True)

    def _changed(self, kind: Kind, what: str | None, thing: dict[str, Any]) -> None:
        meta = thing["metadata"]
        if what == "DELETED":
            self._store.remove(kind, meta["namespace"], meta["name"], uid=meta["uid"])
            return
        self._store.put(kind, thing, quiet=True)
        key = job_of(kind, thing)
        if key is not None:
            self._store.changed(key)


async def connection_info(configuration: Configuration) -> kopf.ConnectionInfo:
    """The library's way to reach the API server, as kopf takes it."""
    header = await configuration.get_api_key_with_prefix("BearerToken")
    scheme, _, token = (header or "").rpartition(" ")
    return kopf.ConnectionInfo(
        server=str(configuration.host),
        ca_path=configuration.ssl_ca_cert,
        ca_data=configuration.ca_cert_data,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        scheme=scheme.title() or None,
        token=token.strip() or None,
        proxy_url=configuration.proxy,
    )


def _settings(kinds: Sequence[Kind]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True  # we look for kinds ourselves; kopf would read every definition in the cluster
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    settings.watching.server_timeout = _SERVER_SECONDS
    settings.watching.client_timeout = _SERVER_SECONDS + 30
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 60
    settings.networking.connect_timeout = 10
    settings.networking.error_backoffs = _Patience()
    for kind in kinds:
        if kind != RLHF_JOB:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = SELECTOR
    return settings
