"""The wire format between role processes: named values in one flat buffer, and a description of each.

A worker's reply is one `Packed`: a byte buffer that moves once, through shared memory where there is some,
and a `ColumnSpec` per value, small enough to pass through the controller. Whoever has a spec and the buffer
decodes that value alone, or some of its rows; tensors then lie in the buffer itself, without a copy. There is
no pickle: the bytes hold numbers and JSON, and decoding what somebody else made up yields wrong numbers or a
`WireFormatError`, never a call.

    value                                     kind       rows
    tensor, numpy array                       tensor,    the first dimension; None without dimensions
                                              ndarray
    list or tuple of JSON values              list       its length
    JSON value (str, number, bool, None,      json       None: not batched
    dict); numpy scalars become Python's
    dict with other values than JSON          mapping    None
    TokenizedText, DataProto                  text,      its length
                                              proto
    Loss                                      loss       None

**Decoded tensors must not be written in place**: the buffer is shared with every other reader of it, and
torch has no read-only tensors. `clone()` first.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
import torch

from rlhf_runtime.data_proto import DataProto, concat_tensors, same_value
from rlhf_runtime.errors import DataError, UnsupportedValueError, WireFormatError
from rlhf_runtime.values import Loss, TokenizedText
from rlhf_runtime.wire_spec import (
    ALIGNMENT,
    INLINE_LIMIT,
    Bytes,
    ColumnSpec,
    check_ndarray_dtype,
    torch_dtype,
)

__all__ = ["ColumnSpec", "Packed", "aligned_buffer", "concat", "decode", "encode", "row_count", "slice_rows"]

_ALLOWED = (
    "allowed are tensors, numpy arrays of numbers, str, int, float, bool, None, lists and str-keyed dicts of "
    "these five, dicts of such values, TokenizedText, Loss and DataProto"
)
_PLAIN = frozenset({str, int, float, bool, type(None)})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """Encoded values: a description of each by its name, and the one buffer (1-D, uint8) that they lie in."""

    columns: dict[str, ColumnSpec]
    buffer: np.ndarray[Any, np.dtype[np.uint8]]


def encode(
    values: Mapping[str, object],
    *,
    where: str = "outputs",
    whole: Collection[str] = (),
    pad: Mapping[str, str] | None = None,
) -> Packed:
    """Copy the values into one new buffer; tensors may be on any device and of any strides.

    A path in an error reads `outputs["samples"][3]`, with `where` in place of `outputs`. The values named in `whole`
    have no rows whatever their type: a list in a batch's `meta_info`, say. `pad` names the tensors whose width may
    differ between shards, and the side on which `concat` fills them up.

    Raises:
        UnsupportedValueError: A value cannot travel; the message starts with its path.
    """
    writer = _Writer()
    columns = {name: writer.add(value, f'{where}["{name}"]') for name, value in values.items()}
    columns |= {name: replace(columns[name], rows=None) for name in whole}
    columns |= {name: replace(columns[name], pad=side) for name, side in (pad or {}).items() if name in columns}
    return Packed(columns=columns, buffer=writer.finish())


def decode(spec: ColumnSpec, buffer: Bytes, *, rows: slice | None = None) -> object:
    """The value, or some of its rows; a value that is not batched is given whole whatever the rows.

    Tensors and arrays are views of the buffer and keep it alive; do not write to them.

    Raises:
        WireFormatError: The buffer and the spec do not belong together.
    """
    try:
        value = _decode(spec, flat_tensor(buffer))
    except (RuntimeError, OverflowError, ValueError, TypeError, KeyError) as error:
        if isinstance(error, WireFormatError):
            raise
        raise WireFormatError(f"a {spec.kind} column is malformed: {error}") from error
    if spec.rows is None:
        return value
    if row_count(value) != spec.rows:
        raise WireFormatError(f"a {spec.kind} of {row_count(value)} rows was announced with {spec.rows}")
    return value if rows is None else slice_rows(value, rows)


def concat(parts: Sequence[object], *, whole: bool = False, pad: str = "") -> object:
    """Join one column's decoded shards in rank order; with `whole` as values that are not batched.

    With `pad` ("left" or "right"), tensors of other widths are filled up with zeros on that side.

    Batched values (tensors, arrays, lists, TokenizedText, DataProto) are put below each other. Values that
    are not batched give the one value when all are equal, and the list of them when they differ.

    Raises:
        DataError: The parts are of different kinds, types or row shapes.
    """
    if not parts:
        raise DataError("concat needs at least one part")
    if len(parts) == 1:
        return parts[0]
    batched = [not whole and row_count(part) is not None for part in parts]
    if not any(batched):
        return parts[0] if all(_same(part, parts[0]) for part in parts[1:]) else list(parts)
    if pad and all(isinstance(part, torch.Tensor) and part.dim() > 1 for part in parts):
        parts = _equally_wide(parts, pad)
    for kind in (torch.Tensor, np.ndarray, TokenizedText, DataProto, list | tuple):
        if all(isinstance(part, kind) for part in parts) and all(batched):
            return _join(list(parts))
    types = ", ".join(dict.fromkeys(type(part).__name__ for part in parts))
    raise DataError(f"shards of one column are of different kinds: {types}")


def _equally_wide(parts: Sequence[Any], side: str) -> list[torch.Tensor]:
    width = max(part.shape[1] for part in parts)

    def widened(part: torch.Tensor) -> torch.Tensor:
        missing = part.new_zeros((part.shape[0], width - part.shape[1], *part.shape[2:]))
        return torch.cat([missing, part] if side == "left" else [part, missing], dim=1)

    return [part if part.shape[1] == width else widened(part) for part in parts]


def row_count(value: object) -> int | None:
    """The number of rows of a batched value, None for one that is not batched."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return int(value.shape[0]) if value.ndim else None
    return len(value) if isinstance(value, list | tuple | DataProto) else None


