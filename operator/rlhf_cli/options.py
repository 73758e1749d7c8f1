"""What every command against a cluster has: kubectl's options for which cluster, and one way to end with an error."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rlhf_cli.cluster.client import Cluster

FAILED, WRONG, INTERRUPTED = 1, 2, 130
_Command = TypeVar("_Command", bound=Callable[..., Any])
_DURATION = re.compile(r"(?=\d)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


class Duration(click.ParamType):  # type: ignore[type-arg]
    """`90s`, `10m` or `1h30m`, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """See `click.ParamType`."""
        found = _DURATION.fullmatch(str(value))
        if found is None:
            self.fail(f'must be written like "90s", "10m" or "1h30m"; got "{value}"', param, ctx)
        hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return float(hours * 3600 + minutes * 60 + seconds)


def timeout_option(default: str) -> Callable[[_Command], _Command]:
    """`--timeout`, for commands that wait."""
    return click.option(
        "--timeout", type=Duration(), default=default, show_default=True, metavar="TIME", help="Longest wait."
    )


def in_cluster(function: Callable[..., int | None]) -> Callable[..., None]:
    """Give a command its `Cluster` as first argument, and its result as exit code.

    Ctrl-C ends with 130; what the cluster does goes on without the command.
    """

    @click.option("--namespace", "-n", metavar="NAME", help="The namespace; by default that of the context.")
    @click.option("--context", metavar="NAME", help="The context of the kubeconfig; by default the current one.")
    @click.option("--kubeconfig", metavar="FILE", help="The kubeconfig; by default KUBECONFIG or ~/.kube/config.")
    @functools.wraps(function)
    def command(*, namespace: str | None, context: str | None, kubeconfig: str | None, **given: Any) -> None:
        from rlhf_cli.cluster.client import explained
        from rlhf_cli.cluster.errors import ClusterError

        try:
            cluster = connect(namespace=namespace, context=context, kubeconfig=kubeconfig)
            try:
                code = function(cluster, **given)
            finally:
                cluster.close()
        except ClusterError as error:
            click.echo(explained(error), err=True)
            code = FAILED
        except KeyboardInterrupt:
            click.echo("\nStopped looking; what runs in the cluster goes on", err=True)
            code = INTERRUPTED
        click.get_current_context().exit(code or 0)

    return command


def connect(*, namespace: str | None, context: str | None, kubeconfig: str | None) -> Cluster:
    """The cluster and namespace that the options name.

    Raises:
        ClusterError: They name none.
    """
    from rlhf_cli.cluster import kubeconfig as files
    from rlhf_cli.cluster.client import Cluster
    from rlhf_cli.cluster.http import Http

    access = files.load(kubeconfig=kubeconfig, context=context, namespace=namespace)
    return Cluster(Http(access), namespace=access.namespace)
