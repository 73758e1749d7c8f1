"""What `rlhf status` prints once."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from rlhf_api import API_VERSION, KIND
from rlhf_cli import render_job, terminal
from rlhf_cli.cluster.errors import NotAllowedError
from rlhf_cli.program import next_command

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster, Object


def show_jobs(cluster: Cluster, *, everywhere: bool) -> None:
    """Print the table of jobs."""
    jobs = cluster.jobs(everywhere=everywhere)
    if not jobs:
        where = "in any namespace" if everywhere else f'in namespace "{cluster.namespace}"'
        click.echo(f"There is no {KIND} {where}; start one with: {next_command('submit', 'FILE')}", err=True)
        return
    console = terminal.console()
    console.print(
        render_job.jobs_table(jobs, terminal.now(), with_namespace=everywhere, width=console.width), soft_wrap=True
    )


def show_job(cluster: Cluster, job: Object) -> None:
    """Print one job."""
    console = terminal.console()
    pods, events = surroundings(cluster, job)
    shown = render_job.job(job, now=terminal.now(), width=console.width, pods=pods, events=events)
    terminal.show(console, shown)


def show_objects(found: Object | Sequence[Object], *, as_yaml: bool) -> None:
    """Print the objects as the API server gives them, but for the bookkeeping of field managers."""
    if isinstance(found, dict):
        shown: Any = _plain(found)
    else:
        shown = {"apiVersion": API_VERSION, "kind": f"{KIND}List", "items": [_plain(job) for job in found]}
    if as_yaml:
        import yaml

        click.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(shown, indent=2, ensure_ascii=False))


def _plain(job: Object) -> Object:
    metadata = {key: value for key, value in job["metadata"].items() if key != "managedFields"}
    return {**job, "metadata": metadata}


def surroundings(cluster: Cluster, job: Object) -> tuple[list[Object] | None, list[Object] | None]:
    """The job's pods and events; None for what may not be read."""
    return _if_allowed(lambda: cluster.pods(job["metadata"]["name"])), _if_allowed(lambda: cluster.events(job))


def _if_allowed(read: Callable[[], list[Object]]) -> list[Object] | None:
    try:
        return read()
    except NotAllowedError:
        return None
