"""What every model of the API shares: how it is read, its rules, and the bounded building blocks.

A cross-field rule is written once, beside the model it belongs to, as CEL for the API server and as Python
for the offline check. `x-kubernetes-validations` in the CRD and `rlhf_api.rules` read that one table.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator
from pydantic.alias_generators import to_camel
from pydantic.types import JsonValue

from rlhf_api.errors import Path
from rlhf_api.names import DNS_1035_PATTERN


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One cross-field rule of one model.

    Attributes:
        cel: The rule for the API server; `self` is the model.
        message: What would be right; both sides print it.
        holds: The same rule over the parsed model.
        field: The field that an error points at, camelCase, dotted and relative to the model.
        culprits: Sharper paths for the offline message, relative to the model.
    """

    cel: str
    message: str
    holds: Callable[[Any], bool]
    field: str = ""
    culprits: Callable[[Any], Iterable[Path]] | None = None

    def paths(self, model: Any) -> list[Path]:
        """Where the rule is broken; empty when it holds."""
        if self.holds(model):
            return []
        sharper = list(self.culprits(model)) if self.culprits else []
        return sharper or [tuple(self.field.split(".")) if self.field else ()]


def one_of(*fields: str, optional: bool = False) -> Rule:
    """A rule that one of some fields is set, or at most one of them when `optional`."""
    count = " + ".join(f"(has(self.{to_camel(field)}) ? 1 : 0)" for field in fields)
    names = ", ".join(f"`{to_camel(field)}`" for field in fields)

    def holds(model: Any) -> bool:
        found = sum(getattr(model, field) is not None for field in fields)
        return found <= 1 if optional else found == 1

    return Rule(
        cel=f"{count} {'<=' if optional else '=='} 1",
        message=f"must have {'at most' if optional else 'exactly'} one of {names}",
        holds=holds,
    )


def _extend_schema(schema: dict[str, Any], model: type[BaseModel]) -> None:
    assert issubclass(model, ApiModel)
    validations: list[dict[str, str]] = []
    for rule in model.invariants:
        validations.append({"rule": rule.cel, "message": rule.message})
        if rule.field:
            validations[-1]["fieldPath"] = f".{rule.field}"
    for name in model.immutable:
        old, new = f"oldSelf.{name}", f"self.{name}"
        cel = f"has({new}) == has({old}) && (!has({new}) || {new} == {old})"
        validations.append({"rule": cel, "message": f"`{name}` is immutable", "fieldPath": f".{name}"})
    if validations:
        schema["x-kubernetes-validations"] = validations


class ApiModel(BaseModel):
    """The base of every model: camelCase in YAML, unknown fields refused, instances immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=False,
        json_schema_extra=_extend_schema,
    )

    invariants: ClassVar[tuple[Rule, ...]] = ()
    immutable: ClassVar[tuple[str, ...]] = ()


PATTERN_HINTS: dict[str, str] = {
    DNS_1035_PATTERN: "must be a DNS-1035 name: lower-case letters, digits and `-`, beginning with a letter",
}


def _pattern(expression: str, hint: str) -> str:
    PATTERN_HINTS[expression] = hint
    return expression


LABEL_KEY = _pattern(
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    'must be a qualified name such as "nvidia.com/gpu"',
)
QUANTITY = _pattern(
    r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][-+]?[0-9]{1,2})?$",
    'must be a Kubernetes quantity such as "500m", "2" or "16Gi"',
)
IMPORT_PATH = _pattern(
    r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*$",
    'must be "package.module:Name"',
)
IMPORT_PATH_OR_AUTO = _pattern(
    r"^(Auto|[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*)$",
    'must be "Auto" or "package.module:Class"',
)
ENV_NAME = _pattern(
    r"^[A-Za-z_][A-Za-z0-9_.-]*$",
    "must be letters, digits, `_`, `-` and `.`, not beginning with a digit",
)
ABSOLUTE_PATH = _pattern(r"^/[^:]*$", "must be an absolute path without `:`")
RELATIVE_PATH = _pattern(
    r"^([^/.:][^/:]*|\.[^/.:][^/:]*)(/([^/.:][^/:]*|\.[^/.:][^/:]*))*$",
    "must be a relative path without `..`",
)
URI = _pattern(r"^[a-z][a-z0-9+.-]*://[^ ]+$", 'must be a URI such as "s3://bucket/folder"')
DECIMAL = _pattern(r"^-?[0-9]+(\.[0-9]+)?$", 'must be a decimal number in quotes, "0.97"')
REPO_ID = _pattern(
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?$",
    'must be a repository such as "organization/name"',
)


MAX_PARAMETER_LENGTH = 4096


def _quantity_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Name = Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_1035_PATTERN)]
ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
ShortText = Annotated[str, Field(min_length=1, max_length=63)]
Text = Annotated[str, Field(min_length=1, max_length=253)]
LongText = Annotated[str, Field(max_length=4096)]
AbsolutePath = Annotated[str, Field(min_length=1, max_length=1024, pattern=ABSOLUTE_PATH)]
RelativePath = Annotated[str, Field(min_length=1, max_length=1024, pattern=RELATIVE_PATH)]
QualifiedName = Annotated[str, Field(min_length=1, max_length=253, pattern=LABEL_KEY)]
Timestamp = Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]
Decimal = Annotated[str, Field(max_length=7, pattern=DECIMAL)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Seconds = Annotated[int, Field(ge=0, le=31_536_000)]
PositiveSeconds = Annotated[int, Field(ge=1, le=31_536_000)]
LearningRate = Annotated[float, Field(ge=0, le=1)]

Quantity = Annotated[
    str,
    Field(min_length=1, max_length=32, pattern=QUANTITY, json_schema_extra={"x-kubernetes-int-or-string": True}),
    BeforeValidator(_quantity_text),
]
"""A Kubernetes quantity; a whole number in YAML is read as its text."""

LabelMap = Annotated[
    dict[str, Annotated[str, Field(max_length=253)]],
    Field(max_length=64),
]
QuantityMap = Annotated[dict[str, Quantity], Field(max_length=16)]


def _parameter_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be a finite number")
    if not isinstance(value, bool | int | float | str):
        raise ValueError("must be a number, a string, true or false")
    if isinstance(value, str) and len(value) > MAX_PARAMETER_LENGTH:
        raise ValueError(f"must be at most {MAX_PARAMETER_LENGTH} characters long")
    return value


ParameterValue = Annotated[bool | int | float | str, PlainValidator(_parameter_value)]
Parameters = Annotated[
    dict[str, ParameterValue],
    Field(
        max_length=64,
        json_schema_extra={
            # A value has no type in a structural schema when several are allowed. Length limits apply only to
            # strings, and contradicting limits on items and properties refuse lists and mappings.
            "additionalProperties": {
                "x-kubernetes-preserve-unknown-fields": True,
                "maxLength": MAX_PARAMETER_LENGTH,
                "minItems": 1,
                "maxItems": 0,
                "minProperties": 1,
                "maxProperties": 0,
            }
        },
    ),
]
"""Free-form arguments of user code: names to numbers, strings and booleans."""


def list_map(*keys: str) -> dict[str, JsonValue]:
    """The schema annotations of a list whose items are told apart by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


LIST_SET: dict[str, JsonValue] = {"x-kubernetes-list-type": "set"}
ATOMIC: dict[str, JsonValue] = {"x-kubernetes-list-type": "atomic"}
