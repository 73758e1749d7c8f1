r"""The network: one namespace for the control plane ("the hub"), one per node, joined by a bridge in the hub.

::

    this machine         hub (control plane)                 node gpu-a-0
    rlhf-host ---------- v-host \
    198.51.100.254               br0 198.51.100.1 --- eth0 198.51.100.12 --- cni0 198.18.2.1 --- pods
                         v-gpu-a-0 /

Nothing is translated and nothing leads out: pods reach each other, the nodes and the API server, and no other network.
"""

from pathlib import Path

from e2e.cluster.config import HOST_ADDRESS, HUB_ADDRESS, POD_RANGE, ClusterConfig, NodeConfig
from e2e.cluster.errors import CannotRunHereError
from e2e.cluster.shell import run, succeeds

HUB = "rlhf-hub"
BRIDGE = "br0"
HOST_LINK = "rlhf-host"
PREFIX = "rlhf-"
_NAMESPACES = Path("/run/netns")
_BRIDGE_FILTER = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


def namespace(node: NodeConfig) -> str:
    """The name of a node's network namespace."""
    return PREFIX + node.name


def create_hub() -> None:
    """Make the hub, its bridge, and a link to it from this machine, so that `kubectl` works here.

    Raises:
        CannotRunHereError: the kernel cannot filter what passes a bridge.
    """
    _need_bridge_filter()
    run(["ip", "netns", "add", HUB])
    _ip(HUB, "link", "set", "lo", "up")
    _ip(HUB, "link", "add", BRIDGE, "type", "bridge")
    _ip(HUB, "addr", "add", f"{HUB_ADDRESS}/24", "dev", BRIDGE)
    _ip(HUB, "link", "set", BRIDGE, "up")
    _sysctl(HUB, "net.ipv4.ip_forward=1")
    run(["ip", "link", "add", HOST_LINK, "type", "veth", "peer", "name", "v-host", "netns", HUB])
    _ip(HUB, "link", "set", "v-host", "master", BRIDGE, "up")
    run(["ip", "addr", "add", f"{HOST_ADDRESS}/24", "dev", HOST_LINK])
    run(["ip", "link", "set", HOST_LINK, "up"])
    run(["ip", "route", "add", POD_RANGE, "via", HUB_ADDRESS])


def create_node(node: NodeConfig, config: ClusterConfig) -> None:
    """Make a node's namespace, join it to the bridge, and set the routes to all other nodes' pods."""
    name = namespace(node)
    run(["ip", "netns", "add", name])
    _ip(name, "link", "set", "lo", "up")
    _ip(HUB, "link", "add", _link(node), "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip(HUB, "link", "set", _link(node), "master", BRIDGE, "up")
    _ip(name, "addr", "add", f"{node.address}/24", "dev", "eth0")
    _ip(name, "link", "set", "eth0", "up")
    # Without an own default route kube-proxy finds no address of the node; the hub drops what it has no route for.
    _ip(name, "route", "add", "default", "via", HUB_ADDRESS)
    _ip(HUB, "route", "replace", node.pod_range, "via", node.address)
    for other in config.nodes:
        if other.name != node.name:
            _ip(name, "route", "add", other.pod_range, "via", other.address)
    # Replies between two pods of one node would pass the bridge unseen, past the translation of service addresses.
    _sysctl(name, "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")


def delete_node(node: NodeConfig) -> None:
    """Remove a node's namespace, and with it its links, routes and packet filter rules, as a power cut would."""
    if namespace(node) in namespaces():
        run(["ip", "netns", "delete", namespace(node)])
    if succeeds(["nsenter", f"--net={_NAMESPACES / HUB}", "ip", "link", "show", _link(node)]):
        _ip(
            HUB, "link", "delete", _link(node)
        )  # else it goes when the kernel gets to it, maybe after its successor came


def set_link(node: NodeConfig, *, up: bool) -> None:
    """Plug in or pull the network cable of a node; pods on the same node still reach each other."""
    _ip(HUB, "link", "set", _link(node), "up" if up else "down")


def link_is_up(node: NodeConfig) -> bool:
    """Whether the node's network cable is plugged in."""
    line = run(["ip", "-netns", HUB, "-brief", "link", "show", _link(node)])
    return "UP" in line.split("<")[-1].split(",")


def namespaces() -> list[str]:
    """The names of this cluster's namespaces that exist."""
    return sorted(path.name for path in _NAMESPACES.glob(f"{PREFIX}*")) if _NAMESPACES.is_dir() else []


def delete_all() -> None:
    """Remove every namespace and link of the cluster, whatever made them."""
    for name in namespaces():
        run(["ip", "netns", "delete", name])
    if Path(f"/sys/class/net/{HOST_LINK}").exists():
        run(["ip", "link", "delete", HOST_LINK])
    # `ip netns add` binds the folder to itself when it makes the first one, which `is_mount` does not see.
    mounted = f" {_NAMESPACES} " in Path("/proc/mounts").read_text()
    if mounted and not any(_NAMESPACES.iterdir()):
        run(["umount", _NAMESPACES])


def _need_bridge_filter() -> None:
    if not _BRIDGE_FILTER.exists() and not succeeds(["modprobe", "br_netfilter"]):
        raise CannotRunHereError("the kernel module br_netfilter is needed: load it with `modprobe br_netfilter`")


def _link(node: NodeConfig) -> str:
    return f"v-{node.name}"


def _ip(netns: str, *words: str) -> None:
    run(["ip", "-netns", netns, *words])


def _sysctl(netns: str, *settings: str) -> None:
    run(["nsenter", f"--net={_NAMESPACES / netns}", "sysctl", "-qw", *settings])
