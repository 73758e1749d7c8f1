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
from rlhf_cli import job_view
from rlhf_cli.cluster.errors import ClusterError, ConflictError, RefusedError
from rlhf_cli.differences import differences
from rlhf_cli.manifests import read_manifest
from rlhf_cli.options import FAILED
from rlhf_cli.program import next_command
from rlhf_cli.refusals import conflict_lines, refusal_lines

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
    def name(self) -> str:
        """The job's name."""
        return str(self.document.value["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        """The namespace that it names itself."""
        found = self.document.value["metadata"].get("namespace")
        return str(found) if found else None


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
    code = 0
    for manifest in manifests:
        try:
            _submit(home(cluster, manifest), manifest, dry_run=dry_run, force=force)
        except RefusedError as error:
            click.echo("\n".join(refusal_lines(error, manifest.document, manifest.source)), err=True)
            code = FAILED
        except ConflictError as error:
            click.echo("\n".join(conflict_lines(error, manifest.document, manifest.source)), err=True)
            code = FAILED
    return code


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


def _submit(cluster: Cluster, manifest: Manifest, *, dry_run: bool, force: bool) -> None:
    before = cluster.find(manifest.name)
    if before is None:
        cluster.apply(manifest.sent, dry_run=dry_run, force=force)
        _say(f'{KIND}/{manifest.name} created in namespace "{cluster.namespace}"', dry_run)
    else:
        after = cluster.apply(manifest.sent, dry_run=True, force=force)
        changed = differences(_written(before), _written(after))
        _refuse_after_end(before, changed)
        if changed and not dry_run:
            cluster.apply(manifest.sent, force=force)
        _say(f"{KIND}/{manifest.name} {'configured' if changed else 'unchanged'}", dry_run)
        for path, old, new in changed[:_MOST_DIFFERENCES]:
            click.echo(f"  {format_path(path)}: {old} -> {new}")
        if len(changed) > _MOST_DIFFERENCES:
            click.echo(f"  and {len(changed) - _MOST_DIFFERENCES} more")
    if not dry_run:
        click.echo(f"Next: {next_command('status', manifest.name, '--watch', namespace=manifest.namespace)}")


def _say(text: str, dry_run: bool) -> None:
    click.echo(f"{text} (dry run: nothing was changed)" if dry_run else text)


def _written(job: Object) -> dict[str, Any]:
    metadata: Mapping[str, Any] = job["metadata"]
    kept = {key: metadata[key] for key in ("labels", "annotations") if metadata.get(key)}
    return {"metadata": kept, "spec": job["spec"]}


def _refuse_after_end(job: Object, changed: Sequence[tuple[Path, str, str]]) -> None:
    end, name = job_view.end_of(job), job_view.name_of(job)
    if end is not None and any(path[0] == "spec" and path not in _ANY_TIME for path, _, _ in changed):
        raise ClusterError(
            f"{KIND}/{name} has ended ({end}), and a job that has ended does not start again: give the manifest "
            f"another name, or delete it first with: {next_command('delete', name)}"
        )
