"""What the containers of the cluster's own parts may do: next to nothing."""

from typing import Any


def restricted(**capabilities: list[str]) -> dict[str, Any]:
    """The security context of a container that needs neither root nor its own files, with ``add=[...]`` at most."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {**capabilities, "drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 65532,
    }
