"""Requests to an API server: JSON in and out, streams of lines, and one kind of error for each thing that goes wrong.

The `kubernetes` package gives the connection: certificates, tokens and their renewal, credential plugins, proxies. Its
typed models are not used: they would hide fields that they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlhf_cli.cluster.answers import error_of
from rlhf_cli.cluster.errors import KubeconfigError, SilenceError, UnreachableError

if TYPE_CHECKING:
    from rlhf_cli.cluster.kubeconfig import Access

CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 30.0


class Http:
    """A connection to one API server."""

    def __init__(self, access: Access, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        import urllib3
        from kubernetes.client import ApiClient

        retries: Any = urllib3.Retry(total=None, connect=0, read=0, other=0, redirect=2)
        access.configuration.retries = retries
        self.host = str(access.configuration.host)
        self.context = access.context
        self._client = ApiClient(access.configuration)
        self._answer_seconds = answer_seconds

    def close(self) -> None:
        """End the connections."""
        self._client.rest_client.close()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Send a request and give the answer's object.

        Raises:
            ClusterError: No answer, or one that refuses.
        """
        answer = self._send(method, path, query, body, content_type, self._answer_seconds)
        try:
            found = json.loads(self._read(answer))
        except ValueError as error:
            raise UnreachableError(f"{self.host} does not answer as an API server does; is it a proxy?") from error
        assert isinstance(found, dict)
        return found

    def lines(self, path: str, *, query: Mapping[str, Any], silence: float) -> Iterator[str]:
        """The lines of a stream as they come, without their ends; text that is not UTF-8 is shown as such.

        Args:
            path: What to read.
            query: Its parameters.
            silence: Seconds without any data after which the stream is given up.

        Raises:
            ClusterError: No answer, one that refuses, or a connection that breaks.
        """
        import urllib3

        answer = self._send("GET", path, query, None, "application/json", silence)
        buffer = b""
        try:
            for chunk in answer.stream(amt=None, decode_content=True):
                *whole, buffer = (buffer + chunk).split(b"\n")
                for line in whole:
                    yield line.decode(errors="replace")
            if buffer:
                yield buffer.decode(errors="replace")
        except (urllib3.exceptions.ReadTimeoutError, TimeoutError) as error:
            raise SilenceError(f"{self.host} has sent nothing for {silence:.0f} s") from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreachableError(f"the connection to {self.host} broke: {_cause(error)}") from error
        finally:
            answer.close()
            answer.release_conn()

    def _send(
        self, method: str, path: str, query: Mapping[str, Any] | None, body: Any, content_type: str, seconds: float
    ) -> Any:
        import urllib3
        from kubernetes.client import ApiException
        from kubernetes.config import ConfigException

        try:
            request = self._client.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
                _host=self.host,
            )
            answer: Any = self._client.call_api(*request, _request_timeout=(CONNECT_SECONDS, seconds)).response
        except ApiException as error:
            raise UnreachableError(self._untrusted(str(error.reason))) from error
        except ConfigException as error:
            raise KubeconfigError(f'the credentials of context "{self.context}" cannot be had: {error}') from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreachableError(self._unreachable(error)) from error
        if answer.status >= 400:
            raise error_of(answer.status, self._read(answer), path=path, host=self.host, context=self.context)
        return answer

    def _read(self, answer: Any) -> bytes:
        import urllib3

        try:
            return bytes(answer.data)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreachableError(self._unreachable(error)) from error

    def _unreachable(self, error: Exception) -> str:
        cause = _cause(error)
        if "CERTIFICATE" in cause or "SSL" in cause:
            return self._untrusted(cause)
        return (
            f'the API server {self.host} of context "{self.context}" cannot be reached: {cause}; check that the '
            "cluster is up, that this machine may reach it, and that this is the context you mean (`--context`)"
        )

    def _untrusted(self, cause: str) -> str:
        return (
            f'the API server {self.host} of context "{self.context}" cannot be trusted: '
            f"{' '.join(cause.split())}; the kubeconfig may be of an earlier cluster"
        )


def _cause(error: BaseException) -> str:
    """The innermost reason, without the client's own wrapping."""
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return _cause(reason)
    inner = error.__cause__
    if isinstance(inner, OSError) and inner.strerror:
        return inner.strerror.lower()
    name = type(error).__name__
    if "Timeout" in name:
        return "no answer in time"
    text = str(error)
    return text.rpartition("object at 0x")[2].partition(">: ")[2] or text or name
