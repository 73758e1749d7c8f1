"""The bounded building blocks of the API: names, quantities, durations, free-form maps.

Everything a user can write has an upper bound, so that the API server can tell what a rule costs, and a pattern
with a hint, so that a refusal says what would be right.
"""

import math
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainValidator

from rlhf_api.names import DNS_1035_PATTERN

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
AbsolutePath = Annotated[str, Field(min_length=1, max_length=512, pattern=ABSOLUTE_PATH)]
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
