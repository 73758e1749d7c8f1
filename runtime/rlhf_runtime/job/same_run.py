"""Whether a manifest still describes the run that a folder holds: exactly what its numbers depend on must be the same.

Images, variables, resources, replicas, nodes, deadlines and the like may change between two sessions of a run; random
numbers are counted by job, step and sample, so none of these changes what is computed. Nor does the number of a
model's ranks, but for the order in which floating-point numbers are added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_OF_THE_ALGORITHM = ("totalSteps", "evaluation")  # how far and how closely watched
_OF_A_ROLE = ("name", "type", "worker", "engine", "model", "colocateWith")


def fixed_part(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a manifest's `spec` that a resumed run cannot change."""
    spec: Mapping[str, Any] = manifest.get("spec", {})
    algorithm = {name: value for name, value in spec.get("algorithm", {}).items() if name not in _OF_THE_ALGORITHM}
    roles = [{name: role[name] for name in _OF_A_ROLE if name in role} for role in spec.get("roles", [])]
    return {"algorithm": algorithm, "model": spec.get("model"), "data": spec.get("data"), "roles": roles}


def differences(old: Any, new: Any, path: str = "spec") -> list[str]:
    """Where two manifests differ, as the paths of fields."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        names = sorted(old.keys() | new.keys())
        return [d for name in names for d in differences(old.get(name), new.get(name), f"{path}.{name}")]
    if isinstance(old, list | tuple) and isinstance(new, list | tuple) and len(old) == len(new):
        return [d for i, (a, b) in enumerate(zip(old, new, strict=True)) for d in differences(a, b, f"{path}[{i}]")]
    return [] if old == new else [f"`{path}`"]
