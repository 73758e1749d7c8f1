"""The operator in the test cluster, installed as its users do: by Helm, from the chart and the image of this tree."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster import builds, kubectl, paths
from e2e.cluster.images.build import our_inputs
from e2e.cluster.shell import run

CHART = paths.PROJECT / "charts/rlhf-operator"
NAMESPACE = "rlhf-operator"
RELEASE = "rlhf-operator"
INSTALL_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Operator:
    """The installed release."""

    namespace: str = NAMESPACE

    def install(self, **values: Any) -> None:
        """`helm upgrade --install` with these values over those of the tests; returns when it is ready."""
        words: list[str | Path] = ["upgrade", "--install", RELEASE, CHART, "--create-namespace"]
        words += ["--wait", f"--timeout={INSTALL_SECONDS}s"]
        # The tag stays the same when the code changes, and Kubernetes would keep the old pod.
        code = {"podAnnotations": {"rlhf.dev/code": our_inputs("rlhf-operator")}}
        given = _merged(TEST_VALUES | code, values)
        run(
            [*helm(self.namespace), *words, "--values", "-"],
            stdin=json.dumps(given),
            timeout=INSTALL_SECONDS + 30,
        )

    def uninstall(self) -> None:
        """`helm uninstall`; what it leaves behind stays."""
        run([*helm(self.namespace), "uninstall", RELEASE, "--wait"], timeout=INSTALL_SECONDS)

    def kubectl(self, *words: str, timeout: float = 120) -> str:
        """Run kubectl in the operator's namespace."""
        return kubectl.kubectl(f"--namespace={self.namespace}", *words, timeout=timeout)

    def pods(self) -> list[dict[str, Any]]:
        """The operator's pods that are not on their way out."""
        found = json.loads(self.kubectl("get", "pods", "--output=json"))["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def leader(self) -> str:
        """The name of the pod that holds the lease; "" while none does."""
        leases = json.loads(self.kubectl("get", "leases", "--output=json"))["items"]
        return next((str(lease["spec"].get("holderIdentity") or "") for lease in leases), "")

    def logs(self) -> str:
        """What the operator has written."""
        return self.kubectl("logs", f"deployment/{RELEASE}", "--tail=-1")

    def scale(self, replicas: int) -> None:
        """Stop the operator (0) or start it again, and wait until that is so."""
        self.kubectl("scale", f"deployment/{RELEASE}", f"--replicas={replicas}")
        self.kubectl("rollout", "status", f"deployment/{RELEASE}", "--timeout=120s", timeout=150)
        if replicas == 0:
            self.kubectl("wait", "pods", "--all", "--for=delete", "--timeout=60s", timeout=90)


TEST_VALUES: dict[str, Any] = {
    "imageRegistry": "localhost",
    "image": {"tag": "dev"},
    "worker": {"image": {"tag": "dev", "pullPolicy": "IfNotPresent"}},
    "state": {"storageClass": "shared"},
}


def helm(namespace: str) -> list[str | Path]:
    """The Helm that was built with the cluster, for one namespace of it."""
    program = Path("helm") if paths.KIND else builds.find(builds.HELM).program("helm")
    return [program, "--kubeconfig", paths.KUBECONFIG, "--namespace", namespace]


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        merged[key] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged
