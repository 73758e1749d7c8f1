"""The logs of pods as they are now: one after the other in time, each line with its pod where there are several."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from rlhf_cli.cluster.errors import ClusterError, NotFoundError, RefusedError, UnreachableError
from rlhf_cli.job_view import is_over, log_place
from rlhf_cli.log_choice import (
    Choice,
    Labels,
    cannot_start,
    last_words,
    must_be_there,
    present,
)
from rlhf_cli.log_lines import LogLine, Writer, parse
from rlhf_cli.options import FAILED

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster, Object


def print_logs(
    cluster: Cluster, name: str, choice: Choice, *, tail: int | None, previous: bool, timestamps: bool
) -> int | None:
    """Print what is there; gives the exit code.

    Raises:
        ClusterError: There is nothing to print, or the API server refuses.
    """
    job = cluster.job(name)
    choice.check(job)
    pods = [pod for pod in cluster.pods(name) if choice.covers(job, pod)]
    if previous:
        return _print_previous(cluster, job, choice, pods, tail=tail, timestamps=timestamps)
    labelled = choice.pick(Labels().give(present(pods)))
    if not labelled:
        raise must_be_there(job, choice)
    waiting = {label: reason for label, pod in labelled.items() if (reason := cannot_start(pod))}
    for label, reason in waiting.items():
        click.echo(f"{label}: pod {labelled[label]['metadata']['name']} does not run yet: {reason}", err=True)
    speaking = {label: pod for label, pod in labelled.items() if label not in waiting}
    writer = Writer(sys.stdout, labels=list(labelled) if len(labelled) > 1 else (), timestamps=timestamps)
    streams = [_lines(cluster, label, pod, tail) for label, pod in speaking.items()]
    for line in heapq.merge(*streams, key=lambda line: line.time):
        writer.write(line)
    return None if speaking else FAILED


def _print_previous(
    cluster: Cluster, job: Object, choice: Choice, pods: list[Object], *, tail: int | None, timestamps: bool
) -> int | None:
    over = [pod for pod in pods if is_over(pod)]
    if len(over) == len(pods):  # the last one that ended is the present one
        over = over[:-1]
    if over:
        writer = Writer(sys.stdout, timestamps=timestamps)
        for line in _lines(cluster, "", over[-1], tail):
            writer.write(line)
        return None
    if words := last_words(job, choice.role):
        click.echo("\n".join(words))
        click.echo(f"The pod is gone; {log_place(job)}", err=True)
        return None
    raise ClusterError(f"no earlier pod of {choice.what} is left; {log_place(job)}")


def _lines(cluster: Cluster, label: str, pod: Mapping[str, Any], tail: int | None) -> Iterator[LogLine]:
    try:
        for text in cluster.log(pod, tail=tail):
            yield parse(text, label)
    except (NotFoundError, RefusedError, UnreachableError) as error:  # of one pod; the others' logs are there
        click.echo(f"{label or 'the log'}: pod {pod['metadata']['name']}: {error}", err=True)
