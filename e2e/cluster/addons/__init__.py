"""What is installed into the cluster once its nodes are Ready: DNS, KubeRay, volumes, network policy, fake nodes.

Each module has its objects as dictionaries from pure functions; here they are applied together, by one kubectl, and
then awaited together.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from e2e.cluster import builds
from e2e.cluster.addons import dns, kuberay, kwok, network_policy, volumes
from e2e.cluster.addons.waiting import wait_available
from e2e.cluster.builds import Family
from e2e.cluster.config import ClusterConfig
from e2e.cluster.kubectl import apply
from e2e.cluster.steps import step

APPLY_SECONDS = 120
READY_SECONDS = 90


def programs(config: ClusterConfig) -> list[Family]:
    """The programs that are needed beside those of Kubernetes."""
    families = [builds.KUBERAY, builds.COREDNS, builds.LOCAL_PATH]
    families += [builds.KUBE_ROUTER] if config.network_policy else []
    return families + ([builds.KWOK] if config.kwok else [])


def images(config: ClusterConfig) -> Mapping[str, tuple[Path, str]]:
    """The images that hold one program: their names below ``localhost/``, the program, and where it lies in them."""
    ours = (
        (kuberay.IMAGE, builds.KUBERAY, "manager"),
        (dns.IMAGE, builds.COREDNS, "coredns"),
        (volumes.IMAGE, builds.LOCAL_PATH, "local-path-provisioner"),
    )
    return {
        image.removeprefix("localhost/"): (builds.find(family).program(program), f"/{program}")
        for image, family, program in ours
    }


def manifests(config: ClusterConfig, operator: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All objects of all parts; ``operator`` are those of KubeRay, as rendered."""
    return [
        *(network_policy.manifests() if config.network_policy else ()),
        *dns.manifests(),
        *kuberay.manifests(config.kuberay, operator),
        *volumes.manifests(),
        *kwok.manifests(config.kwok),
    ]


def install(config: ClusterConfig) -> None:
    """Install everything into a cluster whose nodes are Ready, and wait until all of it works.

    Raises:
        ClusterError: a part does not become ready; the message names the pod, the reason, and the end of its log.
    """
    with step("install DNS, KubeRay, volumes" + (f" and {config.kwok} fake nodes" if config.kwok else "")):
        if config.kwok:
            kwok.start()
        apply(*manifests(config, kuberay.rendered()), timeout=APPLY_SECONDS)
    waits: dict[str, Callable[[], None]] = {
        "wait for DNS": lambda: wait_available(dns.DEPLOYMENT, timeout=READY_SECONDS),
        "wait for the volume provisioner": lambda: wait_available(volumes.DEPLOYMENT, timeout=READY_SECONDS),
        "wait for the KubeRay operator": lambda: kuberay.wait(timeout=READY_SECONDS),
    }
    if config.kwok:
        waits[f"wait until {config.kwok} fake nodes are Ready"] = lambda: kwok.wait(config.kwok)
    with ThreadPoolExecutor(max_workers=len(waits)) as threads:
        running = [threads.submit(_wait, name, wait) for name, wait in waits.items()]
    for done in running:
        done.result()


def _wait(name: str, wait: Callable[[], None]) -> None:
    with step(name):
        wait()
