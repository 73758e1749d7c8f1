"""A fake API server, at the level of HTTP: the few requests that the operator makes, on a real port.

It keeps objects in memory, numbers their versions, and knows labels, fields, watches with bookmarks, server-side apply
(merged, without field ownership), preconditions and the status subresource. It knows nothing of validation or of
controllers. The real API server is asked in `e2e`.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import re
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import ClientConnectionResetError, web
from kubernetes.aio.client.configuration import Configuration

from rlhf_operator.kube import kinds
from rlhf_operator.kube.kinds import Kind

Name = tuple[Kind, str, str]
_PATH = re.compile(r"^(?P<root>/api/v1|/apis/[^/]+/[^/]+)(/namespaces/(?P<namespace>[^/]+))?/(?P<rest>[^?]+)$")


@dataclass(frozen=True)
class Request:
    """One request that came."""

    method: str
    path: str
    query: dict[str, str]
    body: Any

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass
class FakeApiServer:
    """The objects, and what is asked.

    Attributes:
        served: The kinds that the cluster has.
        requests: What came, apart from discovery.
        fault: Called with each request; an answer in place of the usual one.
        bookmarks: Seconds between bookmarks of a watch.
        deaf: Kinds whose watches are open and silent.
    """

    served: list[Kind] = field(default_factory=lambda: list(kinds.ALL))
    objects: dict[Name, dict[str, Any]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    fault: Callable[[Request], Awaitable[web.StreamResponse | None]] | None = None
    bookmarks: float = 0.5
    deaf: set[Kind] = field(default_factory=set)
    version: int = 1000
    oldest: int = 0
    url: str = ""
    _log: list[tuple[int, str, Kind, dict[str, Any]]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> FakeApiServer:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        server = site._server
        assert isinstance(server, asyncio.Server)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    def configuration(self) -> Configuration:
        return Configuration(host=self.url)

    # What a test does as another client.

    def put(self, kind: Kind, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create an object, or change it."""
        meta = manifest["metadata"]
        name = (kind, meta["namespace"], meta["name"])
        old = self.objects.get(name)
        thing = copy.deepcopy(manifest)
        self.version += 1
        thing.update(apiVersion=kind.api_version, kind=kind.kind)
        thing["metadata"].setdefault("uid", old["metadata"]["uid"] if old else str(uuid.uuid4()))
        thing["metadata"].setdefault("creationTimestamp", datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
        thing["metadata"].setdefault("generation", 1)
        thing["metadata"]["resourceVersion"] = str(self.version)
        self.objects[name] = thing
        self._tell("MODIFIED" if old else "ADDED", kind, thing)
        return thing

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """An object is gone."""
        self.version += 1
        thing = copy.deepcopy(self.objects.pop((kind, namespace, name)))
        thing["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", kind, thing)

    def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((kind, namespace, name))

    def forget_history(self) -> None:
        """Watches from an older version get 410 Gone; those that are open end so."""
        self.oldest = self.version
        self._log.clear()
        self._changed.set()
        self._changed = asyncio.Event()

    def asked(self, pattern: str) -> list[Request]:
        """The requests that match."""
        return [request for request in self.requests if re.search(pattern, str(request))]

    # What it answers.

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        text = await http.text()
        request = Request(http.method, http.path, dict(http.query), json.loads(text) if text else None)
        if self.fault is not None and (answer := await self.fault(request)) is not None:
            self.requests.append(request)
            return answer
        if (discovered := self._discover(http.path)) is not None:
            return web.json_response(discovered)
        found = _PATH.match(http.path)
        if found is None:
            return web.Response(status=404, text="404 page not found\n")
        plural, _, rest = found["rest"].partition("/")
        kind = next((k for k in self.served if k.root == found["root"] and k.plural == plural), None)
        if kind is None:
            return web.Response(status=404, text="404 page not found\n")
        self.requests.append(request)
        if request.query.get("watch") == "true":
            return await self._watch(http, kind, found["namespace"], request)
        name, _, subresource = rest.partition("/")
        if not name:
            return self._collection(kind, found["namespace"], request)
        return self._one(kind, found["namespace"], name, subresource, request)

    def _discover(self, path: str) -> dict[str, Any] | None:
        if path == "/api":
            return {"versions": ["v1"]}
        if path == "/apis":
            versions = sorted({(kind.group, kind.version) for kind in self.served if kind.group})
            return {
                "groups": [
                    {"name": group, "versions": [{"version": v}], "preferredVersion": {"version": v}}
                    for group, v in versions
                ]
            }
        found = [kind for kind in self.served if kind.root == path]
        if not found:
            return None
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        resources = [
            {"name": k.plural, "singularName": k.kind.lower(), "kind": k.kind, "namespaced": True, "verbs": verbs}
            for k in found
        ]
        if path == "/api/v1":  # kopf waits until it is there, although it need not read it
            resources.append({**resources[0], "name": "namespaces", "kind": "Namespace", "singularName": "namespace"})
        return {"resources": resources}

    def _collection(self, kind: Kind, namespace: str | None, request: Request) -> web.Response:
        if request.method == "POST":
            name = request.body["metadata"]["name"]
            if (kind, namespace, name) in self.objects:
                return refusal(409, "AlreadyExists", f'{kind.plural} "{name}" already exists')
            return web.json_response(self.put(kind, request.body), status=201)
        items = [t for (k, n, _), t in self.objects.items() if k == kind and namespace in (None, n)]
        items = [copy.deepcopy(item) for item in items if _matches(item, request.query)]
        for item in items:
            del item["kind"], item["apiVersion"]
        meta = {"resourceVersion": str(self.version)}
        return web.json_response(
            {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta, "items": items}
        )

    def _one(self, kind: Kind, namespace: str, name: str, subresource: str, request: Request) -> web.Response:
        old = self.objects.get((kind, namespace, name))
        if request.method == "PATCH" and old is None and not subresource:
            return web.json_response(self.put(kind, request.body), status=201)
        if old is None:
            return refusal(404, "NotFound", f'{kind.plural} "{name}" not found')
        if request.method == "GET":
            return web.json_response(old)
        if request.method == "DELETE":
            wanted = ((request.body or {}).get("preconditions") or {}).get("uid")
            if wanted not in (None, old["metadata"]["uid"]):
                return refusal(409, "Conflict", "the UID in the precondition does not match")
            self.remove(kind, namespace, name)
            return web.json_response({"kind": "Status", "status": "Success"})
        body = request.body
        if body.get("metadata", {}).get("uid") not in (None, old["metadata"]["uid"]):
            return refusal(409, "Conflict", "the UID does not match")
        if subresource == "status":
            return web.json_response(self.put(kind, {**old, "status": body["status"]}))
        if request.method == "PUT" and body["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]:
            return refusal(409, "Conflict", "the object has been modified")
        new = body if request.method == "PUT" else _merged(old, body)
        if {**new, "metadata": None} == {**old, "metadata": None} and new["metadata"] == old["metadata"]:
            return web.json_response(old)
        return web.json_response(self.put(kind, new))

    async def _watch(
        self, http: web.Request, kind: Kind, namespace: str | None, request: Request
    ) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion", "0"))
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(http)
        with contextlib.suppress(ClientConnectionResetError):
            await self._stream(stream, kind, namespace, request, since=since)
        return stream

    async def _stream(
        self, stream: web.StreamResponse, kind: Kind, namespace: str | None, request: Request, *, since: int
    ) -> None:
        while True:
            if since < self.oldest:
                gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                await _line(stream, {"type": "ERROR", "object": gone})
                return
            changed = self._changed
            for number, what, of, thing in list(self._log):
                wanted = of == kind and namespace in (None, thing["metadata"]["namespace"])
                if number > since and wanted and kind not in self.deaf and _matches(thing, request.query):
                    await _line(stream, {"type": what, "object": thing})
            since = max(since, self.version)
            try:
                async with asyncio.timeout(self.bookmarks):
                    await changed.wait()
            except TimeoutError:
                mark = {"kind": kind.kind, "metadata": {"resourceVersion": str(since)}}
                await _line(stream, {"type": "BOOKMARK", "object": mark})

    def _tell(self, what: str, kind: Kind, thing: dict[str, Any]) -> None:
        self._log.append((self.version, what, kind, copy.deepcopy(thing)))
        self._changed.set()
        self._changed = asyncio.Event()


def refusal(status: int, reason: str, message: str, *causes: str) -> web.Response:
    """What an API server answers when it refuses."""
    details = {"causes": [{"reason": cause} for cause in causes]}
    body = {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "details": details}
    return web.json_response({**body, "code": status}, status=status)


async def _line(stream: web.StreamResponse, event: Any) -> None:
    await stream.write(json.dumps(event).encode() + b"\n")


def _matches(thing: dict[str, Any], query: dict[str, str]) -> bool:
    labels = thing["metadata"].get("labels") or {}
    for selector in filter(None, query.get("labelSelector", "").split(",")):
        key, equals, value = selector.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    for selector in filter(None, query.get("fieldSelector", "").split(",")):
        key, _, value = selector.partition("=")
        found: Any = thing
        for part in key.split("."):
            found = (found or {}).get(part)
        if found != value:
            return False
    return True


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return copy.deepcopy(new)
    result = copy.deepcopy(old)
    for key, value in new.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(old.get(key), value)
    return result
