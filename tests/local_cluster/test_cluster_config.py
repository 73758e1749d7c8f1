import ipaddress

import pytest

from e2e.cluster.config import FOUR_NODES, POD_RANGE, ClusterConfig, KubeRayConfig, NodeConfig
from e2e.cluster.errors import ClusterError


def test_a_configuration_survives_the_state_folder():
    config = ClusterConfig(node_loss="quick", kwok=3, kuberay=KubeRayConfig(cpu="none", concurrency=10))
    assert ClusterConfig.from_json(config.to_json()) == config


def test_every_node_has_addresses_of_its_own_inside_the_pod_range():
    ranges = [ipaddress.ip_network(node.pod_range) for node in FOUR_NODES]
    assert len({node.address for node in FOUR_NODES}) == len(set(ranges)) == 4
    assert all(found.subnet_of(ipaddress.ip_network(POD_RANGE)) for found in ranges)


def test_two_nodes_in_one_gpu_pool_one_in_a_second_one_for_cpus():
    pools = [node.pool for node in FOUR_NODES]
    assert sorted(pools) == ["cpu", "gpu-a", "gpu-a", "gpu-b"]
    assert all(bool(node.gpus) == node.pool.startswith("gpu") for node in FOUR_NODES)


def test_an_unknown_node_is_refused_with_the_names_that_there_are():
    with pytest.raises(ClusterError, match='no node "gpu-c-0"; the nodes are cpu-0, gpu-a-0'):
        ClusterConfig().node("gpu-c-0")


def test_nodes_are_found_by_their_pool():
    assert [node.name for node in ClusterConfig().pool("gpu-a")] == ["gpu-a-0", "gpu-a-1"]
    assert ClusterConfig(nodes=(NodeConfig(name="x", index=1, pool="cpu"),)).pool("gpu-a") == []
