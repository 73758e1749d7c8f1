"""The command: ``python -m e2e.cluster up``, behind ``make cluster-up`` and its siblings."""

import re
import signal
import sys
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from e2e.cluster import paths
from e2e.cluster.config import ClusterConfig, KubeRayConfig
from e2e.cluster.errors import CannotRunHereError, ClusterError
from e2e.cluster.faults import Faults
from e2e.cluster.steps import say, step


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except CannotRunHereError as error:
            click.secho(f"Cannot run here: {error}", fg="red", err=True)
            sys.exit(3)
        except ClusterError as error:
            click.secho(f"Error: {error}", fg="red", err=True)
            sys.exit(1)


def _quantity(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value and value != "none" and not re.fullmatch(r"[0-9]+(\.[0-9]+)?(m|[kMGT]i?)?", value):
        raise click.BadParameter(f'must be a quantity such as "2", "500m" or "1Gi", or "none", not "{value}"')
    return value


@click.group(cls=_Group)
def main() -> None:
    """A real Kubernetes on this machine: a control plane, four nodes, KubeRay. See docs/local-cluster.md."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


@main.command()
@click.option("--node-loss", type=click.Choice(["default", "quick"]), default="default", show_default=True)
@click.option("--kwok", type=click.IntRange(0, 5000), default=0, help="Fake nodes beside the real ones.")
@click.option("--no-network-policy", is_flag=True, help="Do without the agent that enforces NetworkPolicies.")
@click.option(
    "--kuberay-cpu",
    callback=_quantity,
    help='CPU limit of the KubeRay operator, or "none"; 100m as its manifests have it.',
)
@click.option(
    "--kuberay-memory",
    callback=_quantity,
    help='Memory limit of the KubeRay operator, or "none"; 512Mi as its manifests have it.',
)
@click.option("--kuberay-concurrency", type=click.IntRange(1, 100), default=1, show_default=True)
@click.option("--no-init-container", is_flag=True, help="KubeRay's worker pods do not wait for the head.")
def up(
    node_loss: Any,
    kwok: int,
    no_network_policy: bool,
    kuberay_cpu: str | None,
    kuberay_memory: str | None,
    kuberay_concurrency: int,
    no_init_container: bool,
) -> None:
    """Build what is missing and bring the cluster up; repeat it at will."""
    from e2e.cluster import lifecycle
    from e2e.cluster.up import up

    wanted = ClusterConfig(
        node_loss=node_loss,
        kwok=kwok,
        network_policy=not no_network_policy,
        kuberay=KubeRayConfig(
            cpu=kuberay_cpu,
            memory=kuberay_memory,
            concurrency=kuberay_concurrency,
            init_container=not no_init_container,
        ),
    )
    if wanted == ClusterConfig() and lifecycle.is_up():
        wanted = lifecycle.configuration()  # no option means: as it is
    with step("cluster-up, in all"):
        up(wanted)
    say(f"\nThe cluster is up; its kubectl context is {paths.CONTEXT}:")
    say(f"  export KUBECONFIG={paths.KUBECONFIG} PATH={paths.STATE / 'bin'}:$PATH")


@main.command()
def down() -> None:
    """End the cluster and leave nothing behind but the builds."""
    from e2e.cluster import lifecycle

    with lifecycle.locked(), step("cluster-down"):
        had = lifecycle.remove_everything()
    if not had:
        say("No cluster was up.")


@main.command()
def status() -> None:
    """Show what runs and where the logs are."""
    from e2e.cluster.status import show

    sys.exit(0 if show(Console()) else 1)


@main.command()
def build() -> None:
    """Build all programs and images, those of fake nodes too, without starting anything."""
    from e2e.cluster.up import build

    build(ClusterConfig(kwok=1))


@main.command("images")
def load_images() -> None:
    """Build our images anew if anything in them changed, and bring them to all nodes."""
    from e2e.cluster import images, lifecycle
    from e2e.cluster.up import load

    config = lifecycle.configuration()
    with step("build the images"):
        wanted = images.ensure_images({})
    load(wanted, config)


@main.command()
def sizes() -> None:
    """Show what the images weigh and how long they took to build."""
    from e2e.cluster import images

    table = Table(title=f"Images in {paths.cache_folder()}", title_justify="left")
    for name in ("image", "MiB", "built in s", "for new nodes"):
        table.add_column(name, justify="left" if name == "image" else "right")
    for figure in images.figures():
        seconds = "" if figure.build_seconds is None else f"{figure.build_seconds:.0f}"
        table.add_row(figure.reference, str(figure.bytes >> 20), seconds, "yes" if figure.current else "")
    console = Console()
    console.print(table)
    for names, unpacked in images.unpack_seconds().items():
        console.print(f"unpacked once for all nodes in {unpacked:.0f} s: {names}")


@main.command()
def prune() -> None:
    """Remove builds and images that this version of the project does not use."""
    from e2e.cluster import builds, images, lifecycle

    with lifecycle.locked():
        if lifecycle.is_up():
            raise ClusterError("the cluster uses them; end it with `make cluster-down` first")
        for path in builds.prune():
            say(f"removed {path}")
        images.prune()


@main.group()
def fault() -> None:
    """Break something, or mend it again."""


def _node_fault(name: str, method: str, text: str) -> None:
    @fault.command(name, help=text)
    @click.argument("node")
    def command(node: str) -> None:
        with step(f"{name} {node}"):
            getattr(Faults(), method)(node)


def _simple_fault(name: str, text: str) -> None:
    @fault.command(name, help=text)
    def command() -> None:
        with step(name):
            getattr(Faults(), name.replace("-", "_"))()


_node_fault("cut-power", "cut_power", "Kubelet, containerd and all containers of a node die at once.")
_node_fault("restore-power", "restore_power", "Switch the node on again, and wait until it is Ready.")
_node_fault("cut-network", "cut_network", "Pull a node's network cable; its containers go on.")
_node_fault("restore-network", "restore_network", "Plug the cable in again.")
_simple_fault("stop-api-server", "Stop the API server.")
_simple_fault("start-api-server", "Start it again, and wait until it is ready.")
_simple_fault("restart-api-server", "Stop and start the API server: every watch breaks.")
_simple_fault("stop-kuberay", "Stop the KubeRay operator.")
_simple_fault("start-kuberay", "Start the KubeRay operator again.")


@fault.command("kill")
@click.argument("pod", metavar="[NAMESPACE/]POD")
@click.option("--container", default="", help="Of that container; the pod's first one if not given.")
@click.option("--match", default="", help="The newest process whose command line contains this, not the main one.")
@click.option("--signal", "signal_name", default="KILL", show_default=True)
def kill(pod: str, container: str, match: str, signal_name: str) -> None:
    """Send a signal to a process of a container, from outside."""
    name = f"SIG{signal_name.upper().removeprefix('SIG')}"
    if name not in signal.Signals.__members__:
        raise click.BadParameter(
            f'"{signal_name}" is no signal; use KILL, TERM, STOP, SEGV, ...', param_hint="--signal"
        )
    namespace, _, name_of_pod = pod.rpartition("/")
    number = signal.Signals[name]
    pid = Faults().kill_process(
        namespace or "default", name_of_pod, container=container, match=match, signal_number=number
    )
    say(f"sent {name} to pid {pid} of {namespace or 'default'}/{name_of_pod}")


if __name__ == "__main__":
    main()
