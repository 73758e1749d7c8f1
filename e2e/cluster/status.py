"""What runs, how much memory it takes, and where its logs are: what `make cluster-status` shows."""

from rich.console import Console
from rich.table import Table

from e2e.cluster import api, cgroups, lifecycle, network, paths, processes
from e2e.cluster.config import GPU_RESOURCE, ClusterConfig, NodeConfig
from e2e.cluster.nodes import process_name

MIB = 1024 * 1024


def show(console: Console) -> bool:
    """Print the state of the cluster; returns whether it is up and its API server answers."""
    if not paths.STATE.exists():
        console.print("No cluster is up on this machine. `make cluster-up` starts one.")
        return False
    answers = api.ready()
    console.print(_programs())
    if answers:
        console.print(_nodes())
    console.print(_summary(answers), soft_wrap=True, highlight=False)
    return answers


def _summary(answers: bool) -> str:
    if not lifecycle.is_complete():
        if lifecycle.is_busy():
            return "[yellow]Another command is bringing it up or down right now.[/]"
        return "[yellow]It was not brought up to the end.[/] `make cluster-up` starts over."
    if not answers:
        mend = ".venv/bin/python -m e2e.cluster fault start-api-server"
        return f"[red]The API server does not answer.[/] `{mend}` starts it again."
    fake = len(api.call("/api/v1/nodes?labelSelector=type%3Dkwok")["items"])
    lines = [f"{fake} fake nodes."] if fake else []
    lines.append(f"In all {cgroups.memory() // MIB} MiB of memory, without what the page cache holds.")
    return "\n".join([*lines, f"export KUBECONFIG={paths.KUBECONFIG} PATH={paths.STATE / 'bin'}:$PATH"])


def _programs() -> Table:
    table = Table(title=f"Programs (logs below {paths.STATE})", title_justify="left")
    for name in ("program", "pid", "state", "log"):
        table.add_column(name, justify="right" if name == "pid" else "left")
    for process in processes.known():
        running = process.running()
        state = "running" if running else "[red]stopped[/]"
        node = process.name.removeprefix("node-")
        log = f"nodes/{node}/log/" if node != process.name else f"logs/{process.name}.log"
        table.add_row(process.name, str(process.pid), state, log)
    return table


def _nodes() -> Table:
    table = Table(title="Nodes", title_justify="left")
    for name in ("node", "pool", "ready", "GPUs (stand-in)", "address", "pods", "MiB"):
        table.add_column(name, justify="right" if name in ("pods", "MiB", "GPUs (stand-in)") else "left")
    pods: dict[str, int] = {}
    for pod in api.call("/api/v1/pods")["items"]:
        name = pod["spec"].get("nodeName", "")
        pods[name] = pods.get(name, 0) + 1
    states = api.nodes()
    for node in _config().nodes:
        found = states.get(node.name, {})
        ready = api.is_ready(found)
        gpus = found.get("status", {}).get("allocatable", {}).get(GPU_RESOURCE, "0")
        memory = cgroups.memory(node.name) // MIB
        shown = _fault(node) or ("yes" if ready else "[red]no[/]")
        table.add_row(node.name, node.pool, shown, gpus, node.address, str(pods.get(node.name, 0)), str(memory))
    return table


def _fault(node: NodeConfig) -> str:
    """What was done to a node, which Kubernetes learns only after a while."""
    if not processes.find(process_name(node)).running():
        return "[red]no power[/]"
    return "" if network.link_is_up(node) else "[red]no network[/]"


def _config() -> ClusterConfig:
    return lifecycle.configuration() if lifecycle.is_complete() else ClusterConfig()
