"""What Ray reads from the environment when it is imported or starts its processes; a user's own setting wins.

Whatever starts Ray's node process sets these: an embedded run, and the first process of a role's pod.
"""

import os
from collections.abc import MutableMapping

WORKERS = {
    "RAY_worker_niceness": "0",  # Ray's workers run at nice 15 otherwise
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # A pod that is told to go would wait half a minute, with its GPUs, for role processes to end by themselves.
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
}
DRIVER = {
    "RAY_DEDUP_LOGS": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # the buffer beside a failed reply is one of those
    "RAY_enable_metrics_collection": "0",
}


def set_defaults(*groups: dict[str, str], environment: MutableMapping[str, str] = os.environ) -> None:
    """Set what is not set yet."""
    for group in groups:
        for name, value in group.items():
            environment.setdefault(name, value)
