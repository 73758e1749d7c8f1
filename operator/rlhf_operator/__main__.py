"""`python -m rlhf_operator`: the operator's process. Each option is also a variable, `RLHF_OPERATOR_...`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import click

from rlhf_operator.config import ProcessSettings, Settings

_SHORTEST_KEY = 32
_DEFAULTS = Settings(worker_image="")


@click.command(context_settings={"auto_envvar_prefix": "RLHF_OPERATOR", "show_default": True, "max_content_width": 110})
@click.option("--worker-image", required=True, help="Image of jobs whose manifest names none.")
@click.option("--worker-pull-policy", default="", help="Its pull policy; empty leaves it to Kubernetes.")
@click.option("--ray-version", default=_DEFAULTS.ray_version, help="Version of Ray in the worker image.")
@click.option(
    "--key-file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with at least 32 random bytes, from which the tokens of jobs are derived.",
)
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    help="Namespace to watch; may be repeated (in the variable: separated by spaces). None: all.",
)
@click.option(
    "--operator-namespace", default=None, help="Where the operator runs.  [default: the pod's, else rlhf-operator]"
)
@click.option("--state-storage-class", default=None, help="Class of claims made for jobs that name no place for state.")
@click.option("--state-access-mode", default=_DEFAULTS.state_access_mode, help="Access mode of these claims.")
@click.option("--state-size", default=_DEFAULTS.state_size, help="Size of these claims.")
@click.option("--network-policies/--no-network-policies", default=True, help="Make a NetworkPolicy for each job.")
@click.option("--pod-monitors/--no-pod-monitors", default=False, help="Make a PodMonitor for each job.")
@click.option("--pod-monitor-label", "pod_monitor_labels", multiple=True, metavar="KEY=VALUE", help="A label of these.")
@click.option(
    "--resync-seconds", type=click.FloatRange(min=10), default=300.0, help="Longest time between two looks at a job."
)
@click.option("--progress-seconds", type=click.FloatRange(min=1), default=10.0, help="The same, while it trains.")
@click.option("--leader-election/--no-leader-election", default=True, help="Work only while holding the lease.")
@click.option(
    "--lease-seconds", type=click.FloatRange(min=5), default=15.0, help="A lease not renewed so long is free."
)
@click.option("--workers", type=click.IntRange(min=1), default=8, help="Jobs that are looked at at the same time.")
@click.option(
    "--stuck-seconds", type=click.FloatRange(min=30), default=180.0, help="A look that takes longer fails liveness."
)
@click.option("--health-port", type=click.IntRange(1, 65535), default=8080, help="Port of /healthz and /readyz.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), default=9090, help="Port of /metrics.")
@click.option("--context", default=None, help="The kubeconfig's context, outside a cluster.")
@click.option("--identity", default=None, help="This replica's name.  [default: the host's name]")
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", help="Form of log lines.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
def main(
    *,
    worker_image: str,
    worker_pull_policy: str,
    ray_version: str,
    key_file: Path,
    namespaces: tuple[str, ...],
    operator_namespace: str | None,
    state_storage_class: str | None,
    state_access_mode: str,
    state_size: str,
    network_policies: bool,
    pod_monitors: bool,
    pod_monitor_labels: tuple[str, ...],
    resync_seconds: float,
    progress_seconds: float,
    leader_election: bool,
    lease_seconds: float,
    workers: int,
    stuck_seconds: float,
    health_port: int,
    metrics_port: int,
    context: str | None,
    identity: str | None,
    log_format: str,
    log_level: str,
) -> None:
    """Reconcile RLHFJobs into RayClusters with one worker group per role."""
    settings = Settings(
        worker_image=worker_image,
        worker_pull_policy=worker_pull_policy,
        ray_version=ray_version,
        namespaces=namespaces,
        operator_namespace=operator_namespace or _own_namespace(),
        key=_key(key_file),
        state_storage_class=state_storage_class or None,
        state_access_mode=state_access_mode,
        state_size=state_size,
        network_policies=network_policies,
        pod_monitors=pod_monitors,
        pod_monitor_labels=dict(map(_pair, pod_monitor_labels)),
        resync_seconds=resync_seconds,
        progress_seconds=progress_seconds,
    )
    process = ProcessSettings(
        identity=identity or os.environ.get("POD_NAME") or socket.gethostname(),
        leader_election=leader_election,
        lease_seconds=lease_seconds,
        renew_seconds=lease_seconds * 2 / 3,
        retry_seconds=max(1.0, lease_seconds * 2 / 15),
        workers=workers,
        stuck_seconds=stuck_seconds,
        health_port=health_port,
        metrics_port=metrics_port,
        context=context,
    )
    sys.exit(_run(settings, process, log_format=log_format, log_level=log_level))


def _run(settings: Settings, process: ProcessSettings, *, log_format: str, log_level: str) -> int:
    from rlhf_operator.kube.errors import LostLeaseError, MissingRightError
    from rlhf_operator.process import StartError, run
    from rlhf_operator.telemetry.logging import configure, log

    configure(form=log_format, level=log_level)
    try:
        asyncio.run(run(settings, process))
    except (StartError, MissingRightError, LostLeaseError) as error:
        log(str(error), level="error")
        return 1
    return 0


def _key(file: Path) -> bytes:
    key = file.read_bytes()
    if len(key) < _SHORTEST_KEY:
        raise click.BadParameter(
            f"must hold at least {_SHORTEST_KEY} random bytes, has {len(key)}; make one with `head -c 32 /dev/urandom`",
            param_hint="--key-file",
        )
    return key


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise click.BadParameter(f'must be KEY=VALUE, got "{text}"', param_hint="--pod-monitor-label")
    return key, value


def _own_namespace() -> str:
    file = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
    return file.read_text().strip() if file.exists() else _DEFAULTS.operator_namespace


if __name__ == "__main__":
    main(prog_name="rlhf-operator")