def slice_rows(value: object, rows: slice) -> object:
    """These rows of a batched value, as a view where it has tensors; another value as it is."""
    return value if row_count(value) is None else value[rows]  # type: ignore[index]


def aligned_buffer(nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Zeroed bytes at a 64-byte boundary.

    Vectorized kernels may add in another order at another alignment: redone work has to find its tensors
    as they were.
    """
    raw = np.zeros(nbytes + ALIGNMENT, dtype=np.uint8)
    start = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[start : start + nbytes]


class _Writer:
    """Lays values out first and copies them second, so that the buffer is allocated once."""

    def __init__(self) -> None:
        self._size = 0
        self._pieces: list[tuple[int, int, torch.Tensor | np.ndarray[Any, Any] | bytes]] = []

    def add(self, value: object, path: str) -> ColumnSpec:
        if isinstance(value, torch.Tensor):
            return self._add_tensor(value, path)
        if isinstance(value, np.ndarray):
            return self._add_ndarray(value, path)
        if isinstance(value, DataProto):
            columns = {name: self.add(value[name], f'{path}["{name}"]') for name in value.columns}
            meta = self.add(value.meta_info, f"{path}.meta_info")
            return ColumnSpec(kind="proto", rows=len(value), columns=columns, meta=meta)
        if isinstance(value, TokenizedText):
            columns = {
                "text": self.add(list(value), path),
                "tokens": self.add(value.tokens, f"{path}.tokens"),
            }
            return ColumnSpec(kind="text", rows=len(value), columns=columns)
        if isinstance(value, Loss):
            recipe = self._add_mapping(value.recipe, f"{path}.recipe")
            return ColumnSpec(kind="loss", text=json.dumps(float(value)), columns={"recipe": recipe})
        try:
            plain = _plain(value, path)
        except UnsupportedValueError:
            if not isinstance(value, Mapping):
                raise
            return self._add_mapping(value, path)
        except RecursionError:
            raise UnsupportedValueError(f"{path} is nested too deeply, or contains itself") from None
        rows = len(plain) if isinstance(plain, list) else None
        kind = "json" if rows is None else "list"
        text = json.dumps(plain, separators=(",", ":"))
        if len(text) < INLINE_LIMIT:
            return ColumnSpec(kind=kind, rows=rows, text=text)
        return ColumnSpec(kind=kind, rows=rows, offset=self._place(text.encode(), len(text)), nbytes=len(text))

    def _add_mapping(self, value: Mapping[Any, object], path: str) -> ColumnSpec:
        _check_keys(value, path)
        try:
            columns = {name: self.add(item, f'{path}["{name}"]') for name, item in value.items()}
        except RecursionError:
            raise UnsupportedValueError(f"{path} is nested too deeply, or contains itself") from None
        return ColumnSpec(kind="mapping", columns=columns)

    def _add_tensor(self, tensor: torch.Tensor, path: str) -> ColumnSpec:
        dtype = str(tensor.dtype).removeprefix("torch.")
        if tensor.layout != torch.strided or tensor.is_meta or torch_dtype(dtype) is None:
            raise UnsupportedValueError(
                f"{path} is a tensor of layout {tensor.layout}, type {dtype}, on {tensor.device}: "
                "only dense tensors of numbers or bools can travel"
            )
        nbytes = tensor.numel() * tensor.element_size()
        shape = tuple(tensor.shape)
        offset = self._place(tensor, nbytes)
        rows = shape[0] if shape else None
        return ColumnSpec(kind="tensor", rows=rows, offset=offset, nbytes=nbytes, dtype=dtype, shape=shape)

    def _add_ndarray(self, array: np.ndarray[Any, Any], path: str) -> ColumnSpec:
        dtype = array.dtype.str
        if check_ndarray_dtype(dtype) is None or array.dtype.fields is not None:
            raise UnsupportedValueError(f"{path} is a numpy array of type {array.dtype}: use a list (.tolist())")
        offset = self._place(array, array.nbytes)
        rows = array.shape[0] if array.ndim else None
        shape = array.shape
        return ColumnSpec(kind="ndarray", rows=rows, offset=offset, nbytes=array.nbytes, dtype=dtype, shape=shape)

    def _place(self, piece: torch.Tensor | np.ndarray[Any, Any] | bytes, nbytes: int) -> int:
        offset = self._size
        self._pieces.append((offset, nbytes, piece))
        self._size = offset + nbytes + -nbytes % ALIGNMENT
        return offset

    def finish(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        buffer = aligned_buffer(self._size)
        flat = torch.from_numpy(buffer)
        for offset, nbytes, piece in self._pieces:
            if isinstance(piece, torch.Tensor):
                place = flat[offset : offset + nbytes].view(piece.dtype).view(piece.shape)
                place.copy_(piece.detach())
            elif isinstance(piece, bytes):
                buffer[offset : offset + nbytes] = np.frombuffer(piece, dtype=np.uint8)
            else:
                np.copyto(buffer[offset : offset + nbytes].view(piece.dtype).reshape(piece.shape), piece)
        return buffer


def _plain(value: Any, path: str) -> Any:
    """The value in plain JSON types; raises UnsupportedValueError for what JSON would not give back."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if isinstance(value, list | tuple) and not isinstance(value, TokenizedText):
        if set(map(type, value)) <= _PLAIN:  # at C speed: the usual list of numbers or strings
            return list(value) if kind is tuple else value
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        _check_keys(value, path)
        return {str(key): _plain(item, f'{path}["{key}"]') for key, item in value.items()}
    if isinstance(value, np.generic) and check_ndarray_dtype(value.dtype.str) and value.dtype.kind != "c":
        return value.item()
    if isinstance(value, str | int | float) and not isinstance(value, Loss):
        base = next(base for base in (str, int, float) if isinstance(value, base))
        return base(value) if base is not str else str.__str__(value)
    raise UnsupportedValueError(f'{path} is a "{kind.__name__}", which cannot travel: {_ALLOWED}')


def _check_keys(value: Mapping[Any, object], path: str) -> None:
    for key in value:
        if not isinstance(key, str):
            raise UnsupportedValueError(f'{path} has the key {key!r} of type "{type(key).__name__}": use strings')


class _Window:
    """Lends numpy someone else's bytes without their read-only mark, which torch would warn about.

    Torch has no read-only tensors. `warnings.catch_warnings` around `torch.frombuffer` would do as well, but
    it changes a setting of the whole process, and workers have several threads.
    """

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, owner: np.ndarray[Any, Any]) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "data": (owner.__array_interface__["data"][0], False),
            "shape": (owner.size,),
            "typestr": "|u1",
            "version": 3,
        }


