"""Which of a pod's extended resources Ray counts as GPUs; the operator and the runtime must agree on it."""

from rlhf_api.types.pod import Resources


def gpus_of(resources: Resources) -> int:
    """How many GPUs Ray sees in a pod with these resources; a slice of one (MIG) is one.

    Other accelerators (TPUs, Gaudi, ...) are not GPUs to Ray: 0.
    """
    vendor, _, device = resources.accelerators.name.partition("/")
    is_gpu = device.startswith("gpu") or (vendor == "nvidia.com" and device.startswith("mig-"))
    return resources.accelerators.count if is_gpu else 0
