"""What goes wrong between the operator and the API server."""

from __future__ import annotations

import json
from typing import Any


class ApiError(Exception):
    """The API server refuses a request.

    Attributes:
        status: The HTTP status; 0 when there was no answer.
        reason: Kubernetes' word for it, such as `Forbidden`.
        causes: More such words, such as `NamespaceTerminating`.
        said: The message without what was asked for.
    """

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", causes: tuple[str, ...] = (), said: str = ""
    ) -> None:
        super().__init__(message)
        self.said = said or message
        self.status = status
        self.reason = reason
        self.causes = causes

    @classmethod
    def of(cls, method: str, path: str, *, status: int, content: bytes) -> ApiError:
        """From an answer, which something in front of the API server may have given."""
        try:
            parsed: Any = json.loads(content)
        except ValueError:
            parsed = None
        said: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
        message = str(said.get("message") or content[:200].decode(errors="replace") or "no reason given")
        causes = tuple(str(cause.get("reason", "")) for cause in (said.get("details") or {}).get("causes") or ())
        text = f"{message}{_hint(status, message)}"
        reason = str(said.get("reason") or "")
        return cls(f"{method} {path}: {status}: {text}", status=status, reason=reason, causes=causes, said=text)

    @property
    def kind(self) -> str:
        """One word for metrics."""
        return self.reason or (f"Http{self.status}" if self.status else "Unreachable")

    @property
    def refused(self) -> bool:
        """Whether the same request will be refused again, so that people should know."""
        return self.status in (400, 401, 403, 404, 405, 422)


class NameTakenError(ApiError):
    """An object of the name is there that was not made for the job; it is left alone."""

    def __init__(self, kind: str, name: str) -> None:
        text = (
            f'{kind} "{name}" is there already, and was not made for this job: it is left alone. Delete or rename it,'
            " or give the job another name."
        )
        super().__init__(text, reason="NameTaken")

    @property
    def refused(self) -> bool:
        """It stays there until somebody does something."""
        return True


class Unreachable(ApiError):  # noqa: N818 - a state, not a mistake
    """There was no answer."""


class LostLeaseError(Exception):
    """This replica is not the leader any more."""


class MissingRightError(Exception):
    """The operator cannot work with the rights it has."""


def _hint(status: int, message: str) -> str:
    if status == 401:
        return "; the operator's credentials must be valid: check its service account and token"
    if status == 403 and "cannot " in message and "resource" in message:
        return "; the operator's Role or ClusterRole must allow this (the chart's does)"
    return ""
