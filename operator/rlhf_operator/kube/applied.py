"""Remembers what was applied, so that a look at a job that is as it should be sends nothing.

An object is left alone if what we would say of it is there already. The API server writes some values in its own way
(`1024Mi` becomes `1Gi`), so what counts after an apply is what its answer had at the places of which we spoke: as
long as these are unchanged, nobody has touched the object. Kinds that the operator may not read are applied again
once in a while instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rlhf_operator.kube.kinds import Kind
from rlhf_operator.kube.store import JobKey


@dataclass(frozen=True, slots=True, kw_only=True)
class _Applied:
    said: str
    became: str
    at: float


class Applied:
    """What was applied for each job.

    Args:
        clock: Of this process, seconds.
        blind_seconds: After this time an object that cannot be read is applied again.
    """

    def __init__(self, clock: Callable[[], float], *, blind_seconds: float) -> None:
        self._clock = clock
        self._blind_seconds = blind_seconds
        self._applied: dict[JobKey, dict[tuple[Kind, str], _Applied]] = {}

    def is_needless(
        self, key: JobKey, kind: Kind, manifest: Mapping[str, Any], living: Mapping[str, Any] | None, *, blind: bool
    ) -> bool:
        """Whether applying would change nothing.

        Args:
            key: The job.
            kind: The object's kind.
            manifest: What would be applied.
            living: The object as it is; None if there is none, or it cannot be read.
            blind: Whether it cannot be read.
        """
        last = self._applied.get(key, {}).get((kind, manifest["metadata"]["name"]))
        if blind:
            recent = last is not None and self._clock() - last.at < self._blind_seconds
            return recent and last is not None and last.said == _digest(manifest)
        if living is None:
            return False
        if last is None:
            return bool(_at_the_places_of(manifest, living) == manifest)
        return last.said == _digest(manifest) and last.became == _digest(_at_the_places_of(manifest, living))

    def remember(self, key: JobKey, kind: Kind, manifest: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """An object was applied, and the API server answered."""
        became = _digest(_at_the_places_of(manifest, answer))
        entry = _Applied(said=_digest(manifest), became=became, at=self._clock())
        self._applied.setdefault(key, {})[kind, manifest["metadata"]["name"]] = entry

    def forget(self, key: JobKey) -> None:
        """A job is gone."""
        self._applied.pop(key, None)


def _at_the_places_of(manifest: Any, living: Any) -> Any:
    """The part of the living object that a manifest speaks of."""
    if isinstance(manifest, Mapping) and isinstance(living, Mapping):
        return {key: _at_the_places_of(value, living.get(key)) for key, value in manifest.items()}
    if isinstance(manifest, list | tuple) and isinstance(living, list) and len(manifest) == len(living):
        return [_at_the_places_of(ours, theirs) for ours, theirs in zip(manifest, living, strict=True)]
    return living


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
