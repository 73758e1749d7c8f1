"""What every model of the API shares: how it is read, and its rules.

A cross-field rule is written once, beside the model it belongs to, as CEL for the API server and as Python
for the offline check. `x-kubernetes-validations` in the CRD and `rlhf_api.rules` read that one table.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.types import JsonValue

from rlhf_api.errors import Path


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
    """The base of every model: camelCase in YAML, unknown fields refused, instances immutable.

    Making one checks its shape and bounds. The rules between fields are for `rlhf_api.rules.broken_rules`, which
    reports all that are broken, each at its field.

    Attributes:
        invariants: The rules between the fields of this model.
        immutable: The fields, in camelCase, that an update must leave as they are.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        json_schema_extra=_extend_schema,
    )

    invariants: ClassVar[tuple[Rule, ...]] = ()
    immutable: ClassVar[tuple[str, ...]] = ()


def list_map(*keys: str) -> dict[str, JsonValue]:
    """The schema annotations of a list whose items are told apart by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


LIST_SET: dict[str, JsonValue] = {"x-kubernetes-list-type": "set"}
ATOMIC: dict[str, JsonValue] = {"x-kubernetes-list-type": "atomic"}
