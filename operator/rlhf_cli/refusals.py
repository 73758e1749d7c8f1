"""What an API server finds wrong with a job, in the form of `rlhf validate`. Pure."""

from __future__ import annotations

import re

from rlhf_api.document import Document
from rlhf_api.errors import UNSET, FieldError, InvalidManifestError, Path
from rlhf_cli.cluster.errors import RefusedError

_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]|\[([^\]]+)\]")
_VALUE = re.compile(
    r'^Invalid value: (?:"[^"]*"|[^:]*): '
    r"|^(?:Forbidden|Required value|Duplicate value|Unsupported value|Too many|Too long|Invalid value): ?"
)
_IMMUTABLE = "is immutable"
_UNKNOWN = re.compile(r'unknown field "([^"]+)"|(\.[\w.\[\]="-]+): field not declared in schema')


def path_of(field: str) -> Path:
    """`spec.roles[1].name` as a path."""
    return tuple(int(index) if index else name or key.strip('"') for name, index, key in _PART.findall(field))


def refusal_lines(error: RefusedError, document: Document | None, source: str) -> list[str]:
    """One line for each thing wrong, with file and line where a manifest is known; then what to do."""
    found = [placed(path_of(str(cause.get("field") or "")), _VALUE.sub("", str(cause["message"])), document)
             for cause in error.causes if cause.get("field") not in ("<nil>", None)]  # fmt: skip
    unknown = [name or path.lstrip(".") for name, path in _UNKNOWN.findall(str(error))]
    found += [placed(path_of(field), "unknown field in this cluster", document) for field in unknown]
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


def placed(path: Path, message: str, document: Document | None) -> FieldError:
    """Something wrong at a path, with line, value and role where a manifest is known."""
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
