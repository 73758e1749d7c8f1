"""What a cluster is made of, and the addresses that everything in it agrees on.

The ranges are those that are set aside for documentation and benchmarks, so that nothing here can be mistaken for a
real network: nodes in 198.51.100.0/24, pods of node N in 198.18.N.0/24, services in 198.19.0.0/16.
"""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from e2e.cluster.errors import ClusterError

HUB_ADDRESS = "198.51.100.1"
HOST_ADDRESS = "198.51.100.254"
POD_RANGE = "198.18.0.0/16"
SERVICE_RANGE = "198.19.0.0/16"
API_SERVICE_ADDRESS = "198.19.0.1"
DNS_SERVICE_ADDRESS = "198.19.0.10"
DNS_DOMAIN = "cluster.local"
API_SERVER = f"https://{HUB_ADDRESS}:6443"

GPU_RESOURCE = "nvidia.com/gpu"
"""A stand-in: the kubelet is told that it has these, and no device is behind them."""
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
POOL_LABEL = "pool"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One node: ``index`` gives its addresses, and a node with ``gpus`` has the GPU taint."""

    name: str
    index: int
    pool: str
    gpus: int = 0

    @property
    def address(self) -> str:
        """The address of the node itself."""
        return f"198.51.100.{10 + self.index}"

    @property
    def pod_range(self) -> str:
        """The addresses of the node's pods."""
        return f"198.18.{self.index}.0/24"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeRayConfig:
    """Options of the KubeRay operator; what is ``None`` or unchanged stays as its own manifests have it.

    ``cpu`` and ``memory`` are the container's limits (KubeRay's own: 100m and 512Mi; "none" lifts a limit),
    ``concurrency`` how many objects are reconciled at once, ``init_container`` whether worker pods get the container
    that waits for the head.
    """

    cpu: str | None = None
    memory: str | None = None
    concurrency: int = 1
    init_container: bool = True


FOUR_NODES = (
    NodeConfig(name="cpu-0", index=1, pool="cpu"),
    NodeConfig(name="gpu-a-0", index=2, pool="gpu-a", gpus=8),
    NodeConfig(name="gpu-a-1", index=3, pool="gpu-a", gpus=8),
    NodeConfig(name="gpu-b-0", index=4, pool="gpu-b", gpus=8),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """A whole cluster.

    ``node_loss`` says how soon a silent node counts as lost: "default" is Kubernetes' own (a status every 10 s, lost
    after 50 s), "quick" a status every 3 s and lost after 12 s. ``kwok`` is the number of fake nodes for scale tests.
    """

    nodes: tuple[NodeConfig, ...] = FOUR_NODES
    node_loss: Literal["default", "quick"] = "default"
    kwok: int = 0
    network_policy: bool = True
    kuberay: KubeRayConfig = field(default_factory=KubeRayConfig)

    def node(self, name: str) -> NodeConfig:
        """The node of that name.

        Raises:
            ClusterError: there is none.
        """
        for node in self.nodes:
            if node.name == name:
                return node
        names = ", ".join(node.name for node in self.nodes)
        raise ClusterError(f'there is no node "{name}"; the nodes are {names}')

    def pool(self, name: str) -> list[NodeConfig]:
        """The nodes of a pool."""
        return [node for node in self.nodes if node.pool == name]

    def to_json(self) -> str:
        """As text, for the state folder."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "ClusterConfig":
        """The reverse of :meth:`to_json`."""
        values: dict[str, Any] = json.loads(text)
        values["nodes"] = tuple(NodeConfig(**node) for node in values["nodes"])
        values["kuberay"] = KubeRayConfig(**values["kuberay"])
        return cls(**values)
