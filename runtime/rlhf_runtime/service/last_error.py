"""Whether the controller before this one ended with the same error after the same step.

One such error may be the node's or the network's; the second is a bug, and a third pod would meet it too. It is kept
with the run's state, since nothing else of a pod outlives it.
"""

from __future__ import annotations

import json

from rlhf_runtime.errors import StateStoreError
from rlhf_runtime.resilience.state_store import open_state_store

_KEY = "controller/last-error"


def met_before(location: str, *, signature: str, step: int) -> bool:
    """Look, and leave this one for the next controller; false where the state cannot be reached."""
    mine = {"signature": signature, "step": step}
    try:
        store = open_state_store(location)
        last = json.loads(store.read(_KEY)) if store.exists(_KEY) else None
        store.write(_KEY, json.dumps(mine).encode())
    except (StateStoreError, ValueError):
        return False
    return bool(last == mine)
