"""Whether a part of a living RayCluster, a worker group or the head, is to be kept as it is.

It is, while the user has not changed what it was made from and nobody has changed it by hand. Both are read from hashes
in the annotations of its pod template, so that nothing else has to be remembered.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlhf_api import GROUP, names
from rlhf_api.types import RLHFJob
from rlhf_operator.manifests.parts import part_of, spec_hash

RENDERED_HASH_ANNOTATION = f"{GROUP}/rendered-hash"


def user_hash(job: RLHFJob, group: str) -> str:
    """The hash of what the user wrote about a group, `headgroup` being the head's."""
    return spec_hash(part_of(job, group))


def is_unchanged(job: RLHFJob, name: str, fields: Mapping[str, Any]) -> bool:
    """Whether the user's text is the one that a part was made from."""
    return bool(_annotations(fields).get(names.SPEC_HASH_ANNOTATION) == user_hash(job, name))


def kept(job: RLHFJob, name: str, living: Mapping[str, Any], *, fields: Sequence[str]) -> dict[str, Any] | None:
    """A copy of what is kept of a part; None if it is to be rendered.

    Args:
        job: The job.
        name: The group, `headgroup` being the head's.
        living: What holds the part; empty where there is none.
        fields: The fields that belong to it.
    """
    found = {field: copy.deepcopy(living[field]) for field in fields if field in living}
    if not found or not is_unchanged(job, name, found):
        return None
    return found if _annotations(found).get(RENDERED_HASH_ANNOTATION) == _digest(found) else None


def sealed(fields: dict[str, Any]) -> dict[str, Any]:
    """A rendered part, with the hash of all of it in its template."""
    _annotations(fields)[RENDERED_HASH_ANNOTATION] = _digest(fields)
    return fields


def _annotations(fields: Mapping[str, Any]) -> dict[str, str]:
    template = fields.get("headGroupSpec", fields)["template"]
    return template.get("metadata", {}).get("annotations") or {}


def _digest(fields: Mapping[str, Any]) -> str:
    unsealed = copy.deepcopy(dict(fields))
    _annotations(unsealed).pop(RENDERED_HASH_ANNOTATION, None)
    return hashlib.sha256(json.dumps(unsealed, sort_keys=True).encode()).hexdigest()[:16]
