"""Where things are in an API server."""

from __future__ import annotations

from urllib.parse import quote

from rlhf_api import API_VERSION

PLURAL = "rlhfjobs"
"""As in `rlhf_api.crd`, which is too heavy to import for a word."""


def jobs(namespace: str | None) -> str:
    """The jobs of a namespace, or of all."""
    return f"/apis/{API_VERSION}/{_within(namespace)}{PLURAL}"


def job(namespace: str, name: str) -> str:
    """One job."""
    return f"{jobs(namespace)}/{quote(name, safe='')}"


def core(namespace: str, plural: str) -> str:
    """Objects of the core group, such as `pods`."""
    return f"/api/v1/{_within(namespace)}{plural}"


def log(namespace: str, pod: str) -> str:
    """A pod's log."""
    return f"{core(namespace, 'pods')}/{quote(pod, safe='')}/log"


def _within(namespace: str | None) -> str:
    return f"namespaces/{quote(namespace, safe='')}/" if namespace else ""
