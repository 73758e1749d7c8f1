"""`ColumnSpec`: what the receiver of a buffer must know to decode one value of it, see `wire`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from rlhf_runtime.errors import WireFormatError

Bytes = bytes | bytearray | memoryview | np.ndarray[Any, Any]

ALIGNMENT = 64
INLINE_LIMIT = 1024  # bytes of JSON

KINDS = frozenset({"tensor", "ndarray", "list", "json", "mapping", "text", "loss", "proto"})
_NUMPY_TYPE = re.compile(r"[<>|=][biufc](1|2|4|8|16)")
_TORCH_TYPES: Mapping[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(
            torch.uint16,
            torch.uint32,
            torch.uint64,
            torch.bfloat16,
            torch.float16,
            torch.float32,
            torch.float64,
        ),
        *(torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128),
    )
}


def torch_dtype(name: str | None) -> torch.dtype | None:
    """The tensor type of this name ("bfloat16") if it can travel."""
    return None if name is None else _TORCH_TYPES.get(name)


def check_ndarray_dtype(name: str | None) -> np.dtype[Any] | None:
    """The array type of this name ("<f4") if it can travel: plain numbers and bools, never objects."""
    if name is None or not _NUMPY_TYPE.fullmatch(name):
        return None
    try:
        return np.dtype(name)
    except TypeError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSpec:
    """Describes one encoded value.

    Attributes:
        kind: "tensor", "ndarray", "list", "json", "mapping", "text", "loss" or "proto".
        rows: How many rows it has; None: it is not batched.
        offset: Where its bytes start in the buffer.
        nbytes: How many they are; 0 for what is inline or nested.
        dtype: Of a tensor ("bfloat16") or array ("<f4").
        shape: Of a tensor or array, rows included.
        text: The JSON text of a small "json" or "list", or a loss's number; see `inline`.
        columns: The parts of a "mapping", "text" (`text`, `tokens`), "loss" (`recipe`) or "proto".
        meta: A batch's `meta_info`.
        pad: "left" or "right": shards of other widths are joined with zeros on that side; empty: they do not fit.
    """

    kind: str
    rows: int | None = None
    offset: int = 0
    nbytes: int = 0
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    text: str | None = None
    columns: Mapping[str, ColumnSpec] = field(default_factory=dict)
    meta: ColumnSpec | None = None
    pad: str = ""

    @property
    def has_inline(self) -> bool:
        """Whether `inline` gives the value without the buffer."""
        return self.text is not None

    @property
    def inline(self) -> Any:
        """A small JSON value or list, new at each call; of a loss its float.

        Raises:
            WireFormatError: The value is in the buffer.
        """
        if self.text is None:
            raise WireFormatError(f"the value of this {self.kind} column is in the buffer")
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise WireFormatError(f"the inline value of a {self.kind} column is not JSON: {error}") from error
        if isinstance(value, list) != (self.kind == "list"):
            raise WireFormatError(f"a {self.kind} column holds a {type(value).__name__}")
        return value

    @property
    def total_bytes(self) -> int:
        """What decoding this value reads from the buffer, with all that is nested in it."""
        nested = sum(column.total_bytes for column in self.columns.values())
        return self.nbytes + nested + (self.meta.total_bytes if self.meta else 0)

    def to_json(self) -> dict[str, Any]:
        """A JSON object without what has its default value."""
        out: dict[str, Any] = {"kind": self.kind}
        if self.rows is not None:
            out["rows"] = self.rows
        if self.nbytes or self.dtype is not None:
            out |= {"offset": self.offset, "nbytes": self.nbytes}
        if self.dtype is not None:
            out |= {"dtype": self.dtype, "shape": list(self.shape)}
        if self.text is not None:
            out["text"] = self.text
        if self.columns:
            out["columns"] = {name: column.to_json() for name, column in self.columns.items()}
        if self.meta is not None:
            out["meta"] = self.meta.to_json()
        if self.pad:
            out["pad"] = self.pad
        return out

    @classmethod
    def from_json(cls, data: object) -> ColumnSpec:
        """Read what `to_json` gave; raises `WireFormatError` for anything else."""
        if not isinstance(data, dict) or str(data.get("kind")) not in KINDS or data.keys() - _FIELDS:
            raise WireFormatError(f"not a column description: {str(data)[:200]}")
        shape, columns, meta = data.get("shape", []), data.get("columns", {}), data.get("meta")
        if not isinstance(shape, list) or not isinstance(columns, dict):
            raise WireFormatError(f"not a column description: {str(data)[:200]}")
        numbers = [data.get("rows", 0), data.get("offset", 0), data.get("nbytes", 0), *shape]
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise WireFormatError(f"a column's rows, offset, size and shape are counts: {str(data)[:200]}")
        if not all(isinstance(data.get(name, ""), str) for name in ("dtype", "text", "pad")):
            raise WireFormatError(f"a column's type, inline text and side are strings: {str(data)[:200]}")
        try:
            nested = {name: cls.from_json(column) for name, column in columns.items()}
            inner = None if meta is None else cls.from_json(meta)
        except RecursionError:
            raise WireFormatError("a column description is nested too deeply") from None
        return cls(
            kind=data["kind"],
            rows=data.get("rows"),
            offset=data.get("offset", 0),
            nbytes=data.get("nbytes", 0),
            dtype=data.get("dtype"),
            shape=tuple(shape),
            text=data.get("text"),
            columns=nested,
            meta=inner,
            pad=data.get("pad", ""),
        )


_FIELDS = frozenset(ColumnSpec.__dataclass_fields__)