def flat_tensor(buffer: Bytes) -> torch.Tensor:
    """The bytes as a 1-D uint8 tensor that shares and keeps them; it must not be written to."""
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, dtype=np.uint8)
    if array.dtype != np.uint8 or array.ndim != 1 or not array.flags.c_contiguous:
        raise WireFormatError(f"a buffer is one contiguous row of bytes, not {array.dtype}{list(array.shape)}")
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Window(array)))


def _decode(spec: ColumnSpec, flat: torch.Tensor) -> Any:
    if spec.kind == "tensor":
        dtype = torch_dtype(spec.dtype)
        if dtype is None:
            raise WireFormatError(f'a tensor of unknown type "{spec.dtype}"')
        return _bytes_of(spec, flat, dtype.itemsize).view(dtype).view(spec.shape)
    if spec.kind == "ndarray":
        numpy_dtype = check_ndarray_dtype(spec.dtype)
        if numpy_dtype is None:
            raise WireFormatError(f'an array of unknown type "{spec.dtype}"')
        array = _bytes_of(spec, flat, numpy_dtype.itemsize).numpy().view(numpy_dtype).reshape(spec.shape)
        array.flags.writeable = False
        return array
    if spec.kind in ("json", "list"):
        if spec.has_inline:
            return spec.inline
        try:
            value = json.loads(_bytes_of(spec, flat, 1).numpy().tobytes())
        except (ValueError, RecursionError) as error:
            raise WireFormatError(f"a {spec.kind} column is not JSON: {error}") from error
        if isinstance(value, list) != (spec.kind == "list"):
            raise WireFormatError(f"a {spec.kind} column holds a {type(value).__name__}")
        return value
    nested = {name: _decode(column, flat) for name, column in spec.columns.items()}
    if spec.kind == "mapping":
        return nested
    if spec.kind == "loss" and isinstance(nested["recipe"], dict):
        return Loss(float(spec.inline), nested["recipe"])
    if spec.kind == "text" and isinstance(nested["tokens"], DataProto):
        return TokenizedText(map(_string, nested["text"]), nested["tokens"])
    if spec.kind == "proto" and spec.meta is not None:
        tensors = {name: value for name, value in nested.items() if isinstance(value, torch.Tensor)}
        lists = {name: value for name, value in nested.items() if name not in tensors}
        return DataProto.from_dict(tensors, lists, _decode(spec.meta, flat))
    raise WireFormatError(f'a column of unknown kind or content: "{spec.kind}"')


