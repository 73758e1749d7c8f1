"""Changes of a living object, allowed and refused."""

from manifest_cases import ABSENT, SCORER, UpdateCase

UPDATES = (
    UpdateCase(id="more steps", set={"spec.algorithm.totalSteps": 80}),
    UpdateCase(id="more reward replicas", set={"spec.roles[2].replicas": 3}),
    UpdateCase(id="suspension", set={"spec.suspend": True}),
    UpdateCase(id="more memory for one role", set={"spec.roles[1].resources": {"memory": "8Gi"}}),
    UpdateCase(id="one more role", set={"spec.roles[4]": SCORER}),
    UpdateCase(
        id="another algorithm",
        set={"spec.algorithm.name": "GRPO", "spec.roles[1]": ABSENT},
        want_field="spec.algorithm.name",
    ),
    UpdateCase(id="another type of a role", set={"spec.roles[2].type": "Rule"}, want_field="spec.roles[2].type"),
    UpdateCase(
        id="more pods per replica", set={"spec.roles[0].podsPerReplica": 2}, want_field="spec.roles[0].podsPerReplica"
    ),
    UpdateCase(
        id="a role moved in with another",
        set={"spec.roles[3].colocateWith": "actor"},
        want_field="spec.roles[3].colocateWith",
    ),
    UpdateCase(id="another model", set={"spec.model": {"path": "/m"}}, want_field="spec.model"),
    UpdateCase(id="other data", set={"spec.data.procedural.trainSize": 9}, want_field="spec.data"),
    UpdateCase(
        id="another parameter of the data",
        set={"spec.data.procedural.parameters": {"min_word_len": 4}},
        want_field="spec.data",
    ),
    UpdateCase(id="another controller", set={"spec.managedBy": "example.com/other"}, want_field="spec.managedBy"),
    UpdateCase(
        id="another place of state", set={"spec.state.location": {"uri": "s3://b"}}, want_field="spec.state.location"
    ),
)
