"""Short questions to the API server over HTTP, for polling: a kubectl per look costs half a second of processor."""

import base64
import json
import ssl
import tempfile
import urllib.error
import urllib.request
from functools import lru_cache
from typing import Any

import yaml

from e2e.cluster import paths
from e2e.cluster.errors import ClusterError, RefusedError


def call(path: str, *, method: str = "GET", body: Any = None, content_type: str = "application/json") -> Any:
    """Send a request as the cluster's administrator; returns the answer's JSON.

    Raises:
        RefusedError: the API server refuses.
        ClusterError: it does not answer.
    """
    data = None if body is None else json.dumps(body).encode()
    server, opener = _connection(_kubeconfig())
    request = urllib.request.Request(
        server + path,
        data=data,
        method=method,
        headers={"Content-Type": content_type, "Accept": "application/json"},
    )
    try:
        with opener.open(request, timeout=10) as answer:
            text = answer.read().decode()
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        status = json.loads(text) if text.startswith("{") else {}
        raise RefusedError(f"{method} {path}: {error.code}: {text[:500]}", status) from error
    except OSError as error:
        raise ClusterError(f"the API server does not answer: {error}") from error
    return json.loads(text) if text.startswith(("{", "[")) else text


def ready() -> bool:
    """Whether the API server answers that it is ready."""
    try:
        return bool(call("/readyz") == "ok")
    except ClusterError:
        return False


def is_ready(item: dict[str, Any], condition: str = "Ready") -> bool:
    """Whether an object has a condition with status True."""
    conditions = item.get("status", {}).get("conditions", [])
    return any(found["type"] == condition and found["status"] == "True" for found in conditions)


def nodes() -> dict[str, dict[str, Any]]:
    """All nodes by name."""
    return {node["metadata"]["name"]: node for node in call("/api/v1/nodes")["items"]}


def _kubeconfig() -> str:
    """Changes with every cluster, so that a connection made for an earlier one is not used again."""
    try:
        return paths.KUBECONFIG.read_text()
    except FileNotFoundError as error:
        raise ClusterError("no cluster is up on this machine; `make cluster-up` starts one") from error


@lru_cache(maxsize=1)
def _connection(kubeconfig: str) -> tuple[str, urllib.request.OpenerDirector]:
    content = yaml.safe_load(kubeconfig)
    cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
    context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as certificate:  # Python reads a client's certificate from files only
        certificate.write(base64.b64decode(user["client-certificate-data"]) + b"\n")
        certificate.write(base64.b64decode(user["client-key-data"]))
        certificate.flush()
        context.load_cert_chain(certificate.name)
    # The machine's proxy settings must not apply: the address exists only here.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    return cluster["server"], opener
