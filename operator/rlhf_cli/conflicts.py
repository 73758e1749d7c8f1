"""Fields that a manifest sets and that somebody else has set otherwise: which, to what, who, and what to do. Pure.

The API server knows a field's last writer by the name of its field manager. That of `rlhf` is one for all commands, so
that the field tells which command it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from rlhf_api.document import Document
from rlhf_api.errors import UNSET, InvalidManifestError, Path
from rlhf_api.names import RESTART_ANNOTATION
from rlhf_cli.cluster.client import FIELD_MANAGER
from rlhf_cli.cluster.errors import ConflictError
from rlhf_cli.job_view import Object
from rlhf_cli.refusals import path_of, placed

_MANAGER = re.compile(r'conflict with "([^"]*)"(.*\busing\b)?')
_KEY = re.compile(r'\[name="([^"]*)"\]')
_COMMANDS = {
    "replicas": "`rlhf scale`",
    "suspend": "`rlhf suspend` or `rlhf resume`",
    RESTART_ANNOTATION: "`rlhf restart`",
}
_APPLY = "`kubectl apply`"
_LONGEST = 60


def conflict_lines(error: ConflictError, document: Document, source: str, *, living: Object, force: str) -> list[str]:
    """One line for each field, then what to do.

    Args:
        error: The API server's refusal.
        document: The manifest.
        source: What messages call its file.
        living: The job as it is in the cluster.
        force: The command that takes the fields over.
    """
    owners: dict[str, list[str]] = {}
    for cause in error.causes:
        field = str(cause.get("field") or "")
        owners.setdefault(field, []).append(_owner(str(cause.get("message")), field))
    if not owners:
        return [f"{source}: somebody changed the job at the same time; run the command again ({error})"]
    found = [
        placed(
            _path_in(document, field), f"{_was_set(field, living)} by {' and '.join(dict.fromkeys(names))}", document
        )
        for field, names in owners.items()
    ]
    lines = InvalidManifestError(found, source=source).lines()
    lines += [
        "To keep what the job has: leave these fields out of the manifest, or write the same there",
        f"To set what the manifest says: {force}",
    ]
    if any(_APPLY in names for names in owners.values()):
        lines.append(f"A job that is changed with {_APPLY} and `rlhf submit` in turn meets this again: stay with one")
    return lines


def _owner(message: str, field: str) -> str:
    """A field manager in words."""
    found = _MANAGER.search(message)
    if found is None:
        return "somebody else"
    manager, updates = found[1], found[2] is not None
    if manager == FIELD_MANAGER:
        return next((command for name, command in _COMMANDS.items() if field.endswith(f".{name}")), "`rlhf`")
    if manager in ("kubectl-client-side-apply", "kubectl-last-applied") or (manager == "kubectl" and not updates):
        return _APPLY
    program, _, verb = manager.partition("-")
    return f"`{f'{program} {verb}'.strip()}`" if program == "kubectl" else f'"{manager}"'


def _was_set(field: str, living: Object) -> str:
    there = Document(value=living)
    value = there.get(_path_in(there, field))
    text = "" if value is UNSET or isinstance(value, dict | list) else json.dumps(value, ensure_ascii=False)
    return f"was set to {text}" if 0 < len(text) <= _LONGEST else "was set otherwise"


def _path_in(document: Document, field: str) -> Path:
    """A path of server-side apply, `.spec.roles[name="critic"].replicas`, with the item's place in a document."""
    left, path = list(path_of(_KEY.sub(r"[name=\1]", field).lstrip("."))), list[str | int]()
    while left:
        here, part = document.get(tuple(path)), left[0]
        taken = _length_of_key(here, left)
        if taken:
            path.append(".".join(map(str, left[:taken])))
        elif isinstance(here, list) and isinstance(part, str) and part.startswith("name="):
            named = [item.get("name") for item in here if isinstance(item, dict)]
            name = part.removeprefix("name=")
            path.append(named.index(name) if name in named else name)
        else:
            path.append(part)
        del left[: taken or 1]
    return tuple(path)


def _length_of_key(here: Any, parts: Sequence[str | int]) -> int:
    """How many of the parts are one key of a mapping, such as `rlhf.dev/restart`; 0 where none is."""
    keys = here if isinstance(here, dict) else {}
    return next((number for number in range(len(parts), 0, -1) if ".".join(map(str, parts[:number])) in keys), 0)
