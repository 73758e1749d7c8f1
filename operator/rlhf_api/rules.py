"""The offline side of the rules that the API server applies as CEL and list types.

`broken_rules` walks a parsed model and reports what a create would be refused for; `check_update` what an
update of a living object would be.
"""

from collections.abc import Iterator
from typing import Any

from pydantic.fields import FieldInfo

from rlhf_api.errors import FieldError, Path
from rlhf_api.types.base import ApiModel


def broken_rules(model: ApiModel, path: Path = ()) -> Iterator[FieldError]:
    """Every cross-field rule that the model, or a model within it, breaks."""
    for rule in model.invariants:
        for where in rule.paths(model):
            yield FieldError(path=path + where, message=rule.message)
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        where = (*path, field.alias or name)
        if isinstance(value, ApiModel):
            yield from broken_rules(value, where)
        elif isinstance(value, tuple):
            yield from _repeated(value, field, where)
            for index, item in enumerate(value):
                if isinstance(item, ApiModel):
                    yield from broken_rules(item, (*where, index))


def check_update(old: ApiModel, new: ApiModel, path: Path = ()) -> Iterator[FieldError]:
    """Everything that an update from one version of an object to another would be refused for."""
    refused: set[Path] = set()
    for change in new.transitions:
        if not change.holds(old, new):
            refused.add(change.path)
            yield FieldError(path=path + change.path, message=change.message)
    for name, field in type(new).model_fields.items():
        before, after = getattr(old, name), getattr(new, name)
        where = (*path, field.alias or name)
        if where[-1:] in refused and not isinstance(after, tuple):
            continue
        if isinstance(before, ApiModel) and isinstance(after, ApiModel):
            yield from check_update(before, after, where)
        elif isinstance(after, tuple) and (keys := _list_map_keys(field)):
            earlier = {_key(item, keys): item for item in before}
            for index, item in enumerate(after):
                if _key(item, keys) in earlier:
                    yield from check_update(earlier[_key(item, keys)], item, (*where, index))


def _extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _list_map_keys(field: FieldInfo) -> tuple[str, ...]:
    return tuple(_extra(field).get("x-kubernetes-list-map-keys", ()))


def _key(item: Any, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(getattr(item, key) for key in keys)


def _repeated(items: tuple[Any, ...], field: FieldInfo, path: Path) -> Iterator[FieldError]:
    keys = _list_map_keys(field)
    if not keys and _extra(field).get("x-kubernetes-list-type") != "set":
        return
    first: dict[Any, int] = {}
    for index, item in enumerate(items):
        key = _key(item, keys) if keys else item
        if key in first:
            where: Path = (*path, index, *keys)
            yield FieldError(path=where, message=f"must be unique; {path[-1]}[{first[key]}] has the same")
        first.setdefault(key, index)
