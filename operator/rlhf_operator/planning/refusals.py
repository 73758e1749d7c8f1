"""What could not be made for a job: refused by the API server to us, or to KubeRay."""

from __future__ import annotations

from collections.abc import Iterator

from rlhf_api.reasons import ConditionReason
from rlhf_operator.planning import pods
from rlhf_operator.planning.seen import Seen
from rlhf_operator.planning.snapshot import Refusal
from rlhf_operator.planning.trouble import Trouble, quota_of, sentence, text_of, time_of

_KUBERAY_FAILED = "FailedToCreate"
_OF_PODS = ("FailedToCreateHeadPod", "FailedToCreateWorkerPod")


def refused_objects(seen: Seen) -> Trouble | None:
    """Everything that is refused, as one: it is named in each condition that it may keep from being true."""
    found = [*refused_to_us(seen), *_of_kuberays(seen)]
    if not found:
        return None
    return Trouble(reason=found[0].reason, message=" ".join(trouble.message for trouble in found))


def refused_to_us(seen: Seen) -> Iterator[Trouble]:
    """What the API server did not take from the operator, one by one."""
    return map(_of_ours, seen.snapshot.refusals)


def _of_ours(refusal: Refusal) -> Trouble:
    what = f'{refusal.kind} "{refusal.name}"'
    said = sentence(refusal.message)
    match refusal.reason:
        case ConditionReason.NAME_TAKEN:
            message = said
        case ConditionReason.QUOTA_EXCEEDED:
            message = (
                f"The API server refuses {what}: {said} The ResourceQuota"
                f' "{quota_of(said)}" of the namespace must allow more.'
            )
        case _:
            message = (
                f"The API server refuses {what}: {said} It is tried again every half minute, and at once after a change"
                " of the manifest."
            )
    return Trouble(reason=refusal.reason, message=message)


def _of_kuberays(seen: Seen) -> Iterator[Trouble]:
    """What KubeRay could not make before the head's pod, such as the head's Service."""
    born = pods.created(seen.ray_cluster) if seen.ray_cluster is not None else None
    if born is None or seen.head is not None:
        return
    for event in reversed(seen.snapshot.warnings):
        reason = str(event.get("reason", ""))
        if not reason.startswith(_KUBERAY_FAILED) or reason in _OF_PODS or time_of(event) < born:
            continue
        said = sentence(text_of(event))
        message = f"KubeRay cannot make what the head needs ({reason}): {said}"
        if quota := quota_of(said):
            message += f' The ResourceQuota "{quota}" of the namespace must allow more.'
            yield Trouble(reason=ConditionReason.QUOTA_EXCEEDED, message=message)
        else:
            yield Trouble(reason=ConditionReason.OBJECT_REFUSED, message=message)
        return
