"""Remembers what the API server refused of each job, so that a plan can say it and nobody asks for it in a hot loop.

A refusal (a quota, an invalid field, a taken name) stands until somebody does something, so it is no error of a look:
the job is looked at as often as ever, and the refused object alone is tried again after a while, or when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rlhf_api.reasons import ConditionReason
from rlhf_operator.kube.applied import digest
from rlhf_operator.kube.errors import ApiError, NameTakenError
from rlhf_operator.kube.store import JobKey
from rlhf_operator.planning.plan import Manifest
from rlhf_operator.planning.snapshot import Refusal
from rlhf_operator.planning.trouble import quota_of

_FIRST_SECONDS = 2.0
_LONGEST_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Refused:
    asked: str
    refusal: Refusal
    times: int
    retry_at: float


class Refusals:
    """What was refused of each job.

    Args:
        clock: Of this process, seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._refused: dict[JobKey, dict[tuple[str, str], _Refused]] = {}

    def stands(self, key: JobKey, manifest: Manifest) -> bool:
        """Whether this very object was refused a moment ago, so that asking again is too early."""
        found = self._refused.get(key, {}).get(_name(manifest))
        return found is not None and self._clock() < found.retry_at and found.asked == digest(manifest)

    def add(self, key: JobKey, manifest: Manifest, error: ApiError) -> bool:
        """An object was refused.

        Returns:
            Whether that is news.
        """
        known = self._refused.setdefault(key, {})
        before = known.get(_name(manifest))
        kind, name = _name(manifest)
        refusal = Refusal(kind=kind, name=name, reason=_reason(error), message=error.said)
        times = before.times + 1 if before is not None else 0
        pause = min(_FIRST_SECONDS * 2.0 ** min(times, 10), _LONGEST_SECONDS)
        known[kind, name] = _Refused(
            asked=digest(manifest), refusal=refusal, times=times, retry_at=self._clock() + pause
        )
        return before is None or before.refusal != refusal

    def drop(self, key: JobKey, manifest: Manifest) -> None:
        """An object was taken after all."""
        self._refused.get(key, {}).pop(_name(manifest), None)

    def keep(self, key: JobKey, manifests: Iterable[Manifest]) -> None:
        """Forget the refusals of objects that are not wanted any more."""
        wanted = {_name(manifest) for manifest in manifests}
        kept = {name: found for name, found in self._refused.get(key, {}).items() if name in wanted}
        if kept:
            self._refused[key] = kept
        else:
            self.forget(key)

    def of(self, key: JobKey) -> tuple[Refusal, ...]:
        """What is refused of a job now, in the order in which it was first asked for."""
        return tuple(found.refusal for found in self._refused.get(key, {}).values())

    def due_in(self, key: JobKey) -> float | None:
        """Seconds until something that was refused is to be tried again; None when nothing was."""
        moments = [found.retry_at for found in self._refused.get(key, {}).values()]
        return max(min(moments) - self._clock(), 0.0) if moments else None

    def forget(self, key: JobKey) -> None:
        """A job is gone."""
        self._refused.pop(key, None)


def _name(manifest: Manifest) -> tuple[str, str]:
    return str(manifest["kind"]), str(manifest["metadata"]["name"])


def _reason(error: ApiError) -> ConditionReason:
    if isinstance(error, NameTakenError):
        return ConditionReason.NAME_TAKEN
    return ConditionReason.QUOTA_EXCEEDED if quota_of(error.said) else ConditionReason.OBJECT_REFUSED
