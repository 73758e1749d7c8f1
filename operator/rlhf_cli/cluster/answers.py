"""The API server's refusals, translated into errors that say what to do."""

from __future__ import annotations

import json
import re
from typing import Any

from rlhf_api import GROUP, KIND
from rlhf_cli.cluster.errors import (
    ClusterError,
    ConflictError,
    CrdMissingError,
    ExpiredError,
    NotAllowedError,
    NotFoundError,
    RefusedError,
    ServerBusyError,
)
from rlhf_cli.cluster.paths import PLURAL

_DENIED = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\w+) resource "(?P<resource>[^"]*)"'
    r'(?: in API group "(?P<group>[^"]*)")?(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_READING = ("get", "list", "watch")
INSTALL = (
    "install the operator: helm install rlhf-operator charts/rlhf-operator --namespace rlhf-operator --create-namespace"
)


def error_of(code: int, body: bytes, *, path: str, host: str, context: str) -> ClusterError:
    """The error that an answer of 400 or above stands for.

    Args:
        code: The HTTP status.
        body: The answer's text, a `Status` object where the API server itself answers.
        path: What was asked for.
        host: The API server.
        context: The context of the kubeconfig, for messages.
    """
    status = _status(body)
    message = str(status.get("message") or body.decode(errors="replace").strip()[:300] or f"HTTP status {code}")
    details = status.get("details") or {}
    causes = details.get("causes") or ()
    match code:
        case 401:
            return NotAllowedError(
                f'the API server {host} does not accept the credentials of context "{context}"; they may have expired: '
                "log in again, then check with: kubectl auth whoami"
            )
        case 403:
            return NotAllowedError(_denied(message))
        case 404:
            return _not_found(message, details, path)
        case 409:
            return ConflictError(message, causes=causes)
        case 410:
            return ExpiredError(message)
        case 400 | 422:
            return RefusedError(message, causes=causes)
    if code == 429 or code >= 500:
        return ServerBusyError(f"the API server {host} cannot answer now ({code}): {message}")
    return ClusterError(f"the API server {host} answers {code}: {message}")


def _status(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _denied(message: str) -> str:
    found = _DENIED.search(message)
    if found is None:  # admission, such as a quota or a policy: its own words are best
        return f"the API server refuses it: {message}"
    resource = ".".join(part for part in (found["resource"], found["group"]) if part)
    where = f' in namespace "{found["namespace"]}"' if found["namespace"] else " in all namespaces"
    role = "view" if found["verb"] in _READING else "edit"
    scope = f"rolebinding NAME --namespace={found['namespace']}" if found["namespace"] else "clusterrolebinding NAME"
    return (
        f'user "{found["user"]}" must have the right to {found["verb"]} {resource}{where}; an administrator can give '
        f"it: kubectl create {scope} --clusterrole={role} --user={found['user']}"
    )


def _not_found(message: str, details: dict[str, Any], path: str) -> ClusterError:
    if details.get("kind") == "namespaces":
        name = details.get("name")
        return NotFoundError(f'there is no namespace "{name}"; make it with: kubectl create namespace {name}')
    if path.startswith(f"/apis/{GROUP}/") and not (details.get("kind") == PLURAL and details.get("name")):
        return CrdMissingError(f"this cluster does not know {KIND}, since its definition is not installed; {INSTALL}")
    return NotFoundError(message)
