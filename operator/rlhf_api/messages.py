"""What pydantic finds, in the words of the Kubernetes API conventions.

Those are: "must", quotes for values, backquotes for fields.
"""

import difflib
import json
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

import annotated_types
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rlhf_api.document import Document
from rlhf_api.errors import FieldError, Path
from rlhf_api.types import RLHFJob
from rlhf_api.types.scalars import PATTERN_HINTS

_MOST_FIELDS_LISTED = 12

_PLAIN = {
    "missing": "must be set",
    "bool_type": "must be true or false",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "int_from_float": "must be a whole number",
    "string_too_short": "must not be empty",
}


def explain(error: ValidationError, document: Document) -> Iterator[FieldError]:
    """One error per finding, in the manifest's own terms."""
    for detail in error.errors(include_url=False):
        path: Path = detail["loc"]
        match detail["type"]:
            case "extra_forbidden":
                hint = _nearest(path[-1], _known_fields(path[:-1])) or _all_fields(path[:-1])
                yield FieldError(path=path, message=f"unknown field {json.dumps(path[-1])}", hint=hint)
            case "enum" | "literal_error":
                choices = re.findall(r"'([^']*)'", str(detail.get("ctx", {})["expected"]))
                names = ("one of " if len(choices) > 1 else "") + ", ".join(f'"{choice}"' for choice in choices)
                value = document.get(path)
                hint = _nearest(value, choices)
                yield FieldError(path=path, message=f"must be {names}", value=value, hint=hint)
            case "too_short" if _is_long_enough(document.get(path), detail):
                pass  # pydantic counts the items that are right: each wrong one has a message of its own
            case "json_invalid":  # a lone surrogate, "\ud800"
                yield FieldError(path=(), message="must be valid Unicode text")
            case _:
                yield FieldError(path=path, message=_message(detail, path), value=document.get(path))


def _is_long_enough(value: Any, detail: ErrorDetails) -> bool:
    return isinstance(value, list | dict) and len(value) >= detail.get("ctx", {})["min_length"]


def _message(detail: ErrorDetails, path: Path) -> str:
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind in _PLAIN:
        return _PLAIN[kind]
    match kind:
        case "int_type" | "int_parsing":
            quoted = isinstance(value, str) and value.strip().lstrip("-").isdigit()
            return "must be a whole number without quotes" if quoted else "must be a whole number"
        case "string_type":
            hint = _pattern_hint(field_at(path))
            return hint or f"must be a string{'' if isinstance(value, dict | list) else ' in quotes'}"
        case "greater_than_equal" | "less_than_equal" | "greater_than" | "less_than":
            return _range(field_at(path), detail)
        case "string_too_long":
            return f"must be at most {context['max_length']} characters long"
        case "string_pattern_mismatch":
            return PATTERN_HINTS.get(context["pattern"], f"must match {context['pattern']}")
        case "too_long":
            return f"must have at most {context['max_length']} items"
        case "too_short":
            return f"must have at least {context['min_length']} item"
        case "value_error":
            return str(context["error"])
    return detail["msg"].replace("Input should be", "must be")


def _known_fields(path: Path) -> list[str]:
    model = model_at(path)
    return sorted(field.alias or name for name, field in model.model_fields.items()) if model else []


def _all_fields(path: Path) -> str | None:
    known = _known_fields(path)
    if not 0 < len(known) <= _MOST_FIELDS_LISTED:
        return None
    return f"the fields here are {', '.join(f'`{name}`' for name in known)}"


def _nearest(word: Any, choices: list[str]) -> str | None:
    lowered = {choice.lower(): choice for choice in choices}
    near = difflib.get_close_matches(str(word).lower().replace("_", ""), lowered, n=1, cutoff=0.7)
    return f'did you mean "{lowered[near[0]]}"?' if near else None


def _range(field: FieldInfo | None, detail: ErrorDetails) -> str:
    bounds: dict[str, Any] = {}
    for constraint in _constraints(field):
        match constraint:
            case annotated_types.Ge(ge=bound):
                bounds["at least"] = bound
            case annotated_types.Gt(gt=bound):
                bounds["greater than"] = bound
            case annotated_types.Le(le=bound):
                bounds["at most"] = bound
            case annotated_types.Lt(lt=bound):
                bounds["less than"] = bound
    if not bounds:
        return detail["msg"].replace("Input should be", "must be")
    return "must be " + " and ".join(f"{words} {bound}" for words, bound in bounds.items())


def _pattern_hint(field: FieldInfo | None) -> str | None:
    patterns = (getattr(constraint, "pattern", None) for constraint in _constraints(field))
    return next((PATTERN_HINTS[pattern] for pattern in patterns if pattern in PATTERN_HINTS), None)


def _constraints(field: FieldInfo | None) -> Iterator[Any]:
    """The bounds of a field, also those inside `Annotated[...] | None`."""
    if field is None:
        return
    yield from field.metadata
    for inner in typing.get_args(field.annotation):
        for metadata in getattr(inner, "__metadata__", ()):
            yield from metadata.metadata if isinstance(metadata, FieldInfo) else (metadata,)


def model_at(path: Path) -> type[BaseModel] | None:
    """The model that describes the mapping at a path of a manifest."""
    if not path:
        return RLHFJob
    return _model_in(_annotation_at(path))


def field_at(path: Path) -> FieldInfo | None:
    """The field that describes the value at a path of a manifest."""
    parent = model_at(path[:-1]) if path else None
    for name, field in (parent.model_fields if parent else {}).items():
        if path[-1] in (name, field.alias):
            return field
    return None


def _annotation_at(path: Path) -> Any:
    if isinstance(path[-1], int):
        return _annotation_at(path[:-1])
    field = field_at(path)
    return field.annotation if field else None


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside `X | None`, `tuple[X, ...]` and the like."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return annotation if issubclass(annotation, BaseModel) else None
    for inner in typing.get_args(annotation):
        found = _model_in(inner)
        if found:
            return found
    return None
