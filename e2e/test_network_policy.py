"""NetworkPolicies are enforced, on one node and across nodes, and no longer than they exist."""

import pytest

from e2e.cluster.errors import CommandError
from e2e.lab import Lab
from e2e.manifests import pod

SECONDS_TO_TAKE_EFFECT = 10
LOOK = "import socket, sys; socket.create_connection((sys.argv[1], 8080), timeout=2).close()"


def policy(name: str, **ingress_from: str) -> dict[str, object]:
    """Nothing may reach the pod "server", except pods with these labels."""
    rules = [{"from": [{"podSelector": {"matchLabels": ingress_from}}]}] if ingress_from else []
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": {"matchLabels": {"app": "server"}}, "policyTypes": ["Ingress"], "ingress": rules},
    }


def test_a_policy_cuts_pods_off_lets_named_ones_in_and_ends_when_it_is_deleted(lab: Lab) -> None:
    if not lab.config.network_policy:
        pytest.skip("the cluster was made without network policy")
    lab.run_pods(
        pod("server", "python3", "-m", "http.server", "8080", pool="gpu-b"),
        pod("near", pool="gpu-b"),
        pod("far", pool="cpu"),
        pod("friend", pool="gpu-a"),
    )
    server = lab.get("pod", "server")["status"]["podIP"]

    def reached_by() -> set[str]:
        return {name for name in ("near", "far", "friend") if _reaches(lab, name, server)}

    everyone = {"near", "far", "friend"}
    lab.wait("all reach the server", lambda: reached_by() == everyone, timeout=30)
    lab.apply(policy("nobody"))
    lab.wait("nobody reaches the server", lambda: not reached_by(), timeout=SECONDS_TO_TAKE_EFFECT)
    lab.apply(policy("friends", app="friend"))
    lab.wait("only the friend does", lambda: reached_by() == {"friend"}, timeout=SECONDS_TO_TAKE_EFFECT)
    lab.kubectl("delete", "networkpolicy", "--all")
    lab.wait("all reach it again", lambda: reached_by() == everyone, timeout=SECONDS_TO_TAKE_EFFECT)


def _reaches(lab: Lab, client: str, address: str) -> bool:
    try:
        lab.execute(client, "python3", "-c", LOOK, address)
    except CommandError:
        return False
    return True
