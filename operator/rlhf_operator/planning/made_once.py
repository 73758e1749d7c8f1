"""What is made once and never edited, since nearly all of it is immutable: the claim for state, the controller's Job.

Only owner and label are restored, when somebody took them away: without an owner they would outlive the job, without
a label they are not seen. A controller's Job that somebody suspended goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rlhf_api.formats import parse_time
from rlhf_api.names import JOB_LABEL
from rlhf_operator.manifests.controller_job import controller_job
from rlhf_operator.manifests.objects import at_the_places_of
from rlhf_operator.planning import pods
from rlhf_operator.planning.plan import Manifest
from rlhf_operator.planning.seen import Seen
from rlhf_operator.planning.snapshot import Object

_CLAIM = "PersistentVolumeClaim"


def with_claim(seen: Seen, children: Sequence[Manifest]) -> list[Manifest]:
    """The children to apply: a claim only if it is missing, or is to have its owner again."""
    made = []
    for child in children:
        living = seen.claim if child["kind"] == _CLAIM else None
        found = child if living is None else _put_right(seen, child, living)
        made += [found] if found is not None else []
    return made


def controller(seen: Seen) -> list[Manifest]:
    """The controller's Job, if it is to be applied.

    Not before there is a head: the first pods that a quota admits are then those without which nothing works, and a
    controller that is older than its head is known to have lost one.
    """
    living = seen.snapshot.controller_job
    if living is None and seen.head is None:
        return []
    ours = controller_job(seen.snapshot.job, seen.settings)
    found = ours if living is None else _put_right(seen, ours, living)
    return [found] if found is not None else []


def is_of_former_job(seen: Seen, item: Object) -> bool:
    """Whether an object was left by a deleted job of this name, as `kubectl delete --cascade=orphan` does."""
    made, begin = pods.created(item), _begin(seen)
    owned = pods.owned_by(item, seen.snapshot.job.metadata.uid or "")
    return not owned and made is not None and begin is not None and made < begin


def _begin(seen: Seen) -> datetime | None:
    return parse_time(seen.snapshot.job.metadata.creation_timestamp)


def _put_right(seen: Seen, ours: Manifest, living: Object) -> Manifest | None:
    owned = pods.owned_by(living, seen.snapshot.job.metadata.uid or "")
    labelled = JOB_LABEL in (pods.metadata(living).get("labels") or {})
    suspended = bool((living.get("spec") or {}).get("suspend"))
    if (owned and labelled and not suspended) or pods.going(living) or is_of_former_job(seen, living):
        return None
    spec = at_the_places_of(ours["spec"], living.get("spec"))
    return {**ours, "spec": spec | {"suspend": False} if suspended else spec}
