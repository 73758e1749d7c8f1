"""Manifests that every judge must accept."""

from manifest_cases import ABSENT, CUSTOM, GRPO, SCORER, Case

GOOD = (
    Case(id="the least that PPO needs"),
    Case(id="the least that GRPO needs", base=GRPO),
    Case(id="a control flow and a worker of the user's own", base=CUSTOM),
    Case(
        id="a control flow of the user's own with the hyperparameters of GRPO",
        base=CUSTOM,
        set={"spec.algorithm.grpo": {"groupSize": 4}},
    ),
    Case(
        id="a role with another volume in place of one of the job",
        set={
            "spec.volumes": [{"name": "data", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "all"}}],
            "spec.roles[0].pod": {
                "volumes": [{"name": "data", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "fast"}}]
            },
        },
    ),
    Case(
        id="hyperparameters given as whole numbers and in scientific notation",
        set={"spec.algorithm.ppo": {"gamma": 1, "actorLearningRate": 1e-5, "klCoefficient": 0.1}},
    ),
    Case(
        id="PPO without a reference when the KL coefficient is 0",
        set={"spec.algorithm.ppo": {"klCoefficient": 0}, "spec.roles[3]": ABSENT},
    ),
    Case(
        id="GRPO without a reference when the KL coefficient is 0",
        base=GRPO,
        set={"spec.algorithm.grpo": {"klCoefficient": 0.0}, "spec.roles[2]": ABSENT},
    ),
    Case(id="two reward replicas", base=GRPO, set={"spec.roles[1].replicas": 2}),
    Case(
        id="a plain reward function with arguments of every kind",
        base=GRPO,
        set={
            "spec.roles[1].worker": {
                "function": "my.rewards:exact",
                "arguments": {"weight": 0.5, "lowercase": True, "unit": "m", "tries": 3},
            }
        },
    ),
    Case(id="a reward model beside a rule", set={"spec.roles[4]": SCORER}),
    Case(id="a role colocated with another", set={"spec.roles[3].colocateWith": "actor"}),
    Case(id="CPU as a whole number", set={"spec.roles[0].resources": {"cpu": 1, "memory": "1.5Gi"}}),
    Case(
        id="a MIG profile as accelerator and RDMA beside it",
        set={
            "spec.roles[0].resources": {
                "accelerators": {"name": "nvidia.com/mig-1g.10gb", "count": 2},
                "extended": {"rdma/ib": 1},
            }
        },
    ),
    Case(
        id="a node pool with taints and a spread",
        set={
            "spec.roles[0].nodePool": {
                "nodeSelector": {"pool": "h100"},
                "tolerations": [
                    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                    {"operator": "Exists"},
                ],
                "topologySpread": {"topologyKey": "topology.kubernetes.io/zone"},
            }
        },
    ),
    Case(
        id="a restart policy with rules by reason and by exit code",
        set={
            "spec.roles[1].restartPolicy": {
                "maxRestarts": 3,
                "backoff": {"baseSeconds": 1, "maxSeconds": 1},
                "rules": [
                    {
                        "reasons": ["HostOutOfMemory"],
                        "action": "RestartRole",
                        "memoryIncreasePercent": 50,
                        "maxMemory": "64Gi",
                    },
                    {"exitCodes": [3, 4], "action": "FailJob"},
                    {"reasons": ["NodeDrained", "Preempted"], "action": "RestartReplica", "counted": False},
                ],
            }
        },
    ),
    Case(
        id="a reward role that degrades to cached scores, with a standby",
        set={
            "spec.roles[2].restartPolicy": {
                "onExhausted": "Degrade",
                "degrade": {"mode": "CachedScores", "maxSteps": 5},
                "standbys": 1,
            }
        },
    ),
    Case(
        id="secrets by reference, volumes and a weight cache",
        set={
            "spec.env": [
                {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
                {"name": "MODE", "value": "fast"},
            ],
            "spec.envFrom": [{"secretRef": {"name": "s3"}}],
            "spec.volumes": [{"name": "data", "mountPath": "/data", "persistentVolumeClaim": {"claimName": "data"}}],
            "spec.cacheVolume": {"persistentVolumeClaim": {"claimName": "cache"}},
            "spec.image": {"name": "registry.example/worker@sha256:00", "pullSecrets": ["pull"]},
        },
    ),
    Case(
        id="mount paths that only look like those of the job, and volumes of one role beside those of all",
        set={
            "spec.volumes": [
                {"name": "a", "mountPath": "/rlhf-data", "emptyDir": {}},
                {"name": "b", "mountPath": "/etc/rlhf.d", "emptyDir": {}},
                {"name": "c", "mountPath": "/var/data", "emptyDir": {}},
            ],
            "spec.roles[0].pod": {"volumes": [{"name": "d", "mountPath": "/dev/shmem", "emptyDir": {}}]},
            "spec.roles[1].pod": {"volumes": [{"name": "d", "mountPath": "/dev/shmem", "emptyDir": {}}]},
        },
    ),
    Case(
        id="variables that only look like those of the operator",
        set={"spec.env": [{"name": "RLHF_ROLES", "value": "x"}, {"name": "HF_HOME", "value": "/hub"}]},
    ),
    Case(
        id="a model and data of the Hugging Face hub",
        set={
            "spec.model": {"huggingFace": {"id": "Qwen/Qwen3-0.6B"}},
            "spec.data": {"huggingFace": {"id": "openai/gsm8k", "subset": "main", "promptField": "question"}},
        },
    ),
    Case(
        id="files on a volume and a model on a path",
        set={
            "spec.model": {"path": "/data/model"},
            "spec.data": {"files": {"train": ["/data/a.jsonl"], "heldOut": ["/data/b.jsonl"]}},
        },
    ),
    Case(id="state on a claim", set={"spec.state.location": {"persistentVolumeClaim": {"claimName": "runs"}}}),
    Case(id="state at a URI", set={"spec.state.location": {"uri": "s3://bucket/runs"}}),
    Case(id="a field that is null counts as absent", set={"spec.algorithm.seed": None, "spec.head": None}),
    Case(
        id="the longest names that go together",
        set={"metadata.name": "j" * 40, "spec.roles[3].name": "r" * 9},
    ),
    Case(
        id="one-step-off with evaluation and deadlines",
        set={
            "spec.algorithm.schedule": "OneStepOff",
            "spec.algorithm.evaluation": {"everySteps": 10},
            "spec.startDeadlineSeconds": 600,
            "spec.ttlSecondsAfterFinished": 0,
        },
    ),
    Case(
        id="a head that outlives its pod through Redis",
        set={
            "spec.head.gcsFaultTolerance": {
                "redisAddress": "redis:6379",
                "password": {"name": "redis", "key": "password"},
            }
        },
    ),
)
