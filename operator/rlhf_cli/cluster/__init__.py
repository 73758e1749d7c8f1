"""What the commands know of a cluster: the only place of `rlhf_cli` that talks to an API server.

Objects are dictionaries as the API server gives them: a newer operator's status must not break an older command.
"""
