"""RLHFJobs as tests see them: applied, watched until a condition holds, and small variations of the examples."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import paths
from e2e.cluster.api import is_ready
from e2e.lab import Lab

EXAMPLES = paths.PROJECT / "examples"
START_SECONDS = 600
"""From a manifest to the first step; half of it was seen on two slow cores, most of it for making the models."""
QUICK_MODEL = {"builtin": {"name": "spelling-tiny", "supervisedSteps": 5, "supervisedExamples": 64}}
"""Made in seconds; it has not learned to spell."""


def example(name: str, **spec: Any) -> dict[str, Any]:
    """An example's manifest, with parts of its `spec` replaced."""
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    for key, value in spec.items():
        old = manifest["spec"].get(key)
        manifest["spec"][key] = old | value if isinstance(old, dict) and isinstance(value, dict) else value
    return manifest


def with_role(manifest: dict[str, Any], role: str, **changes: Any) -> dict[str, Any]:
    """The manifest with one of its roles changed."""
    changed = copy.deepcopy(manifest)
    for item in changed["spec"]["roles"]:
        if item["name"] == role:
            item.update(changes)
    return changed


class Job:
    """One RLHFJob in a test's namespace."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab = lab
        self.name = name

    def get(self) -> dict[str, Any]:
        """The object as it is."""
        return self.lab.get("rlhfjob", self.name)

    @property
    def status(self) -> dict[str, Any]:
        """Its status; empty while there is none."""
        status: dict[str, Any] = self.get().get("status", {})
        return status

    def condition(self, kind: str) -> dict[str, Any]:
        """A condition; empty while there is none."""
        return next((c for c in self.status.get("conditions", []) if c["type"] == kind), {})

    def wait(self, kind: str, status: str = "True", *, reason: str = "", timeout: float = START_SECONDS) -> str:
        """Wait for a condition, with this reason if one is given; returns its message."""

        def holds() -> dict[str, Any] | None:
            found = self.condition(kind)
            return found if found.get("status") == status and reason in ("", found.get("reason")) else None

        what = f"{self.name} is {kind}={status} {reason}".rstrip()
        try:
            return str(self.lab.wait(what, holds, timeout=timeout)["message"])
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.conditions()}") from None

    def wait_for(self, what: str, look: Callable[[dict[str, Any]], Any], *, timeout: float = START_SECONDS) -> Any:
        """Wait until something true is seen in the status."""
        return self.lab.wait(f"{self.name}: {what}", lambda: look(self.status), timeout=timeout)

    def wait_step(self, step: int, *, timeout: float = START_SECONDS) -> int:
        """Wait until this many steps are done."""
        return int(
            self.wait_for(f"step {step}", lambda status: _step(status) if _step(status) >= step else 0, timeout=timeout)
        )

    @property
    def step(self) -> int:
        """How many steps are done, as the status has it."""
        return _step(self.status)

    def role(self, name: str) -> dict[str, Any]:
        """A role's part of the status; empty while there is none."""
        return next((role for role in self.status.get("roles", []) if role["name"] == name), {})

    def suspend(self, wanted: bool) -> None:
        """Set `spec.suspend`."""
        patch = json.dumps({"spec": {"suspend": wanted}})
        self.lab.kubectl("patch", "rlhfjob", self.name, "--type=merge", f"--patch={patch}")

    def conditions(self) -> str:
        """All conditions, for a message."""
        return json.dumps(self.status.get("conditions", []), indent=1)

    def pods(self, role: str) -> list[dict[str, Any]]:
        """The living pods of a role, `head` or `controller`, oldest first."""
        label = "rlhf.dev/component" if role in ("head", "controller") else "rlhf.dev/role"
        found = self.lab.get("pods", f"--selector=rlhf.dev/job={self.name},{label}={role}")["items"]
        living = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
        return sorted(living, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def all_pods(self) -> list[dict[str, Any]]:
        """Every pod of the job, also those that are on their way out."""
        found: list[dict[str, Any]] = self.lab.get("pods", f"--selector=rlhf.dev/job={self.name}")["items"]
        return found

    def uids(self, *roles: str) -> dict[str, list[str]]:
        """The UIDs of the roles' ready pods."""
        return {role: [pod["metadata"]["uid"] for pod in self.pods(role) if is_ready(pod)] for role in roles}

    def logs(self, role: str) -> str:
        """What a role's first pod has written."""
        return self.lab.kubectl("logs", self.pods(role)[0]["metadata"]["name"], "--tail=-1")


def apply(lab: Lab, manifest: dict[str, Any] | Path) -> Job:
    """`kubectl apply` of a manifest as it is, with strict validation."""
    text = manifest.read_text() if isinstance(manifest, Path) else json.dumps(manifest)
    lab.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", stdin=text)
    return Job(lab, yaml.safe_load(text)["metadata"]["name"])


def _step(status: dict[str, Any]) -> int:
    return int(status.get("progress", {}).get("step", 0))


def quick(name: str, *, steps: int, **spec: Any) -> dict[str, Any]:
    """A GRPO job of three roles whose models are made in seconds and whose steps take a fraction of one."""
    manifest = example("grpo-spelling", **spec)
    manifest["metadata"] = {"name": name}
    manifest["spec"]["algorithm"] |= {"totalSteps": steps, "evaluation": {"everySteps": 0}}
    manifest["spec"]["algorithm"]["grpo"] |= {"promptsPerStep": 8, "groupSize": 2}
    manifest["spec"]["model"] = QUICK_MODEL
    manifest["spec"]["data"]["procedural"] |= {"trainSize": 256, "heldOutSize": 16}
    for role in manifest["spec"]["roles"]:
        role["resources"] = role.get("resources", {}) | {"cpu": "500m", "memory": "1536Mi"}
        role["replicas"] = 1
    return manifest
