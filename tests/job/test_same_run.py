"""Which changes of a manifest a run in progress takes, and which make it another run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from rlhf_runtime.job.same_run import differences, fixed_part

MANIFEST: dict[str, Any] = {
    "metadata": {"name": "tiny"},
    "spec": {
        "algorithm": {
            "name": "GRPO",
            "totalSteps": 10,
            "seed": 0,
            "evaluation": {"everySteps": 0},
            "grpo": {"groupSize": 2},
        },
        "model": {"huggingFace": {"id": "org/model", "revision": "main"}},
        "data": {"files": {"train": ["a.jsonl"]}},
        "image": {"name": "worker:1"},
        "env": [{"name": "A", "value": "1"}],
        "roles": [
            {
                "name": "actor",
                "type": "Actor",
                "replicas": 1,
                "podsPerReplica": 1,
                "resources": {"cpu": "1"},
                "worker": {"className": "Auto"},
                "engine": {"rollout": "Auto"},
                "restartPolicy": {"maxRestarts": 3},
            },
            {"name": "reward", "type": "Rule", "replicas": 1, "podsPerReplica": 1, "worker": {"className": "Auto"}},
        ],
        "suspend": False,
    },
}


def changed(change: Callable[[dict[str, Any]], object]) -> list[str]:
    manifest = copy.deepcopy(MANIFEST)
    change(manifest["spec"])
    return differences(fixed_part(MANIFEST), fixed_part(manifest))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda spec: spec["algorithm"].update(totalSteps=99), id="more steps"),
        pytest.param(lambda spec: spec["algorithm"].update(evaluation={"everySteps": 5}), id="other evaluations"),
        pytest.param(lambda spec: spec.update(image={"name": "worker:2"}), id="another image"),
        pytest.param(lambda spec: spec.update(env=[]), id="other variables"),
        pytest.param(lambda spec: spec.update(suspend=True), id="suspended"),
        pytest.param(lambda spec: spec.update(activeDeadlineSeconds=5), id="a deadline"),
        pytest.param(lambda spec: spec.update(state={"snapshotEverySteps": 1}), id="more snapshots"),
        pytest.param(lambda spec: spec["roles"][0].update(resources={"cpu": "4"}), id="other resources"),
        pytest.param(lambda spec: spec["roles"][1].update(replicas=4), id="more replicas"),
        pytest.param(lambda spec: spec["roles"][0].update(podsPerReplica=2), id="more ranks of a model"),
        pytest.param(lambda spec: spec["roles"][0].update(nodePool={"nodeSelector": {"pool": "b"}}), id="another pool"),
        pytest.param(lambda spec: spec["roles"][0].update(image={"name": "actor:2"}), id="a role's image"),
        pytest.param(lambda spec: spec["roles"][0].pop("restartPolicy"), id="another restart policy"),
        pytest.param(lambda spec: spec["roles"][0].update(pod={"labels": {"a": "b"}}), id="a role's labels"),
    ],
)
def test_what_may_change(change: Callable[[dict[str, Any]], object]) -> None:
    assert changed(change) == []


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(lambda s: s["algorithm"].update(seed=1), ["`spec.algorithm.seed`"], id="another seed"),
        pytest.param(
            lambda s: s["algorithm"]["grpo"].update(groupSize=4), ["`spec.algorithm.grpo.groupSize`"], id="a group size"
        ),
        pytest.param(
            lambda s: s.update(model={"path": "/m"}), ["`spec.model.huggingFace`", "`spec.model.path`"], id="a model"
        ),
        pytest.param(lambda s: s["data"]["files"].update(train=["b.jsonl"]), ["`spec.data.files.train[0]`"], id="data"),
        pytest.param(lambda s: s["roles"].pop(), ["`spec.roles`"], id="a role less"),
        pytest.param(lambda s: s["roles"][1].update(type="Reward"), ["`spec.roles[1].type`"], id="a role's type"),
        pytest.param(
            lambda s: s["roles"][1]["worker"].update(className="judges:Mine"),
            ["`spec.roles[1].worker.className`"],
            id="a role's code",
        ),
        pytest.param(
            lambda s: s["roles"][0]["engine"].update(rollout="HuggingFace"),
            ["`spec.roles[0].engine.rollout`"],
            id="a role's engine",
        ),
        pytest.param(
            lambda s: s["roles"][1].update(colocateWith="actor"), ["`spec.roles[1].colocateWith`"], id="colocation"
        ),
    ],
)
def test_what_makes_it_another_run(change: Callable[[dict[str, Any]], object], want: list[str]) -> None:
    assert changed(change) == want
