"""What a verifier must know of a problem besides its answer, as text that travels with the samples.

JSON alone would turn tuples into lists, and some verifiers compare them.
"""

import json
from collections.abc import Mapping
from typing import Any

_TUPLE = "__tuple__"


def pack(metadata: Mapping[str, Any]) -> str:
    """`metadata` as one line; what JSON does not know becomes its text."""
    return json.dumps(_tagged(metadata), default=str, ensure_ascii=False)


def unpack(text: str) -> dict[str, Any]:
    """What `pack` was given; mappings have strings for keys."""
    value: dict[str, Any] = json.loads(text, object_hook=_untagged)
    return value


def _tagged(value: Any) -> Any:
    if isinstance(value, tuple):
        return {_TUPLE: [_tagged(item) for item in value]}
    if isinstance(value, list):
        return [_tagged(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _tagged(item) for key, item in value.items()}
    return value


def _untagged(value: dict[str, Any]) -> Any:
    return tuple(value[_TUPLE]) if value.keys() == {_TUPLE} else value
