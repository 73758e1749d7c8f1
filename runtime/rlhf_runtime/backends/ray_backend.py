"""Role processes as Ray actors: embedded on this machine, on the cluster that `RAY_ADDRESS` names, or in role pods.

On a cluster made by the operator every pod of a role is a Ray node with one unit of the role's own resource. An actor
asks for that unit, or for its share where a model's ranks are several in a pod: it lives in a pod of its role, its
successor finds the place that it left, and the successor of one whose pod is gone waits until another pod has joined.
An actor ends with the controller that made it.

Ray starts processes, carries messages and shares buffers; it restarts nothing (`max_restarts=0`): what a death means
is the engine's to judge. A call answers with two objects, a small reply and one flat buffer, so that the buffer of
more than 100 KB goes from role to role through shared memory and never through the controller.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Literal

import numpy as np
import ray
import ray.exceptions as ray_errors

from rlhf_api import in_pod, names
from rlhf_api.enums import FailureReason
from rlhf_runtime.backends.base import Backend, BufferRef, Host, OnDone, Outcome, Place
from rlhf_runtime.backends.last_words import death_of, size_of
from rlhf_runtime.backends.ray_places import PlaceWatch
from rlhf_runtime.backends.ray_process import RoleProcess
from rlhf_runtime.errors import BufferLostError, HostDiedError, RlhfError

_CONTROL = {"ping"}
_FETCH_SECONDS = 60.0
_UNAVAILABLE_RETRY_SECONDS = 0.05
_UNAVAILABLE_LIMIT_SECONDS = 30.0
_LOST = (ray_errors.ObjectLostError, ray_errors.OwnerDiedError, ray_errors.ObjectFetchTimedOutError)


class RayHost(Host):
    """A Ray actor. `log_file` is where its output goes, once it is assigned; what was there is its predecessors'."""

    def __init__(self, name: str, handle: Any) -> None:
        self.name = name
        self.handle = handle
        self.log_file: str | None = None
        self.log_start = 0


class RayBackend(Backend):
    """Runs hosts as Ray actors.

    Args:
        address: An existing cluster; None: the environment's `RAY_ADDRESS`, or else a Ray of our own on this machine.
        places: "role-pods" where each role's hosts must be in the role's own pods.
        object_store_bytes: Shared memory for buffers, when Ray is our own.
    """

    name = "ray"
    threaded = True

    def __init__(
        self,
        *,
        address: str | None = None,
        places: Literal["anywhere", "role-pods"] = "anywhere",
        object_store_bytes: int = 512 * 1024**2,
    ) -> None:
        super().__init__()
        self._news: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._hosts: list[RayHost] = []
        self._closed = False
        self._owns_ray = not ray.is_initialized()
        if self._owns_ray:
            _start_ray(address or os.environ.get("RAY_ADDRESS"), object_store_bytes)
        _tell_no_deaths()
        self.pins_places = places == "role-pods"
        self._places = PlaceWatch(ray.nodes) if self.pins_places else None
        self.buffers_outlive_hosts = not self.pins_places and len(ray.nodes()) == 1
        self._actor_class = ray.remote(
            num_cpus=0,
            max_restarts=0,
            max_task_retries=0,
            concurrency_groups={"control": 1},
        )(RoleProcess)

    def start_host(self, name: str, *, preload: Sequence[str] | None = None, place: Place | None = None) -> RayHost:
        """Begin to start a blank role process."""
        actor_class = self._actor_class
        if self.pins_places:
            assert place is not None, "a process without a place could never be a role's"
            share = 1 / place.per_pod if place.per_pod > 1 else 1
            actor_class = actor_class.options(resources={names.ray_resource(place.role): share}, num_gpus=place.gpus)
        host = RayHost(name, actor_class.remote(preload=preload))
        self._hosts.append(host)
        return host

    def submit(
        self,
        host: Host,
        operation: str,
        arguments: Sequence[Any],
        buffers: Sequence[BufferRef],
        on_done: OnDone,
    ) -> None:
        """Send the operation; "Unavailable" is not "dead": it is sent again, and a write is still made once."""
        assert isinstance(host, RayHost)
        if operation == "assign":
            host.log_file = arguments[0].log_file
            host.log_start = size_of(host.log_file)
        self._send(host, operation, arguments, buffers, on_done, first_try=time.monotonic())

    def _send(
        self,
        host: RayHost,
        operation: str,
        arguments: Sequence[Any],
        buffers: Sequence[BufferRef],
        on_done: OnDone,
        *,
        first_try: float,
    ) -> None:
        method = host.handle.control if operation in _CONTROL else host.handle.run
        reply, buffer = method.options(num_returns=2).remote(operation, tuple(arguments), *buffers)

        def answered(future: Future[Any]) -> None:
            self._news.put(lambda: deliver(future))

        def deliver(future: Future[Any]) -> None:
            error = future.exception()
            if error is None:
                value = future.result()
                failed = isinstance(value, BaseException)
                filled = getattr(value, "nbytes", 0)
                on_done(Outcome(error=value) if failed else Outcome(value=value, buffer=buffer if filled else None))
                return
            waited = time.monotonic() - first_try
            if isinstance(error, ray_errors.ActorUnavailableError) and waited < _UNAVAILABLE_LIMIT_SECONDS:
                self.call_later(
                    _UNAVAILABLE_RETRY_SECONDS,
                    lambda: self._send(host, operation, arguments, buffers, on_done, first_try=first_try),
                )
                return
            on_done(Outcome(error=_translate(error, host, buffers)))

        reply.future().add_done_callback(answered)

    def kill(self, host: Host) -> None:
        """End the process with SIGKILL."""
        assert isinstance(host, RayHost)
        if host in self._hosts:
            self._hosts.remove(host)
            if ray.is_initialized():  # else Ray would start anew just for this
                ray.kill(host.handle, no_restart=True)

    def put(self, buffer: np.ndarray) -> BufferRef:
        """Into shared memory."""
        return ray.put(buffer)

    def fetch(self, buffer: BufferRef) -> np.ndarray:
        """A view of shared memory where the buffer lies on this node, else a copy."""
        try:
            data = ray.get(buffer, timeout=_FETCH_SECONDS)
        except (*_LOST, ray_errors.GetTimeoutError, ray_errors.RayActorError) as error:
            raise BufferLostError(f"a buffer is lost: {error}", buffer=buffer) from error
        assert isinstance(data, np.ndarray)
        return data

    def pods_of(self, role: str) -> list[str] | None:
        """Those that have joined Ray."""
        return self._places.pods_of(role) if self._places is not None else None

    def gpus(self) -> int:
        """The cluster's."""
        return int(ray.cluster_resources().get("GPU", 0))

    def now(self) -> float:
        """Wall-clock seconds."""
        return time.time()

    def pump(self, timeout: float) -> bool:
        """Wait for an answer or a timer."""
        due = self._next_timer()
        if due is not None:
            timeout = max(0.0, min(timeout, due - self.now()))
        try:
            news = self._news.get(timeout=timeout)
        except queue.Empty:
            news = None
        if news is not None:
            news()
        timer = self._due_timer()
        if timer is not None:
            timer.callback()
        return news is not None or timer is not None

    def close(self) -> None:
        """End our processes, and Ray itself where it is our own."""
        if self._closed:
            return
        self._closed = True
        self._news.put(None)
        if self._places is not None:
            self._places.close()
        if self._owns_ray:
            ray.shutdown()
            return
        for host in list(self._hosts):
            self.kill(host)


