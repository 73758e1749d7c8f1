"""What the program is called: `rlhf`, or `kubectl rlhf` as kubectl's plugin."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

PLUGIN_FILE = "kubectl-rlhf"
PLUGIN = "kubectl rlhf"


def name_of_start() -> str | None:
    """The name for usage lines where it is not that of the file which was started; None where it is."""
    return PLUGIN if Path(sys.argv[0]).stem == PLUGIN_FILE else None


def next_command(*words: str, namespace: str | None = None) -> str:
    """A command that a user can copy, for the same cluster and namespace as the present one.

    Args:
        words: The command and its arguments.
        namespace: Another namespace than that of the present command.
    """
    context = click.get_current_context(silent=True)
    program = (context.find_root().info_name if context else None) or "rlhf"
    given = dict(context.params) if context else {}
    if namespace:
        given["namespace"] = namespace
    options = [f"--{name}={given[name]}" for name in ("namespace", "context", "kubeconfig") if given.get(name)]
    return " ".join((program, shlex.join([*words, *options])))
