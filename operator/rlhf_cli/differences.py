"""Where two versions of an object differ, in the words of a manifest. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rlhf_api.errors import Path

_ABSENT: Any = object()
_LONGEST = 40
Difference = tuple[Path, str, str]


def differences(old: Any, new: Any) -> list[Difference]:
    """The path, the old and the new value of each difference; items of lists are told apart by name.

    An item that is gone or new is one difference.
    """
    return list(_walk(old, new, ()))


def _walk(old: Any, new: Any, path: Path) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _walk(old.get(key, _ABSENT), new.get(key, _ABSENT), (*path, key))
    elif _are_named(old) and _are_named(new):
        before, after = ({item["name"]: item for item in items} for items in (old, new))
        for name in [*before, *(name for name in after if name not in before)]:
            yield from _walk(before.get(name, _ABSENT), after.get(name, _ABSENT), (*path, name))
    elif old is _ABSENT or new is _ABSENT or old != new:
        yield path, _text(old), _text(new)


def _are_named(items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, Mapping) and "name" in item for item in items)


def _text(value: Any) -> str:
    if value is _ABSENT:
        return "(absent)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