def _start_ray(address: str | None, object_store_bytes: int) -> None:
    if address:
        with _own_sigterm():
            namespace = os.environ.get(in_pod.JOB_VARIABLE)
            ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level="ERROR")
        return
    try:
        with _own_sigterm(), _same_imports():
            ray.init(
                address="local",  # not a cluster that somebody runs here, or that a file of Ray's still names
                num_cpus=os.cpu_count(),
                object_store_memory=object_store_bytes,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
    except Exception as error:  # Ray raises many types here; all mean the same to a user
        raise RlhfError(
            f"Ray could not be started on this machine; a busy one may need a second try: {error}"
        ) from error


@contextlib.contextmanager
def _same_imports() -> Iterator[None]:
    """What is started in here can import what this process can: worker classes lie wherever their user has them."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@contextlib.contextmanager
def _own_sigterm() -> Iterator[None]:
    """Ray sets a handler for SIGTERM that ends the process where it stands; what to do then is not Ray's to say."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


def _tell_no_deaths() -> None:
    """Keep Ray from printing guesses about a dead process into the terminal: the incident says what is known."""
    from ray._private import worker

    plain = worker.print_to_stdstream
    if getattr(plain, "without_deaths", False):
        return

    def without_deaths(data: dict[str, Any], *arguments: Any, **named: Any) -> None:
        lines = [line for line in data["lines"] if not line.startswith("A worker died or was killed")]
        if lines:
            plain({**data, "lines": lines}, *arguments, **named)

    without_deaths.without_deaths = True  # type: ignore[attr-defined]
    worker.print_to_stdstream = without_deaths


def _translate(error: BaseException, host: RayHost, buffers: Sequence[BufferRef]) -> BaseException:
    """Ray's many errors in our few."""
    cause = error.cause if isinstance(error, ray_errors.RayTaskError) else error
    if isinstance(cause, _LOST):
        named = getattr(cause, "object_ref_hex", None)
        lost = next((b for b in buffers if b is not None and b.hex() == named), None)
        return BufferLostError(f"a buffer is lost: {cause}", buffer=lost)
    if isinstance(cause, ray_errors.ActorUnavailableError):
        limit = _UNAVAILABLE_LIMIT_SECONDS
        return HostDiedError(f"the process could not be reached for {limit:g} s", reason=FailureReason.NODE_LOST)
    if isinstance(cause, (ray_errors.RayActorError, ray_errors.WorkerCrashedError)):
        death = death_of(str(cause), host.log_file, since=host.log_start)
        return HostDiedError(death.message, reason=death.reason, exit_code=death.exit_code)
    return error
