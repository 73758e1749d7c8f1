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
from rlhf_operator.manifests.objects import at_the_places_of

_ANXIOUS_SECONDS = 20.0
"""In place of `blind_seconds` for a job that does not work as it should, perhaps for want of such an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Applied:
    said: str
    became: str
    version: str
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
        self,
        key: JobKey,
        kind: Kind,
        manifest: Mapping[str, Any],
        living: Mapping[str, Any] | None,
        *,
        blind: bool,
        whole: bool,
    ) -> bool:
        """Whether applying would change nothing.

        Args:
            key: The job.
            kind: The object's kind.
            manifest: What would be applied.
            living: The object as it is; None if there is none, or it cannot be read.
            blind: Whether it cannot be read.
            whole: Whether the job works as it should.
        """
        last = self._applied.get(key, {}).get((kind, manifest["metadata"]["name"]))
        if blind:
            patience = self._blind_seconds if whole else min(_ANXIOUS_SECONDS, self._blind_seconds)
            recent = last is not None and self._clock() - last.at < patience
            return recent and last is not None and last.said == digest(manifest)
        if living is None:
            return False
        if last is None:
            return bool(at_the_places_of(manifest, living) == manifest)
        return last.said == digest(manifest) and last.became == digest(at_the_places_of(manifest, living))

    def remember(self, key: JobKey, kind: Kind, manifest: Mapping[str, Any], answer: Mapping[str, Any]) -> bool:
        """An object was applied, and the API server answered.

        Returns:
            Whether that changed anything, as far as is known.
        """
        known = self._applied.setdefault(key, {})
        before = known.get((kind, manifest["metadata"]["name"]))
        entry = _Applied(
            said=digest(manifest),
            became=digest(at_the_places_of(manifest, answer)),
            version=str(answer["metadata"].get("resourceVersion", "")),
            at=self._clock(),
        )
        known[kind, manifest["metadata"]["name"]] = entry
        return before is None or not entry.version or before.version != entry.version

    def forget(self, key: JobKey) -> None:
        """A job is gone."""
        self._applied.pop(key, None)


def digest(value: Any) -> str:
    """Of anything that JSON can hold; the same for the same content."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
