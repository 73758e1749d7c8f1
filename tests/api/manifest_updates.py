"""Changes of a living object, allowed and refused."""

from manifest_cases import ABSENT, CUSTOM, GRPO, PPO, SCORER, UpdateCase, edited

UPDATES = (
    UpdateCase(id="more steps", set={"spec.algorithm.totalSteps": 80}),
    UpdateCase(id="more reward replicas", set={"spec.roles[2].replicas": 3}),
    UpdateCase(id="suspension", set={"spec.suspend": True}),
    UpdateCase(id="more memory for one role", set={"spec.roles[1].resources": {"memory": "8Gi"}}),
    UpdateCase(id="fewer steps", set={"spec.algorithm.totalSteps": 20}),
    UpdateCase(id="evaluation more often", set={"spec.algorithm.evaluation": {"everySteps": 5}}),
    UpdateCase(
        id="another image and another pool for one role",
        set={
            "spec.roles[2].image": {"name": "registry.example/worker:2"},
            "spec.roles[2].nodePool": {"nodeSelector": {"pool": "l4"}},
        },
    ),
    UpdateCase(
        id="variables, deadlines, restart policy, head and controller",
        set={
            "spec.env": [{"name": "MODE", "value": "fast"}],
            "spec.roles[1].pod": {"env": [{"name": "MODE", "value": "safe"}]},
            "spec.activeDeadlineSeconds": 3600,
            "spec.roles[1].restartPolicy": {"maxRestarts": 3},
            "spec.head.resources": {"memory": "4Gi"},
            "spec.controller.maxRestarts": 3,
            "spec.state.keep": 5,
        },
    ),
    UpdateCase(id="defaults written out", set={"spec.algorithm.seed": 0, "spec.roles[0].engine": {"training": "Auto"}}),
    UpdateCase(
        id="roles in another order",
        set={"spec.roles": [PPO["spec"]["roles"][index] for index in (1, 0, 2, 3)]},
    ),
    UpdateCase(id="one more role", set={"spec.roles[4]": SCORER}, want_field="spec.roles"),
    UpdateCase(
        id="one role less",
        base=edited(PPO, {"spec.roles[4]": SCORER}),
        set={"spec.roles[4]": ABSENT},
        want_field="spec.roles",
    ),
    UpdateCase(id="a role renamed", set={"spec.roles[2].name": "judge"}, want_field="spec.roles"),
    UpdateCase(id="another seed", set={"spec.algorithm.seed": 1}, want_field="spec.algorithm.seed"),
    UpdateCase(
        id="another schedule", set={"spec.algorithm.schedule": "OneStepOff"}, want_field="spec.algorithm.schedule"
    ),
    UpdateCase(
        id="longer answers",
        set={"spec.algorithm.generation": {"maxNewTokens": 9}},
        want_field="spec.algorithm.generation",
    ),
    UpdateCase(
        id="another clip range",
        base=edited(PPO, {"spec.algorithm.ppo": {"clipRange": 0.2}}),
        set={"spec.algorithm.ppo.clipRange": 0.1},
        want_field="spec.algorithm.ppo",
    ),
    UpdateCase(
        id="hyperparameters where none were given",
        base=GRPO,
        set={"spec.algorithm.grpo": {"epochs": 2}},
        want_field="spec.algorithm.grpo",
    ),
    UpdateCase(
        id="another parameter of a custom algorithm",
        base=edited(CUSTOM, {"spec.algorithm.custom.parameters": {"beta": 0.5}}),
        set={"spec.algorithm.custom.parameters": {"beta": 0.6}},
        want_field="spec.algorithm.custom",
    ),
    UpdateCase(
        id="another reward function",
        base=edited(GRPO, {"spec.roles[1].worker": {"function": "my.rewards:exact"}}),
        set={"spec.roles[1].worker": {"function": "my.rewards:loose"}},
        want_field="spec.roles[1].worker",
    ),
    UpdateCase(
        id="another argument of a worker",
        base=edited(CUSTOM, {"spec.roles[0].worker.arguments": {"weight": 0.5}}),
        set={"spec.roles[0].worker.arguments": {"weight": 0.6}},
        want_field="spec.roles[0].worker",
    ),
    UpdateCase(
        id="another engine", set={"spec.roles[0].engine": {"rollout": "HuggingFace"}}, want_field="spec.roles[0].engine"
    ),
    UpdateCase(
        id="another model of one role", set={"spec.roles[2].model": {"path": "/m"}}, want_field="spec.roles[2].model"
    ),
    UpdateCase(
        id="another algorithm",
        base=edited(PPO, {"spec.algorithm": {"name": "Custom", "totalSteps": 1, "custom": {"controllerClass": "a:B"}}}),
        set={"spec.algorithm": {"name": "PPO", "totalSteps": 1}},
        want_field="spec.algorithm.name",
        want_too=("spec.algorithm.custom",),
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
