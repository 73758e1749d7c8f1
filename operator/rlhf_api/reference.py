"""`docs/api.md`: the API reference, rendered from the same schema as the CustomResourceDefinition.

One section per object, in the order of a manifest. An object that occurs at several places (`resources`, `pod`, ...)
has its section at the first of them; the others point there.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rlhf_api import API_VERSION, KIND
from rlhf_api.crd import COLUMNS, WIDE_COLUMNS, Schema, root_schema
from rlhf_api.names import MAX_JOB_AND_ROLE_NAME_LENGTH, MAX_JOB_NAME_LENGTH
from rlhf_api.types.scalars import PATTERN_HINTS

_INTRODUCTION = f"""\
<!-- Generated from operator/rlhf_api by `make golden`; edit the models, not this file. -->
# API reference

`{KIND}`, `{API_VERSION}`. `kubectl explain rlhfjob.spec.roles` shows the same in a terminal, `rlhf validate FILE`
checks a manifest without a cluster, and the API server checks it with the same rules. [examples/](../examples) has
manifests to start from.

*Default* says what counts when a field is absent; a dash: nothing, or what the description says. An *immutable* field
cannot be changed once the job exists. A **quantity** is written as everywhere in Kubernetes: `500m`, `2`, `16Gi`.

`metadata.name` is a DNS-1035 name (lower-case letters, digits and `-`, beginning with a letter) of at most
{MAX_JOB_NAME_LENGTH} characters; together with the name of a role at most {MAX_JOB_AND_ROLE_NAME_LENGTH}.
"""
_NO_VALUE = "-"


@dataclass(slots=True, kw_only=True)
class _Section:
    path: str
    schema: Schema
    others: list[str] = field(default_factory=list)

    @property
    def is_status(self) -> bool:
        """Nobody writes it but the operator, and so its limits are of no use to a reader."""
        return self.path.startswith("status")


def render() -> str:
    """The reference as Markdown; the same bytes each time."""
    root = root_schema()
    sections: dict[str, _Section] = {}
    for name in ("spec", "status"):
        _collect(root["properties"][name], name, sections)
    parts = [_INTRODUCTION, "\n".join(_contents(list(sections.values())))]
    parts += ["\n".join(_text(section, sections)) for section in sections.values()]
    return "\n".join([*parts, "\n".join(_columns())])


def _collect(schema: Schema, path: str, sections: dict[str, _Section]) -> None:
    """Every object at or below a place, each different one once."""
    if "items" in schema:
        _collect(schema["items"], f"{path}[]", sections)
    if "properties" not in schema:
        return
    if known := sections.get(_identity(schema)):
        known.others.append(path)
        return
    sections[_identity(schema)] = _Section(path=path, schema=schema)
    for name, child in schema["properties"].items():
        _collect(child, f"{path}.{name}", sections)


def _identity(schema: Schema) -> str:
    return json.dumps({key: value for key, value in schema.items() if key not in ("description", "default")})


def _anchor(path: str) -> str:
    return re.sub(r"[^a-z0-9]", "", path.lower())


def _contents(sections: list[_Section]) -> Iterator[str]:
    for section in sections:
        depth = section.path.count(".")
        yield f"{'  ' * depth}- [{section.path}](#{_anchor(section.path)})"
    yield "- [What `kubectl get` shows](#what-kubectl-get-shows)"
    yield ""


def _text(section: _Section, sections: dict[str, _Section]) -> Iterator[str]:
    yield f"## {section.path}"
    yield ""
    yield section.schema["description"]
    if section.others:
        yield f"The same at {', '.join(f'`{path}`' for path in section.others)}."
    yield ""
    yield "| field | type | default | description |"
    yield "|---|---|---|---|"
    for name, schema in section.schema["properties"].items():
        text = schema["description"] if section.is_status else _described(name, section.schema)
        cells = (f"`{name}`", _type(schema, sections), _default(name, section.schema), text)
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
    yield ""
    rules = [rule for rule in section.schema.get("x-kubernetes-validations", ()) if not _fixes_a_field(rule)]
    if rules:
        yield "Rules:"
        yield ""
        yield from (f"- {_where(rule)}{rule['message']}" for rule in rules)
        yield ""


def _type(schema: Schema, sections: dict[str, _Section]) -> str:
    if "properties" in schema:
        return f"[object](#{_anchor(sections[_identity(schema)].path)})"
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'], sections).replace('[object]', '[objects]')}"
        case "object":
            return f"map to {_type(schema['additionalProperties'], sections)}"
        case "string":
            return "time" if schema.get("format") == "date-time" else "string"
        case None:
            return "number, string or boolean"
    return str(schema["type"])


def _default(name: str, parent: Schema) -> str:
    if name in parent.get("required", ()):
        return "**required**"
    default = parent["properties"][name].get("default")
    return _NO_VALUE if default in (None, {}) else f"`{json.dumps(default)}`"


def _described(name: str, parent: Schema) -> str:
    schema = parent["properties"][name]
    limits = [*_limits(schema)]
    if any(
        _about(rule, name) and "immutable" in rule["message"] for rule in parent.get("x-kubernetes-validations", ())
    ):
        limits.append("immutable")
    text = "; ".join(limits)
    return f"{schema['description']} *{text[:1].upper()}{text[1:]}.*" if limits else str(schema["description"])


def _limits(schema: Schema) -> Iterator[str]:
    if "enum" in schema:
        yield "one of " + ", ".join(f"`{word}`" for word in schema["enum"])
    if "maximum" in schema:
        above, below = (bool(schema.get(f"exclusive{end}")) for end in ("Minimum", "Maximum"))
        low, high = f"{schema['minimum']:,}", f"{schema['maximum']:,}"
        if above or below:
            yield f"{'above' if above else 'at least'} {low}, {'below' if below else 'at most'} {high}"
        else:
            yield f"{low} to {high}"
    if hint := PATTERN_HINTS.get(schema.get("pattern", "")):
        if not schema.get("x-kubernetes-int-or-string"):
            yield hint.removeprefix("must be ")
    if "maxLength" in schema and "enum" not in schema and not schema.get("x-kubernetes-int-or-string"):
        yield f"at most {schema['maxLength']:,} characters"
    if "maxItems" in schema:
        least = f"{schema['minItems']} to " if "minItems" in schema else "at most "
        yield f"{least}{schema['maxItems']} items"
    if keys := schema.get("x-kubernetes-list-map-keys"):
        yield f"told apart by {', '.join(f'`{key}`' for key in keys)}"
    if "maxProperties" in schema:
        yield f"at most {schema['maxProperties']} keys"
    if isinstance(schema.get("items"), dict) and "properties" not in schema["items"]:
        yield from (f"each {limit}" for limit in _limits(schema["items"]))


def _about(rule: dict[str, Any], name: str) -> bool:
    return bool(rule.get("fieldPath") == f".{name}")


def _fixes_a_field(rule: dict[str, Any]) -> bool:
    """Whether it is a plain rule that one field is immutable, which the table tells."""
    return bool(rule["message"].startswith(f"`{rule.get('fieldPath', '')[1:]}` is immutable"))


def _where(rule: dict[str, Any]) -> str:
    return f"`{rule['fieldPath'][1:]}`: " if "fieldPath" in rule else ""


def _columns() -> Iterator[str]:
    yield "## What `kubectl get` shows"
    yield ""
    yield "| column | of | meaning |"
    yield "|---|---|---|"
    for columns, note in ((COLUMNS, ""), (WIDE_COLUMNS, " With `--output=wide`.")):
        for name, _, path, description in columns:
            yield f"| {name.upper()} | `{path[1:]}` | {description}{note} |"
    yield ""
