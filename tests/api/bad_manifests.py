"""Manifests that every judge must refuse, with the field that it must name."""

from typing import Any

from manifest_cases import ABSENT, CUSTOM, GRPO, PPO, Case


def _bad(id: str, changes: dict[str, Any], field: str, message: str, base: dict[str, Any] = PPO) -> Case:
    return Case(id=id, base=base, set=changes, want_field=field, want_message=message)


BAD = (
    # Shape.
    _bad("no spec", {"spec": ABSENT}, "spec", "must be set"),
    _bad("a spec that is a list", {"spec": [1]}, "spec", "must be a mapping"),
    _bad("no algorithm", {"spec.algorithm": ABSENT}, "spec.algorithm", "must be set"),
    _bad("an algorithm that is null", {"spec.algorithm": None}, "spec.algorithm", "must be set"),
    _bad("no roles", {"spec.roles": []}, "spec.roles", "at least 1"),
    _bad(
        "a misspelt field",
        {"spec.roles[1].replcas": 2},
        "spec.roles[1].replcas",
        'unknown field "replcas"; did you mean "replicas"?',
    ),
    _bad(
        "a field in Python's spelling",
        {"spec.algorithm.total_steps": 2},
        "spec.algorithm.total_steps",
        'did you mean "totalSteps"?',
    ),
    _bad("a field nobody knows", {"spec.wibble": 2}, "spec.wibble", 'unknown field "wibble"'),
    _bad(
        "a misspelt field deep down",
        {"spec.roles[2].restartPolicy": {"backoff": {"maxSecond": 2}}},
        "spec.roles[2].restartPolicy.backoff.maxSecond",
        'did you mean "maxSeconds"?',
    ),
    _bad("a misspelt metadata field", {"metadata.label": {}}, "metadata.label", 'did you mean "labels"?'),
    _bad("an algorithm nobody knows", {"spec.algorithm.name": "DPO"}, "spec.algorithm.name", '"PPO", "GRPO"'),
    _bad("an enum in lower case", {"spec.roles[0].type": "actor"}, "spec.roles[0].type", 'mean "Actor"?'),
    _bad("a number in quotes", {"spec.algorithm.totalSteps": "40"}, "spec.algorithm.totalSteps", "without quotes"),
    _bad("a fraction of a step", {"spec.algorithm.totalSteps": 1.5}, "spec.algorithm.totalSteps", "whole number"),
    _bad("a number for true", {"spec.suspend": 1}, "spec.suspend", "true or false"),
    _bad("a word for true", {"spec.suspend": "true"}, "spec.suspend", "true or false"),
    _bad("a text for a list", {"spec.roles": "actor"}, "spec.roles", "must be a list"),
    _bad("a number for a text", {"spec.model": {"path": 5}}, "spec.model.path", "must be a string in quotes"),
    _bad("a role that is null", {"spec.roles[1]": None}, "spec.roles[1]", "must be a mapping"),
    # Bounds.
    _bad("no steps", {"spec.algorithm.totalSteps": 0}, "spec.algorithm.totalSteps", "at least 1"),
    _bad("a negative seed", {"spec.algorithm.seed": -1}, "spec.algorithm.seed", "at least 0"),
    _bad(
        "GRPO with one answer per prompt",
        {"spec.algorithm.grpo": {"groupSize": 1}},
        "spec.algorithm.grpo.groupSize",
        "at least 2",
        GRPO,
    ),
    _bad(
        "a clip range of 0", {"spec.algorithm.ppo": {"clipRange": 0}}, "spec.algorithm.ppo.clipRange", "greater than 0"
    ),
    _bad("a discount above 1", {"spec.algorithm.ppo": {"gamma": 1.5}}, "spec.algorithm.ppo.gamma", "at most 1"),
    _bad(
        "5,000 restarts",
        {"spec.roles[2].restartPolicy": {"maxRestarts": 5000}},
        "spec.roles[2].restartPolicy.maxRestarts",
        "at most 1000",
    ),
    _bad(
        "17 roles",
        {f"spec.roles[{n}]": {"name": f"r{n}", "type": "Rule"} for n in range(4, 17)},
        "spec.roles",
        "at most 16",
    ),
    _bad("a name of 60 characters", {"metadata.name": "n" * 60}, "metadata.name", "at most 40 characters"),
    _bad("a name with capitals", {"metadata.name": "My-Job"}, "metadata.name", "DNS-1035"),
    _bad("a name that begins with a digit", {"metadata.name": "4roles"}, "metadata.name", "DNS-1035"),
    _bad("a role name with an underscore", {"spec.roles[0].name": "my_actor"}, "spec.roles[0].name", "DNS-1035"),
    _bad(
        "CPU as a fraction without quotes",
        {"spec.roles[0].resources": {"cpu": 0.5}},
        "spec.roles[0].resources.cpu",
        "quantity",
    ),
    _bad("memory in GB", {"spec.roles[0].resources": {"memory": "16GB"}}, "spec.roles[0].resources.memory", "quantity"),
    _bad(
        "65 GPUs in a pod",
        {"spec.roles[0].resources": {"accelerators": {"count": 65}}},
        "spec.roles[0].resources.accelerators.count",
        "at most 64",
    ),
    _bad(
        "a worker class without a module",
        {"spec.roles[0].worker": {"className": "Judge"}},
        "spec.roles[0].worker.className",
        "package.module:Class",
    ),
    _bad(
        "an argument that is a list",
        {"spec.roles[0].worker": {"arguments": {"a": [1]}}},
        "spec.roles[0].worker.arguments.a",
        "must be a number, a string",
    ),
    _bad(
        "an argument that is an empty list",
        {"spec.roles[0].worker": {"arguments": {"a": []}}},
        "spec.roles[0].worker.arguments.a",
        "must be a number, a string",
    ),
    _bad(
        "an argument that is a mapping",
        {"spec.roles[0].worker": {"arguments": {"a": {"b": 1}}}},
        "spec.roles[0].worker.arguments.a",
        "must be a number, a string",
    ),
    _bad(
        "a state URI without a scheme", {"spec.state.location": {"uri": "bucket/x"}}, "spec.state.location.uri", "s3://"
    ),
    _bad(
        "a mount path that is not absolute",
        {"spec.volumes": [{"name": "d", "mountPath": "data", "emptyDir": {}}]},
        "spec.volumes[0].mountPath",
        "absolute path",
    ),
    _bad(
        "a subpath that climbs",
        {"spec.volumes": [{"name": "d", "mountPath": "/d", "subPath": "../x", "emptyDir": {}}]},
        "spec.volumes[0].subPath",
        "relative path",
    ),
    # Between fields.
    _bad(
        "two roles of one name",
        {"spec.roles[3].name": "critic"},
        "spec.roles[3].name",
        "must be unique; roles[1] has the same",
    ),
    _bad("a role called head", {"spec.roles[0].name": "head"}, "spec.roles[0].name", "must not be head"),
    _bad("a role called controller", {"spec.roles[0].name": "controller"}, "spec.roles[0].name", "must not be head"),
    _bad("no actor", {"spec.roles[0]": ABSENT}, "spec.roles", "exactly one role of type Actor"),
    _bad(
        "two actors",
        {"spec.roles[4]": {"name": "second", "type": "Actor"}},
        "spec.roles",
        "exactly one role of type Actor",
    ),
    _bad("PPO without a critic", {"spec.roles[1]": ABSENT}, "spec.roles", "exactly one role of type Critic"),
    _bad("PPO without a reward", {"spec.roles[2]": ABSENT}, "spec.roles", "a role of type Reward or Rule"),
    _bad("PPO without a reference", {"spec.roles[3]": ABSENT}, "spec.roles", "Reference unless `klCoefficient` is 0"),
    _bad(
        "GRPO with a critic",
        {"spec.roles[3]": {"name": "critic", "type": "Critic"}},
        "spec.roles",
        "must not have a role of type Critic",
        GRPO,
    ),
    _bad("GRPO without a reference", {"spec.roles[2]": ABSENT}, "spec.roles", "Reference unless", GRPO),
    _bad(
        "two references",
        {"spec.roles[4]": {"name": "other", "type": "Reference"}},
        "spec.roles",
        "at most one role of type Reference",
    ),
    _bad("GRPO with parameters of PPO", {"spec.algorithm.ppo": {}}, "spec.algorithm.ppo", "unless `name` is PPO", GRPO),
    _bad("PPO with parameters of GRPO", {"spec.algorithm.grpo": {}}, "spec.algorithm.grpo", "unless `name` is GRPO"),
    _bad(
        "hyperparameters of both algorithms",
        {"spec.algorithm.ppo": {}, "spec.algorithm.grpo": {}},
        "spec.algorithm",
        "at most one of `ppo`, `grpo`",
        CUSTOM,
    ),
    _bad(
        "Custom without a controller",
        {"spec.algorithm.custom": ABSENT},
        "spec.algorithm.custom",
        "must be set when",
        CUSTOM,
    ),
    _bad(
        "a Custom role without a class",
        {"spec.roles[0].worker": ABSENT},
        "spec.roles[0].worker.className",
        "package.module:Class",
        CUSTOM,
    ),
    _bad(
        "more minibatches than prompts",
        {"spec.algorithm.ppo": {"promptsPerStep": 2, "miniBatches": 4}},
        "spec.algorithm.ppo.miniBatches",
        "at most `promptsPerStep`",
    ),
    _bad(
        "two critics' worth of replicas",
        {"spec.roles[1].replicas": 2},
        "spec.roles[1].replicas",
        "must be 1 for an Actor or Critic",
    ),
    _bad(
        "colocation with nobody",
        {"spec.roles[3].colocateWith": "nobody"},
        "spec.roles[3].colocateWith",
        "must name another role",
    ),
    _bad(
        "colocation with itself",
        {"spec.roles[3].colocateWith": "reference"},
        "spec.roles[3].colocateWith",
        "must name another role",
    ),
    _bad(
        "a chain of colocations",
        {"spec.roles[3].colocateWith": "reward", "spec.roles[2].colocateWith": "actor"},
        "spec.roles[3].colocateWith",
        "not colocated itself",
    ),
    _bad(
        "a colocated role with a node pool",
        {"spec.roles[3].colocateWith": "actor", "spec.roles[3].nodePool": {}},
        "spec.roles[3].colocateWith",
        "must not be set with",
    ),
    _bad("two sources of the model", {"spec.model.path": "/m"}, "spec.model", "exactly one of"),
    _bad("no source of the model", {"spec.model": {}}, "spec.model", "exactly one of"),
    _bad("no source of the data", {"spec.data": {}}, "spec.data", "exactly one of"),
    _bad(
        "a role's model with two sources",
        {"spec.roles[2].model": {"path": "/m", "huggingFace": {"id": "a/b"}}},
        "spec.roles[2].model",
        "exactly one of",
    ),
    _bad(
        "memory among the extended resources",
        {"spec.roles[1].resources": {"memory": "1Gi", "extended": {"memory": "9Gi"}}},
        "spec.roles[1].resources.extended",
        "must not have `cpu` or `memory`",
    ),
    _bad(
        "a volume that holds nothing",
        {"spec.volumes": [{"name": "d", "mountPath": "/d"}]},
        "spec.volumes[0]",
        "exactly one of",
    ),
    _bad(
        "two volumes of one name",
        {
            "spec.volumes": [
                {"name": "d", "mountPath": "/d", "emptyDir": {}},
                {"name": "d", "mountPath": "/e", "emptyDir": {}},
            ]
        },
        "spec.volumes[1].name",
        "must be unique",
    ),
    _bad(
        "a variable with two values",
        {"spec.env": [{"name": "A", "value": "1", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        "spec.env[0]",
        "at most one of",
    ),
    _bad(
        "a reward function for an actor",
        {"spec.roles[0].worker": {"function": "a:b"}},
        "spec.roles[0].worker.function",
        "unless the role's `type` is Rule",
    ),
    _bad(
        "a function and a class",
        {"spec.roles[1].worker": {"function": "a:b", "className": "a:B"}},
        "spec.roles[1].worker.function",
        "together with `className`",
        GRPO,
    ),
    _bad(
        "options of an engine that is not used",
        {"spec.roles[0].engine": {"rollout": "Cached", "vllm": {"sleep": False}}},
        "spec.roles[0].engine.vllm",
        "unless `rollout` is VLLM or Auto",
    ),
    _bad(
        "vLLM in a role that generates nothing",
        {"spec.roles[1].engine": {"vllm": {}}},
        "spec.roles[1].engine.vllm",
        "unless the role's `type` is Actor or Rollout",
    ),
    _bad(
        "an actor whose vLLM is spread over accelerators",
        {"spec.roles[0].engine": {"vllm": {"tensorParallelSize": 2}}},
        "spec.roles[0].engine.vllm.tensorParallelSize",
        "1 unless its `type` is Rollout",
    ),
    _bad(
        "vLLM spread over more accelerators than there are",
        {
            "spec.roles[4]": {
                "name": "rollout",
                "type": "Rollout",
                "resources": {"accelerators": {"count": 2}},
                "engine": {"vllm": {"tensorParallelSize": 4}},
            }
        },
        "spec.roles[4].engine.vllm.tensorParallelSize",
        "at most the accelerators",
    ),
    _bad(
        "adapters in a role that does not train",
        {"spec.roles[2].engine": {"lora": {"rank": 8}}},
        "spec.roles[2].engine.lora",
        "unless the role's `type` is Actor or Critic",
    ),
    _bad(
        "more memory than an accelerator has",
        {"spec.roles[0].engine": {"vllm": {"acceleratorMemoryPercent": 120}}},
        "spec.roles[0].engine.vllm.acceleratorMemoryPercent",
        "at most 100",
    ),
    _bad(
        "a standby of the actor",
        {"spec.roles[0].restartPolicy": {"standbys": 1}},
        "spec.roles[0].restartPolicy.standbys",
        "must be 0",
    ),
    _bad(
        "a critic that degrades",
        {"spec.roles[1].restartPolicy": {"onExhausted": "Degrade"}},
        "spec.roles[1].restartPolicy.onExhausted",
        "must not be Degrade",
    ),
    _bad(
        "degrade settings that are never used",
        {"spec.roles[2].restartPolicy": {"degrade": {}}},
        "spec.roles[2].restartPolicy.degrade",
        "unless `onExhausted` is Degrade",
    ),
    _bad(
        "a rule that matches nothing",
        {"spec.roles[2].restartPolicy": {"rules": [{"action": "FailJob"}]}},
        "spec.roles[2].restartPolicy.rules[0]",
        "`reasons` or `exitCodes`",
    ),
    _bad(
        "more memory without an end",
        {
            "spec.roles[2].restartPolicy": {
                "rules": [{"reasons": ["HostOutOfMemory"], "action": "RestartRole", "memoryIncreasePercent": 50}]
            }
        },
        "spec.roles[2].restartPolicy.rules[0].maxMemory",
        "together with",
    ),
    _bad(
        "a longest wait below the first",
        {"spec.roles[2].restartPolicy": {"backoff": {"maxSeconds": 1}}},
        "spec.roles[2].restartPolicy.backoff.maxSeconds",
        "at least `baseSeconds`",
    ),
    _bad(
        "a first wait above the default of the longest",
        {"spec.roles[2].restartPolicy": {"backoff": {"baseSeconds": 301}}},
        "spec.roles[2].restartPolicy.backoff.maxSeconds",
        "at least `baseSeconds`",
    ),
    _bad(
        "a taint without key and operator",
        {"spec.roles[0].nodePool": {"tolerations": [{"effect": "NoSchedule"}]}},
        "spec.roles[0].nodePool.tolerations[0].operator",
        "Exists",
    ),
    _bad(
        "names too long together",
        {"metadata.name": "j" * 40, "spec.roles[3].name": "r" * 10},
        "spec.roles[3].name",
        "together have at most 49",
    ),
    _bad(
        "state in two places",
        {"spec.state.location": {"uri": "s3://b", "persistentVolumeClaim": {"claimName": "c"}}},
        "spec.state.location",
        "exactly one of",
    ),
    _bad(
        "more minibatches than answers",
        {"spec.algorithm.grpo": {"promptsPerStep": 2, "groupSize": 2, "miniBatches": 5}},
        "spec.algorithm.grpo.miniBatches",
        "`promptsPerStep` times `groupSize`",
        GRPO,
    ),
    _bad(
        "a variable from nowhere",
        {"spec.env": [{"name": "A", "valueFrom": {}}]},
        "spec.env[0].valueFrom",
        "exactly one of",
    ),
    _bad(
        "a variable that the operator sets",
        {"spec.env": [{"name": "RAY_ADDRESS", "value": "auto"}]},
        "spec.env[0].name",
        "must not be one of RLHF_JOB",
    ),
    _bad(
        "a variable of a role that the operator sets",
        {"spec.roles[1].pod": {"env": [{"name": "A", "value": "1"}, {"name": "RLHF_STATE", "value": "/tmp"}]}},
        "spec.roles[1].pod.env[1].name",
        "which the operator sets",
    ),
    _bad(
        "a volume over the state",
        {"spec.volumes": [{"name": "d", "mountPath": "/rlhf", "emptyDir": {}}]},
        "spec.volumes[0].mountPath",
        "must not be, hold or lie in one of /rlhf, /dev/shm",
    ),
    _bad(
        "a volume that hides the job's file",
        {"spec.controller.pod": {"volumes": [{"name": "d", "mountPath": "/etc", "configMap": {"name": "c"}}]}},
        "spec.controller.pod.volumes[0].mountPath",
        "which the job mounts itself",
    ),
    _bad(
        "shared memory as a volume",
        {"spec.roles[0].pod": {"volumes": [{"name": "d", "mountPath": "/dev/shm/", "emptyDir": {"medium": "Memory"}}]}},
        "spec.roles[0].pod.volumes[0].mountPath",
        "which the job mounts itself",
    ),
    _bad(
        "a cache among the secrets",
        {"spec.cacheVolume": {"mountPath": "/var/run/secrets/cache", "emptyDir": {}}},
        "spec.cacheVolume.mountPath",
        "which the job mounts itself",
    ),
    _bad(
        "two volumes at one place",
        {
            "spec.volumes": [
                {"name": "a", "mountPath": "/d", "emptyDir": {}},
                {"name": "b", "mountPath": "/d", "emptyDir": {}},
            ]
        },
        "spec.volumes[1].mountPath",
        "must be unique among `volumes` and `cacheVolume`",
    ),
    _bad(
        "a volume at the cache's place",
        {
            "spec.cacheVolume": {"emptyDir": {}},
            "spec.volumes": [{"name": "a", "mountPath": "/cache", "emptyDir": {}}],
        },
        "spec.volumes[0].mountPath",
        "must be unique among `volumes` and `cacheVolume`",
    ),
    _bad(
        "two volumes of one role at one place",
        {
            "spec.roles[0].pod": {
                "volumes": [
                    {"name": "a", "mountPath": "/d", "emptyDir": {}},
                    {"name": "b", "mountPath": "/d", "emptyDir": {}},
                ]
            }
        },
        "spec.roles[0].pod.volumes",
        "must be unique among `volumes`",
    ),
    _bad(
        "a volume of a role over one of the job",
        {
            "spec.volumes": [{"name": "a", "mountPath": "/d", "emptyDir": {}}],
            "spec.roles[0].pod": {"volumes": [{"name": "b", "mountPath": "/d", "emptyDir": {}}]},
        },
        "spec.roles[0].pod.volumes[0].mountPath",
        "must not be that of another volume of the job",
    ),
    _bad("variables from nowhere", {"spec.envFrom": [{"prefix": "A_"}]}, "spec.envFrom[0]", "exactly one of"),
    _bad(
        "a reason given twice",
        {"spec.roles[2].restartPolicy": {"rules": [{"reasons": ["Hang", "Hang"], "action": "FailJob"}]}},
        "spec.roles[2].restartPolicy.rules[0].reasons[1]",
        "must be unique",
    ),
)
