"""Logs as they are written, until the job ends.

    main thread: looks at the job and its pods every 2 s ─► a reader for each pod that is new
    reader:      log of one pod ─► queue; a connection that breaks is taken up after the last line
    main thread: queue ─► terminal

A pod that is replaced is announced, and its successor's log is followed under the same label. Nothing is read twice,
and nothing is left out that the node still has.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from typing import TYPE_CHECKING

import click

from rlhf_api import KIND
from rlhf_cli.cluster.errors import ClusterError, NotFoundError, RefusedError, SilenceError, UnreachableError
from rlhf_cli.job_view import end_of, is_leaving, is_over
from rlhf_cli.log_choice import Choice, Labels, cannot_start, nothing_there, present
from rlhf_cli.log_lines import Fresh, LogLine, Writer, parse
from rlhf_cli.options import FAILED
from rlhf_cli.pod_end import ended

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster, Object

LOOK_SECONDS = 2.0
GIVE_UP_SECONDS = 300.0
RETRY_SECONDS = 1.0
SILENCE_SECONDS = 60.0
"""A log that is silent may be of a node that is gone; asking anew costs nothing, since no line is lost or repeated."""


def follow_logs(cluster: Cluster, name: str, choice: Choice, *, tail: int | None, timestamps: bool) -> int | None:
    """Write logs until the job ends or is deleted; gives the exit code.

    Raises:
        ClusterError: There is no such job or role, or the API server refuses or is gone for long.
    """
    job = cluster.job(name)
    choice.check(job)
    return _Follower(cluster, job, choice, tail=tail, timestamps=timestamps).run()


class _Follower:
    def __init__(self, cluster: Cluster, job: Object, choice: Choice, *, tail: int | None, timestamps: bool) -> None:
        self._cluster, self._job, self._choice = cluster, job, choice
        self._name, self._uid = job["metadata"]["name"], job["metadata"]["uid"]
        self._tail: int | None = tail
        several = choice.everything or (
            choice.pod is None and choice.role is not None and _pods_wanted(job, choice) > 1
        )
        widest = [f"{role['name']}/0" for role in job["spec"]["roles"]] + ["controller/0"] if several else []
        self._writer = Writer(sys.stdout, labels=widest, timestamps=timestamps)
        self._labels = Labels()
        self._lines: queue.SimpleQueue[LogLine | ClusterError] = queue.SimpleQueue()
        self._readers: dict[str, threading.Thread] = {}
        self._pods: dict[str, tuple[str, str]] = {}
        """By UID: label and name of each pod that is or was read."""
        self._said: dict[str, str] = {}
        self._stop = threading.Event()

    def run(self) -> int | None:
        lost_since = None
        try:
            while True:
                try:
                    job = self._cluster.find(self._name)
                    pods = [] if job is None else self._cluster.pods(self._name)
                    lost_since = None
                except UnreachableError as error:
                    lost_since = lost_since or time.monotonic()
                    if time.monotonic() - lost_since > GIVE_UP_SECONDS:
                        raise
                    self._say("", f"{error}; trying again")
                    self._drain(LOOK_SECONDS)
                    continue
                if job is None or job["metadata"]["uid"] != self._uid:
                    self._finish()
                    self._say("", f"{KIND}/{self._name} was deleted")
                    return FAILED
                self._look(job, [pod for pod in pods if self._choice.covers(job, pod)])
                if end_of(job) is not None and not any(reader.is_alive() for reader in self._readers.values()):
                    return self._end(job)
                self._drain(LOOK_SECONDS)
        finally:
            self._stop.set()

    def _end(self, job: Object) -> int | None:
        self._finish()
        if not self._pods:
            raise ClusterError("\n".join(nothing_there(job, self._choice)))
        self._say("", f"{KIND}/{self._name} has ended ({end_of(job)})")
        return None

    def _look(self, job: Object, pods: list[Object]) -> None:
        here = {pod["metadata"]["uid"] for pod in pods}
        # A pod that leaves is read to its end, but its label is for its successor.
        staying = [pod for pod in present(pods) if not (is_leaving(pod) and pod["metadata"]["uid"] in self._readers)]
        shown = self._choice.pick(self._labels.give(staying))
        if not shown and end_of(job) is None and not any(reader.is_alive() for reader in self._readers.values()):
            self._say("", nothing_there(job, self._choice)[0])
        for label, pod in shown.items():
            uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
            if uid in self._readers:
                continue
            if reason := cannot_start(pod):
                self._say(label, f"pod {name} does not run yet: {reason}")
                continue
            before = [uid for uid, (known, _) in self._pods.items() if known == label]
            if any(uid not in here and self._readers[uid].is_alive() for uid in before):
                continue  # its last lines come first
            earlier = [self._pods[uid][1] for uid in before]
            if earlier:
                self._finish()  # how it ended is told first
                self._say(label, f"pod {earlier[-1]} is replaced by {name}")
            # Of a pod that was there first only the tail is wanted; of a successor everything is new.
            tail = self._tail if not earlier else None
            self._pods[uid] = (label, name)
            self._readers[uid] = threading.Thread(target=self._read, args=(label, pod, tail), daemon=True)
            self._readers[uid].start()

    def _read(self, label: str, pod: Object, tail: int | None) -> None:
        fresh, lost_since, how = Fresh(), None, None
        while not self._stop.is_set():
            since = fresh.last.second if fresh.last else None
            fresh.again()
            try:
                stream = self._cluster.log(
                    pod, follow=True, tail=None if since else tail, since=since, silence=SILENCE_SECONDS
                )
                for text in stream:
                    line = parse(text, label)
                    lost_since = None
                    if fresh.is_new(line):
                        self._lines.put(line)
                if how is None and (how := self._end_of(pod)):
                    continue  # what it wrote between the stream's end and its own
            except SilenceError:
                lost_since = None
                continue
            except NotFoundError:
                how = "is gone"
            except (RefusedError, UnreachableError) as error:  # a refusal: its container is not made yet
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > GIVE_UP_SECONDS:
                    self._lines.put(error)
                    return
                self._stop.wait(RETRY_SECONDS)
                continue
            except ClusterError as error:
                self._lines.put(error)
                return
            if how is not None:
                self._lines.put(LogLine(time="", text=f"pod {pod['metadata']['name']} {how}", label=f"!{label}"))
                return
            self._stop.wait(RETRY_SECONDS)

    def _end_of(self, pod: Object) -> str | None:
        """How a pod ended; None when it lives, and its stream was cut by the API server or the node."""
        uid = pod["metadata"]["uid"]
        found = next((one for one in self._cluster.pods(self._name) if one["metadata"]["uid"] == uid), None)
        if found is None:
            return "is gone"
        return ended(found, self._cluster.find(self._name)) if is_over(found) else None

    def _drain(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                self._take(self._lines.get(timeout=left))
            except queue.Empty:
                return

    def _finish(self) -> None:
        """Write what the readers have brought."""
        while not self._lines.empty():
            self._take(self._lines.get())

    def _take(self, line: LogLine | ClusterError) -> None:
        if isinstance(line, ClusterError):
            raise line
        if line.label.startswith("!"):
            self._say(line.label[1:], line.text)
        else:
            self._writer.write(line)

    def _say(self, label: str, text: str) -> None:
        """Tell of something beside the logs, once until it changes."""
        if self._said.get(label) != text:
            self._said[label] = text
            click.echo(f"--- {label}: {text}" if label else f"--- {text}", err=True)


def _pods_wanted(job: Object, choice: Choice) -> int:
    role = next(role for role in job["spec"]["roles"] if role["name"] == choice.role)
    return int(role.get("replicas", 1)) * int(role.get("podsPerReplica", 1))
