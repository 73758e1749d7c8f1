"""The Python runtime of an RLHFJob: control flow, worker groups and compute flow, on Ray."""
