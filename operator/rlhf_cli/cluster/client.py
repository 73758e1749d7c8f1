"""One namespace of one cluster, as the commands use it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlhf_api import KIND
from rlhf_api.apply_body import CONTENT_TYPE, apply_body
from rlhf_api.names import JOB_LABEL
from rlhf_cli.cluster import paths
from rlhf_cli.cluster.errors import ClusterError, CrdMissingError, NotAllowedError, NotFoundError, UnreachableError
from rlhf_cli.cluster.http import Http

Object = dict[str, Any]
FIELD_MANAGER = "rlhf"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


class Cluster:
    """Reads and changes the jobs of one namespace, and reads what belongs to them."""

    def __init__(self, http: Http, *, namespace: str) -> None:
        self.http = http
        self.namespace = namespace

    def close(self) -> None:
        """End the connections."""
        self.http.close()

    def within(self, namespace: str) -> Cluster:
        """Another namespace of the same cluster."""
        return Cluster(self.http, namespace=namespace)

    def jobs(self, *, everywhere: bool = False) -> list[Object]:
        """All jobs, by namespace and name."""
        found = self.http.request("GET", paths.jobs(None if everywhere else self.namespace))["items"]
        return sorted(found, key=lambda job: (job["metadata"]["namespace"], job["metadata"]["name"]))

    def job(self, name: str) -> Object:
        """One job.

        Raises:
            NotFoundError: There is none of this name; the message tells of those that may be meant.
        """
        try:
            return self.http.request("GET", paths.job(self.namespace, name))
        except CrdMissingError:
            raise
        except NotFoundError as error:
            raise NotFoundError(self._not_found(name)) from error

    def find(self, name: str) -> Object | None:
        """One job, or None."""
        try:
            return self.http.request("GET", paths.job(self.namespace, name))
        except NotFoundError:
            return None

    def apply(self, manifest: Mapping[str, Any], *, dry_run: bool = False, force: bool = False) -> Object:
        """Server-side apply with strict validation of fields."""
        query: dict[str, Any] = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        query |= {"force": "true"} if force else {}
        query |= {"dryRun": "All"} if dry_run else {}
        path = paths.job(self.namespace, manifest["metadata"]["name"])
        return self.http.request("PATCH", path, query=query, body=apply_body(manifest), content_type=CONTENT_TYPE)

    def patch(self, name: str, patch: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Object:
        """A merge patch, or a JSON patch where a list is given."""
        content_type = MERGE_PATCH if isinstance(patch, Mapping) else JSON_PATCH
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
        path = paths.job(self.namespace, name)
        return self.http.request("PATCH", path, query=query, body=patch, content_type=content_type)

    def delete(self, job: Mapping[str, Any]) -> None:
        """Delete a job, if it is still the one that was seen; what it owns goes after it."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": job["metadata"]["uid"]}}
        self.http.request("DELETE", paths.job(self.namespace, job["metadata"]["name"]), body=body)

    def pods(self, job: str) -> list[Object]:
        """The pods of a job, oldest first."""
        query = {"labelSelector": f"{JOB_LABEL}={job}"}
        found = self.http.request("GET", paths.core(self.namespace, "pods"), query=query)["items"]
        return sorted(found, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def events(self, job: Mapping[str, Any]) -> list[Object]:
        """The events about a job, in no order."""
        name, uid = job["metadata"]["name"], job["metadata"].get("uid")
        query = {"fieldSelector": f"involvedObject.kind={KIND},involvedObject.name={name}"}
        found = self.http.request("GET", paths.core(self.namespace, "events"), query=query)["items"]
        return [event for event in found if event["involvedObject"].get("uid") in (None, uid)]

    def log(
        self,
        pod: Mapping[str, Any],
        *,
        follow: bool = False,
        tail: int | None = None,
        since: str | None = None,
        silence: float = 60.0,
    ) -> Iterator[str]:
        """The lines of a pod's log, each with its time before it.

        Args:
            pod: The pod.
            follow: Go on with what comes.
            tail: Only so many of the last lines.
            since: Only lines from this second on.
            silence: Seconds without a line after which the stream is given up.
        """
        query: dict[str, Any] = {"timestamps": "true", "container": pod["spec"]["containers"][0]["name"]}
        query |= {"follow": "true"} if follow else {}
        query |= {"tailLines": tail} if tail is not None else {}
        query |= {"sinceTime": since} if since is not None else {}
        path = paths.log(self.namespace, pod["metadata"]["name"])
        yield from self.http.lines(path, query=query, silence=silence)

    def _not_found(self, name: str) -> str:
        text = f'there is no {KIND} "{name}" in namespace "{self.namespace}"'
        try:
            here = [job["metadata"]["name"] for job in self.jobs()]
            if near := difflib.get_close_matches(name, here, n=1, cutoff=0.6):
                return f'{text}; did you mean "{near[0]}"?'
            others = [job["metadata"]["namespace"] for job in self.jobs(everywhere=True)
                      if job["metadata"]["name"] == name]  # fmt: skip
        except (NotAllowedError, UnreachableError):
            others, here = [], []
        if others:
            return f"{text}, but in {', '.join(others)}: choose with `--namespace`"
        return f"{text}; there are: {', '.join(here[:8])}{', ...' if len(here) > 8 else ''}" if here else text


def explained(error: ClusterError) -> str:
    """An error as a line of its own."""
    text = str(error)
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() else text  # not the name of a field or file