def _string(item: object) -> str:
    if not isinstance(item, str):
        raise WireFormatError(f"a text column holds a {type(item).__name__}")
    return item


def _bytes_of(spec: ColumnSpec, flat: torch.Tensor, itemsize: int) -> torch.Tensor:
    wrong_size = spec.kind in ("tensor", "ndarray") and spec.nbytes != prod(spec.shape) * itemsize
    if wrong_size or spec.offset + spec.nbytes > len(flat) or spec.offset % itemsize:
        raise WireFormatError(
            f"a {spec.kind} column of shape {list(spec.shape)} cannot be {spec.nbytes} bytes "
            f"at {spec.offset} of a buffer of {len(flat)}"
        )
    return flat[spec.offset : spec.offset + spec.nbytes]


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Loss):
        return float(a) == float(b) and _same(dict(a.recipe), dict(b.recipe))
    if isinstance(a, DataProto):
        return a.equals(b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    return same_value(a, b)


def _join(parts: list[Any]) -> object:
    if isinstance(parts[0], torch.Tensor):
        return concat_tensors(parts, "joined")
    if isinstance(parts[0], np.ndarray):
        try:
            return np.concatenate(parts, dtype=parts[0].dtype, casting="no")
        except (ValueError, TypeError) as error:
            raise DataError(f"shards of one column do not fit: {error}") from error
    if isinstance(parts[0], TokenizedText):
        return TokenizedText.concat(parts)
    if isinstance(parts[0], DataProto):
        return DataProto.concat(parts)
    return [item for part in parts for item in part]
