"""A fake API server over real HTTP: a few objects in memory, watches, logs, and faults that a test asks for.

It judges nothing: what the real one refuses, a test puts into `faults`. The real one's side is tested in e2e.
"""

import copy
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
SILENCE = "(nothing for a second)"
"""In place of a line of a log."""
JOBS = "/apis/rlhf.dev/v1alpha1/"


@dataclass
class Fault:
    """An answer in place of the real one, for requests that `when` chooses; `times` of them."""

    when: Callable[[str, str, dict[str, str]], bool]
    code: int
    body: Any
    times: int = 1


@dataclass
class FakeApiServer:
    """What the cluster has, what was asked, and what goes wrong."""

    jobs: dict[tuple[str, str], Object] = field(default_factory=dict)
    pods: list[Object] = field(default_factory=list)
    events: list[Object] = field(default_factory=list)
    logs: dict[str, list[list[str]]] = field(default_factory=dict)
    """By pod: what each further request of its log gives; the last one again and again."""
    faults: list[Fault] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)
    watches: list[list[Object]] = field(default_factory=list)
    """The events of each further watch; afterwards a watch gives nothing, and ends at once."""
    on_request: Callable[[str, str], None] = lambda method, path: None
    version: int = 100
    port: int = 0
    lock: Any = field(default_factory=threading.RLock)

    def add(self, job: Object, namespace: str = "ml") -> Object:
        """Put a job there as if it had been there for long."""
        self.version += 1
        metadata = {
            "uid": f"uid-{job['metadata']['name']}",
            "generation": 1,
            "creationTimestamp": "2026-11-30T12:00:00Z",
            **job["metadata"],
            "namespace": namespace,
            "resourceVersion": str(self.version),
        }
        stored = {**job, "metadata": metadata}
        self.jobs[namespace, metadata["name"]] = stored
        return stored

    def change(self, name: str, namespace: str = "ml", **status: Any) -> Object:
        """Change a job's status."""
        with self.lock:
            job = copy.deepcopy(self.jobs[namespace, name])
            job["status"] = {**job.get("status", {}), **status}
            return self.add(job, namespace)

    def sent(self, method: str) -> list[tuple[str, dict[str, str], Any]]:
        """Path, query and body of the requests of one method."""
        return [(path, query, body) for found, path, query, body in self.requests if found == method]

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        with self.lock:
            self.requests.append((method, path, query, body))
            self.on_request(method, path)
            for fault in self.faults:
                if fault.times > 0 and fault.when(method, path, query):
                    fault.times -= 1
                    return fault.code, fault.body
            if path.startswith(JOBS):
                return self._jobs(method, path, query, body)
            namespace, kind = path.split("/")[4:6]
            if path.endswith("/log"):
                return 200, self._log(path.split("/")[6], tail=query.get("tailLines"))
            found = self.pods if kind == "pods" else self.events
            items = [item for item in found if item["metadata"]["namespace"] == namespace]
            if kind == "pods":
                key, _, value = query["labelSelector"].partition("=")
                items = [item for item in items if item["metadata"]["labels"].get(key) == value]
            return 200, {"items": items}

    def _log(self, pod: str, *, tail: str | None) -> Any:
        if not any(found["metadata"]["name"] == pod for found in self.pods):
            return status(404, f'pods "{pod}" not found', name=pod, kind="pods")[1]
        kept = self.logs.get(pod, [[]])
        lines = kept.pop(0) if len(kept) > 1 else kept[0]
        return (self._line(line) for line in (lines[-int(tail) :] if tail else lines))

    @staticmethod
    def _line(line: str) -> bytes:
        if line == SILENCE:
            time.sleep(1.0)
            return b""
        return f"{line}\n".encode()

    def _jobs(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        parts = path.removeprefix(JOBS).split("/")
        namespace = parts[1] if parts[0] == "namespaces" else None
        name = parts[3] if namespace and len(parts) > 3 else None
        if name is None:
            if query.get("watch"):
                events = self.watches.pop(0) if self.watches else []
                return 200, iter([json.dumps(event).encode() + b"\n" for event in events])
            return 200, {"items": [job for (where, _), job in self.jobs.items() if namespace in (None, where)]}
        assert namespace is not None
        if method == "PATCH" and query.get("fieldValidation") == "Strict" and isinstance(body, dict) and "kind" in body:
            return 200, self._apply(namespace, name, body, dry="dryRun" in query)
        job = self.jobs.get((namespace, name))
        if job is None:
            return status(404, f'rlhfjobs.rlhf.dev "{name}" not found', name=name, kind="rlhfjobs")
        if method == "PATCH":
            return self._patch(namespace, job, body)
        if method == "DELETE":
            assert body["preconditions"]["uid"] == job["metadata"]["uid"]
            del self.jobs[namespace, name]
            return 200, {"kind": "Status", "status": "Success"}
        return 200, job

    def _apply(self, namespace: str, name: str, body: Object, *, dry: bool) -> Object:
        old = self.jobs.get((namespace, name), {})
        new = _merged(old, body)
        if dry:
            return new
        return old if new == old else self.add(new, namespace)

    def _patch(self, namespace: str, job: Object, body: Any) -> tuple[int, Any]:
        new = copy.deepcopy(job)
        if isinstance(body, list):
            for step in body:
                *parts, last = step["path"].strip("/").split("/")
                target: Any = new
                for part in parts:
                    target = target[int(part) if isinstance(target, list) else part]
                if step["op"] == "test" and target.get(last) != step["value"]:
                    return status(422, "the server rejected our request due to an error in our request")
                target[last] = step["value"]
        else:
            version = body["metadata"].get("resourceVersion", job["metadata"]["resourceVersion"])
            if version != job["metadata"]["resourceVersion"]:
                return status(409, "the object has been modified; please apply your changes to the latest version")
            new = _merged(new, body)
        return 200, self.add(new, namespace)


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        if isinstance(old, list) and isinstance(new, list) and all("name" in item for item in [*old, *new]):
            known = {item["name"]: item for item in old}
            return [_merged(known.get(item["name"], {}), item) for item in new]
        return new
    return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}


def status(code: int, message: str, *, causes: list[Object] | None = None, **details: Any) -> tuple[int, Object]:
    """A refusal as the API server words it."""
    return code, {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
        "details": {**details, "causes": causes or []},
    }  # fmt: skip


def serve(fake: FakeApiServer) -> ThreadingHTTPServer:
    """Serve it on a free port; the caller shuts it down."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            code, answer = fake.answer(self.command, url.path, query, body)
            if isinstance(answer, Iterator):
                self._stream(answer)
                return
            if isinstance(answer, dict) and answer.get("kind") == "Status" and answer.get("code"):
                code = answer["code"]
            text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def _stream(self, chunks: Iterator[bytes]) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for chunk in filter(None, chunks):
                self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        do_GET = do_PATCH = do_DELETE = do_POST = _handle  # noqa: N815 - the standard library's names

        def log_message(self, format: str, *args: Any) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.port = server.server_port
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    return server


def pod(name: str, component: str, *, job: str = "ppo-spelling", role: str | None = None, node: str = "node-a",
        phase: str = "Running", created: str = "2026-11-30T12:00:05Z", **status: Any) -> Object:  # fmt: skip
    """A pod of a job."""
    labels = {"rlhf.dev/job": job, "rlhf.dev/component": component} | ({"rlhf.dev/role": role} if role else {})
    state = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": 137, "reason": "Error"}}
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"uid-{name}", "labels": labels,
                     "creationTimestamp": created},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "main", "state": state}], **status},
    }  # fmt: skip
