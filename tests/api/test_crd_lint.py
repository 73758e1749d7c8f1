"""What reviewers of Kubernetes APIs look for, checked over the whole schema."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlhf_api import crd

Schema = dict[str, Any]

FREE_MAPS = ("labels", "annotations", "nodeSelector", "arguments", "parameters", "extended")
CEL_WORDS = (
    "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
    "let", "loop", "package", "namespace", "return", "var", "void", "while",
)  # fmt: skip
ORDERED_OBJECT_LISTS = ("rules", "tolerations", "envFrom")


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


ROOT = crd.root_schema()
NODES = [(path, schema) for path, schema in walk(ROOT) if path.startswith(("spec", "status"))]


def last(path: str) -> str:
    return path.rsplit(".", 1)[-1]


def described(path: str, schema: Schema) -> bool:
    is_element = path.endswith(("[]", "{}"))
    return is_element or (schema.get("description", "").endswith(".") and len(schema["description"]) < 200)


def string_bounded(path: str, schema: Schema) -> bool:
    return schema.get("type") != "string" or "maxLength" in schema or "enum" in schema


def quantity_bounded(path: str, schema: Schema) -> bool:
    return not schema.get("x-kubernetes-int-or-string") or {"maxLength", "pattern"} <= schema.keys()


def list_bounded(path: str, schema: Schema) -> bool:
    return schema.get("type") != "array" or "maxItems" in schema


def number_bounded(path: str, schema: Schema) -> bool:
    return schema.get("type") not in ("integer", "number") or {"minimum", "maximum"} <= schema.keys()


def list_typed(path: str, schema: Schema) -> bool:
    if schema.get("type") != "array":
        return True
    kind = schema.get("x-kubernetes-list-type")
    if schema["items"].get("type") == "object" and last(path) not in ORDERED_OBJECT_LISTS:
        keys = schema.get("x-kubernetes-list-map-keys", [])
        return kind == "map" and set(keys) <= set(schema["items"]["required"])
    return kind in ("set", "atomic")


def float_is_a_hyperparameter(path: str, schema: Schema) -> bool:
    return schema.get("type") != "number" or path.startswith("spec.algorithm.")


def map_is_free_form(path: str, schema: Schema) -> bool:
    if schema.get("type") != "object" or "properties" in schema:
        return True
    return last(path) in FREE_MAPS and "maxProperties" in schema and "additionalProperties" in schema


def structural(path: str, schema: Schema) -> bool:
    allowed_any = [{"type": "integer"}, {"type": "string"}]
    typed = "type" in schema or "x-kubernetes-int-or-string" in schema or path.endswith("{}")
    return (
        typed and not {"$ref", "title", "const", "$defs"} & schema.keys() and schema.get("anyOf") in (None, allowed_any)
    )


def default_fits(path: str, schema: Schema) -> bool:
    default = schema.get("default")
    return default is None or "enum" not in schema or default in schema["enum"]


def duration_names_its_unit(path: str, schema: Schema) -> bool:
    about_time = any(word in last(path).lower() for word in ("timeout", "deadline", "period", "ttl", "backoff"))
    return not about_time or schema.get("type") != "integer" or "Seconds" in path


def camel_case(path: str, schema: Schema) -> bool:
    name = last(path).rstrip("[]{}")
    return name.isalnum() and name[0].islower()


LINTS = (
    described,
    string_bounded,
    quantity_bounded,
    list_bounded,
    number_bounded,
    list_typed,
    float_is_a_hyperparameter,
    map_is_free_form,
    structural,
    default_fits,
    duration_names_its_unit,
    camel_case,
)


@pytest.mark.parametrize("lint", LINTS, ids=lambda lint: lint.__name__)
def test_every_field_is(lint: Callable[[str, Schema], bool]) -> None:
    assert [path for path, schema in NODES if not lint(path, schema)] == []


def test_rules_point_at_fields_that_exist_and_say_what_must_be() -> None:
    for path, schema in walk(ROOT):
        for rule in schema.get("x-kubernetes-validations", ()):
            target = schema
            # CEL reads a field whose name is one of its own words only with underscores around it.
            assert not re.search(rf"\.({'|'.join(CEL_WORDS)})\b", rule["rule"]), f"{path}: {rule['rule']}"
            for part in rule.get("fieldPath", "").split(".")[1:]:
                assert part in target["properties"], f"{path}: {rule['fieldPath']}"
                target = target["properties"][part]
            assert "must" in rule["message"] or "immutable" in rule["message"], rule["message"]
