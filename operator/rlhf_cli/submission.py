"""What `rlhf submit` does with each job of a manifest.

What the user wrote is sent, not what was parsed from it: defaults stay the API server's, and a field that a manifest
does not name stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rlhf_api import KIND
from rlhf_api.document import Document, parse
from rlhf_api.errors import Path, format_path
from rlhf_api.validation import load_jobs
from rlhf_cli import job_view, next_start
from rlhf_cli.cluster.errors import ClusterError, ConflictError, RefusedError
from rlhf_cli.conflicts import conflict_lines
from rlhf_cli.differences import differences
from rlhf_cli.manifests import STDIN, read_manifest, source_name
from rlhf_cli.options import FAILED
from rlhf_cli.program import next_command
from rlhf_cli.refusals import refusal_lines

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster, Object

_MOST_DIFFERENCES = 12
_SERVERS_METADATA = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
)
_ANY_TIME: tuple[Path, ...] = (("spec", "ttlSecondsAfterFinished"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One job as the user wrote it, and where."""

    document: Document
    source: str

    @property
    def sent(self) -> dict[str, Any]:
        """What is sent: without what the server sets, which is in a manifest that was read from a cluster."""
        value: Mapping[str, Any] = self.document.value
        metadata = {key: found for key, found in value["metadata"].items() if key not in _SERVERS_METADATA}
        return {**{key: found for key, found in value.items() if key != "status"}, "metadata": metadata}

    @property
    def file(self) -> str:
        """The file as a command line names it."""
        return STDIN if self.source == source_name(STDIN) else self.source

    @property
    def name(self) -> str:
        """The job's name."""
        return str(self.document.value["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        """The namespace that it names itself."""
        found = self.document.value["metadata"].get("namespace")
        return str(found) if found else None


class _EndedError(Exception):
    """The job is over, and what the manifest changes cannot be changed any more."""


def read(file: str) -> list[Manifest]:
    """Read and check a file.

    Raises:
        ManifestError: It cannot be read, or is not valid.
    """

    def check(text: str, source: str) -> list[Manifest]:
        load_jobs(text, source=source)
        return [Manifest(document=document, source=source) for document in parse(text)]

    return read_manifest(file, check)


def submit_all(cluster: Cluster, manifests: Sequence[Manifest], *, dry_run: bool, force: bool) -> int:
    """Submit one after the other; one that is refused does not keep the others. Gives the exit code."""
    return max(_submit(home(cluster, manifest), manifest, dry_run=dry_run, force=force) for manifest in manifests)


def home(cluster: Cluster, manifest: Manifest) -> Cluster:
    """The namespace of one job: what `--namespace` says, else the manifest, else the context.

    Raises:
        ClusterError: The first two say different things.
    """
    chosen = click.get_current_context().params.get("namespace")
    if manifest.namespace is None or manifest.namespace == cluster.namespace:
        return cluster
    if chosen:
        raise ClusterError(
            f'{manifest.source}: {KIND}/{manifest.name} is for namespace "{manifest.namespace}", which must be what '
            f'`--namespace` says; got "{chosen}"'
        )
    return cluster.within(manifest.namespace)


def _submit(cluster: Cluster, manifest: Manifest, *, dry_run: bool, force: bool) -> int:
    before = cluster.find(manifest.name)
    ended = _ended(before, manifest) if before is not None else None
    try:
        if before is None:
            cluster.apply(manifest.sent, dry_run=dry_run, force=force)
            _say(f'{KIND}/{manifest.name} created in namespace "{cluster.namespace}"', dry_run)
        else:
            _change(cluster, manifest, before, dry_run=dry_run, force=force)
    except RefusedError as error:
        lines = refusal_lines(error, manifest.document, manifest.source)
    except ConflictError as error:
        again = next_command("submit", manifest.file, "--force-conflicts")
        lines = conflict_lines(error, manifest.document, manifest.source, living=before or {}, force=again)
    except _EndedError:
        lines = []
    else:
        if ended is not None:
            click.echo(ended)
        elif not dry_run:
            click.echo(f"Next: {next_command('status', manifest.name, '--watch', namespace=manifest.namespace)}")
        return 0
    click.echo("\n".join([ended, *lines] if ended is not None else lines), err=True)
    return FAILED


def _change(cluster: Cluster, manifest: Manifest, before: Object, *, dry_run: bool, force: bool) -> None:
    # Whose fields they are is no matter in a job that cannot be changed any more.
    after = cluster.apply(manifest.sent, dry_run=True, force=force or job_view.end_of(before) is not None)
    changed = differences(_written(before), _written(after))
    if job_view.end_of(before) and any(path[0] == "spec" and path not in _ANY_TIME for path, _, _ in changed):
        raise _EndedError
    if changed and not dry_run:
        cluster.apply(manifest.sent, force=force)
    _say(f"{KIND}/{manifest.name} {'configured' if changed else 'unchanged'}", dry_run)
    for path, old, new in changed[:_MOST_DIFFERENCES]:
        click.echo(f"  {format_path(path)}: {old} -> {new}")
    if len(changed) > _MOST_DIFFERENCES:
        click.echo(f"  and {len(changed) - _MOST_DIFFERENCES} more")
    if not dry_run and (said := next_start.advice(before, after, changed, namespace=manifest.namespace)):
        click.echo(said)


def _say(text: str, dry_run: bool) -> None:
    click.echo(f"{text} (dry run: nothing was changed)" if dry_run else text)


def _written(job: Object) -> dict[str, Any]:
    metadata: Mapping[str, Any] = job["metadata"]
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return {"metadata": kept, "spec": job["spec"]}


def _ended(job: Object, manifest: Manifest) -> str | None:
    """That a job is over, and how it can be run again; None while it is not."""
    end = job_view.end_of(job)
    if end is None:
        return None
    said = f"{KIND}/{manifest.name} has ended ({end}), and a job that has ended does not start again. "
    delete = next_command("delete", manifest.name, namespace=manifest.namespace)
    if job_view.keeps_claim(job):
        return f"{said}To run it again, give the manifest another name, or delete the job with its results: {delete}"
    return (
        f"{said}To run it from the beginning, give the manifest another name; to go on after its last step, delete "
        f"the job, which leaves its state, and submit it anew: {delete}"
    )
