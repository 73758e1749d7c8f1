"""What an API server finds wrong with a job, in the form of `rlhf validate`. Pure."""

from __future__ import annotations

import re
from typing import Any

from rlhf_api.document import Document
from rlhf_api.errors import UNSET, FieldError, InvalidManifestError, Path
from rlhf_cli.cluster.errors import ConflictError, RefusedError

_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]|\[([^\]]+)\]")
_VALUE = re.compile(
    r'^Invalid value: (?:"[^"]*"|[^:]*): '
    r"|^(?:Forbidden|Required value|Duplicate value|Unsupported value|Too many|Too long|Invalid value): ?"
)
_IMMUTABLE = "is immutable"
_UNKNOWN = re.compile(r'unknown field "([^"]+)"|(\.[\w.\[\]="-]+): field not declared in schema')
_MANAGER = re.compile(r'conflict with "([^"]*)"')
_KEY = re.compile(r'\[name="([^"]*)"\]')


def path_of(field: str) -> Path:
    """`spec.roles[1].name` as a path."""
    return tuple(int(index) if index else name or key.strip('"') for name, index, key in _PART.findall(field))


def refusal_lines(error: RefusedError, document: Document | None, source: str) -> list[str]:
    """One line for each thing wrong, with file and line where a manifest is known; then what to do."""
    found = [_placed(path_of(str(cause.get("field") or "")), _VALUE.sub("", str(cause["message"])), document)
             for cause in error.causes if cause.get("field") not in ("<nil>", None)]  # fmt: skip
    unknown = [name or path.lstrip(".") for name, path in _UNKNOWN.findall(str(error))]
    found += [_placed(path_of(field), "unknown field in this cluster", document) for field in unknown]
    if not found:
        return [f"{source}: the API server refuses it: {error}"]
    lines = InvalidManifestError(sorted(found, key=lambda one: one.line or 0), source=source).lines()
    lines = list(dict.fromkeys(lines))
    if any(_IMMUTABLE in line for line in lines):
        lines.append("What is immutable cannot be changed on a job that exists: delete the job first, or give the "
                     "manifest another name")  # fmt: skip
    if unknown:
        lines.append("The cluster's RLHFJob is of another version than this command: see `rlhf --version`, and upgrade "
                     "the operator or this command")  # fmt: skip
    return lines


def conflict_lines(error: ConflictError, document: Document, source: str) -> list[str]:
    """Which fields somebody else has set, and what to do."""
    found = []
    for cause in error.causes:
        manager = _MANAGER.search(str(cause.get("message")))
        path = _in_manifest(str(cause.get("field") or ""), document)
        found.append(_placed(path, f'was set otherwise by "{manager[1] if manager else "somebody else"}"', document))
    if not found:
        return [f"{source}: somebody changed the job at the same time; run the command again ({error})"]
    lines = InvalidManifestError(found, source=source).lines()
    return [*lines, "Leave these fields out of the manifest, or take them over with `--force-conflicts`"]


def _in_manifest(field: str, document: Document) -> Path:
    """A path of server-side apply, `.spec.roles[name="critic"].replicas`, with the item's place in this manifest."""
    parts: list[Any] = []
    for part in path_of(_KEY.sub(r"[name=\1]", field).lstrip(".")):
        if isinstance(part, str) and part.startswith("name="):
            items = document.get(tuple(parts))
            named = [item.get("name") for item in items] if isinstance(items, list) else []
            name = part.removeprefix("name=")
            parts.append(named.index(name) if name in named else name)
        else:
            parts.append(part)
    return tuple(parts)


def _placed(path: Path, message: str, document: Document | None) -> FieldError:
    if document is None:
        return FieldError(path=path, message=message)
    value = document.get(path)
    role = document.get((*path[:3], "name")) if path[:2] == ("spec", "roles") and len(path) > 3 else None
    return FieldError(
        path=path,
        message=message,
        value=UNSET if value is UNSET or _IMMUTABLE in message else value,
        line=document.line(path) if path else None,
        role=role if isinstance(role, str) and path[-1] != "name" else None,
    )
