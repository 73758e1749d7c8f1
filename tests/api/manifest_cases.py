"""Good and bad manifests as data, for every judge: `rlhf validate` here, a real API server in the cluster tests.

A case is a complete manifest of one algorithm with some fields set or removed. `want_field` is the field that a
judge must name; the API server may name the list around it, or for a misspelt field its parent.
"""

import copy
import re
from dataclasses import dataclass, field
from typing import Any

import yaml

PPO: dict[str, Any] = {
    "apiVersion": "rlhf.dev/v1alpha1",
    "kind": "RLHFJob",
    "metadata": {"name": "job"},
    "spec": {
        "algorithm": {"name": "PPO", "totalSteps": 40},
        "model": {"builtin": {"name": "spelling-tiny"}},
        "data": {"procedural": {"dataset": "spell_backward"}},
        "roles": [
            {"name": "actor", "type": "Actor"},
            {"name": "critic", "type": "Critic"},
            {"name": "reward", "type": "Reward"},
            {"name": "reference", "type": "Reference"},
        ],
    },
}
GRPO: dict[str, Any] = copy.deepcopy(PPO) | {
    "spec": copy.deepcopy(PPO["spec"])
    | {
        "algorithm": {"name": "GRPO", "totalSteps": 40},
        "roles": [
            {"name": "actor", "type": "Actor"},
            {"name": "reward", "type": "Rule"},
            {"name": "reference", "type": "Reference"},
        ],
    }
}
CUSTOM: dict[str, Any] = copy.deepcopy(PPO) | {
    "spec": copy.deepcopy(PPO["spec"])
    | {
        "algorithm": {"name": "Custom", "totalSteps": 1, "custom": {"controllerClass": "my.flow:Best"}},
        "roles": [{"name": "judge", "type": "Custom", "worker": {"className": "my.workers:Judge"}}],
    }
}
ABSENT = object()


@dataclass(frozen=True, kw_only=True)
class Case:
    """One manifest and what a judge must say of it.

    Attributes:
        id: A sentence.
        base: The manifest to begin with.
        set: Fields to set, by path; `ABSENT` removes one, and an index past a list's end appends to it.
        want_field: The field that must be named; empty for a good manifest.
        want_message: A part of what `rlhf validate` must say.
    """

    id: str
    base: dict[str, Any] = field(default_factory=lambda: PPO)
    set: dict[str, Any] = field(default_factory=dict)
    want_field: str = ""
    want_message: str = ""

    @property
    def manifest(self) -> dict[str, Any]:
        return edited(self.base, self.set)

    @property
    def text(self) -> str:
        return yaml.safe_dump(self.manifest, sort_keys=False)


def edited(manifest: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of a manifest with fields set or removed; mappings on the way are made."""
    result = copy.deepcopy(manifest)
    for path, value in changes.items():
        parts = [int(part) if part.isdigit() else part for part in re.split(r"[.\[\]]+", path) if part]
        target: Any = result
        for part in parts[:-1]:
            target = target[part] if isinstance(part, int) else target.setdefault(part, {})
        last = parts[-1]
        if value is ABSENT:
            del target[last]
        elif isinstance(target, list) and last == len(target):
            target.append(copy.deepcopy(value))
        else:
            target[last] = copy.deepcopy(value)
    return result


SCORER = {"name": "scorer", "type": "Rule"}


@dataclass(frozen=True, kw_only=True)
class UpdateCase:
    """A change of a living object.

    Attributes:
        id: A sentence.
        set: What changes, as in a `Case`.
        base: The object as it was.
        want_field: The field that must be named; empty when the change is allowed.
        want_too: Fields that cannot but be named beside it.
    """

    id: str
    set: dict[str, Any]
    base: dict[str, Any] = field(default_factory=lambda: PPO)
    want_field: str = ""
    want_too: tuple[str, ...] = ()

    @property
    def changed(self) -> dict[str, Any]:
        return edited(self.base, self.set)
