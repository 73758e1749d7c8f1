"""One HTTP client for all that the operator asks of the API server, with a limit on every request.

Objects are plain dictionaries: a model per kind would refuse what a newer API server adds, and costs memory. The
library gives the connection: certificates, tokens and their renewal, in a cluster or by kubeconfig.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from rlhf_api.apply_body import CONTENT_TYPE, apply_body
from rlhf_operator.kube.errors import ApiError, LostLeaseError, Unreachable
from rlhf_operator.kube.kinds import Kind

FIELD_MANAGER = "rlhf-operator"
REQUEST_SECONDS = 15.0
_PAGE = "500"


async def load_configuration(context: str | None = None) -> Configuration:
    """How to reach the API server: as the pod's service account, else by the user's kubeconfig.

    Raises:
        Unreachable: There is neither.
    """
    configuration = Configuration()
    try:
        if "KUBERNETES_SERVICE_HOST" in os.environ and context is None:
            config.load_incluster_config(configuration)
        else:
            await config.load_kube_config(context=context, client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        raise Unreachable(
            f"no cluster is configured: {error}; run in a pod with a service account, or set `KUBECONFIG`"
        ) from error
    configuration.connection_pool_maxsize = 64
    return configuration


class KubeClient:
    """Requests to the API server.

    Args:
        configuration: How to reach it.
        may_write: Asked before every change; False once another replica may have become the leader.
    """

    def __init__(self, configuration: Configuration, *, may_write: Callable[[], bool] = lambda: True) -> None:
        self.api = ApiClient(configuration)
        self.api.user_agent = FIELD_MANAGER
        self._host = str(configuration.host).rstrip("/")
        self._may_write = may_write

    async def close(self) -> None:
        """Close the connections."""
        await self.api.close()

    async def get(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any] | None:
        """One object; None if there is none of this name."""
        try:
            return await self.request("GET", kind.path(namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self,
        kind: Kind,
        namespace: str | None,
        *,
        labels: str = "",
        fields: str = "",
        metadata_only: bool = False,
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        """All objects that match, or the first `limit` of them. The items say neither kind nor version.

        Args:
            kind: Of what.
            namespace: Where; None: everywhere.
            labels: A label selector.
            fields: A field selector.
            metadata_only: Leave out all but the metadata.
            limit: At most so many.
        """
        headers = {}
        if metadata_only:
            headers["Accept"] = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        found: list[dict[str, Any]] = []
        token = ""
        while True:
            query = {"limit": str(limit or _PAGE), "labelSelector": labels, "fieldSelector": fields, "continue": token}
            page = await self.request("GET", kind.path(namespace), query=query, headers=headers)
            found += page.get("items") or []
            token = page.get("metadata", {}).get("continue", "")
            if not token or limit is not None:
                return found

    async def apply(self, manifest: Mapping[str, Any], kind: Kind, *, subresource: str = "") -> dict[str, Any]:
        """Apply an object, server-side; what others changed of it is taken back."""
        meta = manifest["metadata"]
        return await self.request(
            "PATCH",
            kind.path(meta["namespace"], meta["name"], subresource=subresource),
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
            headers={"Content-Type": CONTENT_TYPE},
            body=apply_body(manifest),
        )

    async def create(self, manifest: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
        """Create an object."""
        path = kind.path(manifest["metadata"]["namespace"])
        return await self.request("POST", path, query={"fieldManager": FIELD_MANAGER}, body=manifest)

    async def merge(self, kind: Kind, namespace: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change some fields of an object."""
        headers = {"Content-Type": "application/merge-patch+json"}
        return await self.request("PATCH", kind.path(namespace, name), headers=headers, body=body)

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None
    ) -> dict[str, Any] | None:
        """Delete an object if it is the one with this UID.

        Returns:
            What the API server says: often the object as it is now. None: it is gone already, or another has its name.
        """
        body: dict[str, Any] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            return await self.request("DELETE", kind.path(namespace, name), body=body)
        except ApiError as error:
            if error.status in (404, 409):
                return None
            raise

    async def serves(self, kind: Kind) -> bool:
        """Whether the cluster has a kind."""
        try:
            found = await self.request("GET", kind.root)
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        return any(resource["name"] == kind.plural for resource in found.get("resources", []))

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Any = None,
        seconds: float = REQUEST_SECONDS,
    ) -> dict[str, Any]:
        """One request and its answer.

        Raises:
            ApiError: The API server refuses, or cannot be reached (`Unreachable`).
            LostLeaseError: It would change something, but another replica may be the leader now.
        """
        if method != "GET" and not self._may_write():
            raise LostLeaseError("another replica may be the leader; nothing is changed any more")
        sent = {"Accept": "application/json", "User-Agent": self.api.user_agent, **(headers or {})}
        await self.api.update_params_for_auth(sent, [], ["BearerToken"], path, method, body)
        filled = {key: value for key, value in (query or {}).items() if value}
        url = self._host + path + (f"?{urlencode(filled)}" if filled else "")
        limit = aiohttp.ClientTimeout(total=seconds, sock_connect=min(5.0, seconds))
        try:
            answer = await self.api.rest_client.request(method, url, headers=sent, body=body, _request_timeout=limit)
            content: bytes = await answer.read()
        except TimeoutError as error:
            raise Unreachable(f"{method} {path}: no answer within {seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{method} {path}: the API server cannot be reached: {error}") from error
        if not 200 <= answer.status < 300:
            raise ApiError.of(method, path, status=answer.status, content=content)
        parsed: dict[str, Any] = json.loads(content)
        return parsed
