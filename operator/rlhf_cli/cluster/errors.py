"""What can go wrong between a command and a cluster, each with the message that the user sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ClusterError(Exception):
    """The message is for the user, with what to do next."""


class KubeconfigError(ClusterError):
    """There is no usable kubeconfig, context or credential."""


class UnreachableError(ClusterError):
    """The API server does not answer."""


class SilenceError(UnreachableError):
    """A stream that was open gave nothing for long; whether the other side is still there is not known."""


class ServerBusyError(UnreachableError):
    """The API server answers that it cannot now: 429 and 5xx."""


class NotAllowedError(ClusterError):
    """401 or 403."""


class CrdMissingError(ClusterError):
    """The cluster does not know RLHFJob."""


class NotFoundError(ClusterError):
    """404: there is no object of this name."""


class ConflictError(ClusterError):
    """409: somebody else changed the object, or owns a field of it."""

    def __init__(self, message: str, *, causes: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.causes = tuple(causes)


class ExpiredError(ClusterError):
    """410: what a watch wants to go on from is too long ago."""


class RefusedError(ClusterError):
    """400 or 422: the object or the change is not valid.

    Attributes:
        causes: What the server found, one `field`, `reason` and `message` for each.
    """

    def __init__(self, message: str, *, causes: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(message)
        self.causes = tuple(causes)


class WaitTimeoutError(ClusterError):
    """What was waited for did not come in time."""
