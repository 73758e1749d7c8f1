"""What every model of the API shares: how it is read, and its rules.

A cross-field rule is written once, beside the model it belongs to, as CEL for the API server and as Python
for the offline check; so is a rule about an update. `x-kubernetes-validations` in the CRD and `rlhf_api.rules`
read that one table.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One rule about an update of one model; the first create is always free.

    Attributes:
        cel: The rule for the API server; `oldSelf` is the model as it was, `self` as it is to be.
        message: What is refused and why; both sides print it.
        holds: The same rule over the parsed models, the old one first.
        field: The field that an error points at, as in `Rule`.
    """

    cel: str
    message: str
    holds: Callable[[Any, Any], bool]
    field: str

    @property
    def path(self) -> Path:
        """The field as a path relative to the model."""
        return tuple(self.field.split("."))


def immutable(*fields: str) -> tuple[Transition, ...]:
    """Rules that an update must leave these fields as they are."""
    return tuple(_immutable(field) for field in fields)


def _immutable(field: str) -> Transition:
    name = to_camel(field)
    new, old = f"self.{name}", f"oldSelf.{name}"
    return Transition(
        cel=f"has({new}) == has({old}) && (!has({new}) || {new} == {old})",
        message=f"`{name}` is immutable; make another job to have it otherwise",
        field=name,
        holds=lambda before, after: getattr(before, field) == getattr(after, field),
    )


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
    for change in model.transitions:
        validations.append({"rule": change.cel, "message": change.message, "fieldPath": f".{change.field}"})
    if validations:
        schema["x-kubernetes-validations"] = validations


class ApiModel(BaseModel):
    """The base of every model: camelCase in YAML, unknown fields refused, instances immutable.

    Making one checks its shape and bounds. The rules between fields are for `rlhf_api.rules.broken_rules`, which
    reports all that are broken, each at its field.

    Attributes:
        invariants: The rules between the fields of this model.
        transitions: The rules about an update of this model.
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
    transitions: ClassVar[tuple[Transition, ...]] = ()


def list_map(*keys: str) -> dict[str, JsonValue]:
    """The schema annotations of a list whose items are told apart by these fields."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


LIST_SET: dict[str, JsonValue] = {"x-kubernetes-list-type": "set"}
ATOMIC: dict[str, JsonValue] = {"x-kubernetes-list-type": "atomic"}
