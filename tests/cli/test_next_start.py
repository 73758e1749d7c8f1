"""Which changes of a living job wait for its controller's next start."""

import copy
from typing import Any

import cluster_jobs as cases
import pytest

from rlhf_api.rules import check_update
from rlhf_api.types import RLHFJob
from rlhf_cli.differences import differences
from rlhf_cli.next_start import fields_at_start

WAIT = {
    "spec.algorithm.totalSteps": 60,
    "spec.algorithm.evaluation.everySteps": 5,
    "spec.state.snapshotEverySteps": 5,
    "spec.state.keep": 9,
    "spec.controller.resources.memory": "8Gi",
    "spec.roles.critic.restartPolicy.maxRestarts": 3,
}
AT_ONCE = {
    "spec.suspend": True,
    "spec.activeDeadlineSeconds": 60,
    "spec.ttlSecondsAfterFinished": 60,
    "spec.roles.reward.replicas": 3,
    "spec.roles.critic.resources.memory": "4Gi",
    "spec.roles.critic.nodePool.nodeSelector.pool": "a100",
    "spec.image.name": "mine:2",
}


def changed(field: str, value: Any) -> tuple[Any, Any]:
    """The example as an API server fills it, before and after a change."""
    manifest = copy.deepcopy(cases.MANIFEST)
    before = RLHFJob.model_validate(manifest).model_dump(by_alias=True, exclude_none=True, mode="json")
    after = copy.deepcopy(before)
    *parents, last = field.split(".")
    target = after
    for part in parents:
        if isinstance(target, list):
            target = next(item for item in target if item["name"] == part)
        else:
            target = target.setdefault(part, {})
    target[last] = value
    return before, after


@pytest.mark.parametrize("field", [*WAIT, *AT_ONCE])
def test_a_field_waits_or_acts_at_once_and_may_be_changed_at_all(field: str) -> None:
    before, after = changed(field, (WAIT | AT_ONCE)[field])
    found = fields_at_start(differences({"spec": before["spec"]}, {"spec": after["spec"]}))
    assert found == ([field] if field in WAIT else [])
    assert list(check_update(RLHFJob.model_validate(before), RLHFJob.model_validate(after))) == []


def test_a_part_that_was_absent_is_named_as_a_whole() -> None:
    assert fields_at_start(differences({"spec": {}}, {"spec": {"state": {"keep": 9}}})) == ["spec.state"]
