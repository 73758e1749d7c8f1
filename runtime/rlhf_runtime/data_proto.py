"""`DataProto`: the batch that roles hand each other, a table of rows with tensor and other columns.

The names are verl's: `batch` holds tensors of one common first dimension, `non_tensor_batch` lists of
that length with JSON values, `meta_info` what belongs to the batch as a whole. Methods return a new batch and
leave their own unchanged; slices and column selections share memory with it: write nothing in place.
It is a plain dict of tensors and not a tensordict, whose import alone costs a role's restart half a second.

On the controller a column may be a reference to what a role made (`references`): choosing, dropping, renaming and
uniting columns moves no data, nor does passing the batch to another role; reading a column, and whatever
works on rows, fetches it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
import torch

from rlhf_runtime.errors import DataError, UnknownColumnError, WireFormatError
from rlhf_runtime.references import Reference, fetching, held

_FORMAT = "rlhf.data/1"

RowIndex = slice | Sequence[int] | Sequence[bool] | torch.Tensor | np.ndarray[Any, Any]


class SupportsGet(Protocol):
    """A future: `get` waits for the batch."""

    def get(self) -> DataProto: ...  # noqa: D102


@runtime_checkable
class SupportsReferences(Protocol):
    """A future that can give its batch without the data: `references` waits until the columns are known."""

    def references(self) -> DataProto: ...  # noqa: D102


@dataclass(slots=True, eq=False, repr=False)
class DataProto:
    """A batch of rows in named columns; a name is either in `batch` or in `non_tensor_batch`.

    A batch without columns has no rows. Raises `DataError` when lengths differ or a name is given twice.
    """

    batch: dict[str, torch.Tensor] = field(default_factory=dict)
    non_tensor_batch: dict[str, list[Any]] = field(default_factory=dict)
    meta_info: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.batch, self.non_tensor_batch = fetching(self.batch), fetching(self.non_tensor_batch)
        self.meta_info = fetching(self.meta_info)
        rows: int | None = None
        first = ""
        for name, column in self._held().items():
            if isinstance(column, torch.Tensor) and column.dim() == 0:
                raise DataError(f'column "{name}" is a tensor without dimensions: its first must be the rows')
            if rows is None:
                rows, first = len(column), name
            elif len(column) != rows:
                raise DataError(f'column "{name}" has {len(column)} rows, but "{first}" has {rows}')
        if twice := self.batch.keys() & self.non_tensor_batch.keys():
            raise DataError(f'column "{min(twice)}" is given twice: as a tensor and as a list')

    @classmethod
    def from_dict(
        cls,
        tensors: Mapping[str, torch.Tensor] | None = None,
        non_tensors: Mapping[str, Sequence[Any] | np.ndarray[Any, Any]] | None = None,
        meta_info: Mapping[str, Any] | None = None,
    ) -> DataProto:
        """Make a batch; numpy object arrays and tuples become lists.

        Raises:
            DataError: A column has the wrong type or another length than the first; the message names it.
        """
        for name, tensor in (tensors or {}).items():
            if not isinstance(tensor, torch.Tensor):
                raise DataError(f'column "{name}" must be a tensor, not a "{type(tensor).__name__}"')
        lists: dict[str, list[Any]] = {}
        for name, items in (non_tensors or {}).items():
            if isinstance(items, np.ndarray):
                items = items.tolist()
            if isinstance(items, str) or not isinstance(items, Sequence):
                raise DataError(f'column "{name}" must be a list, not a "{type(items).__name__}"')
            lists[name] = list(items)
        return cls(dict(tensors or {}), lists, dict(meta_info or {}))

    @property
    def columns(self) -> list[str]:
        """The names of all columns, tensors first."""
        return [*self.batch, *self.non_tensor_batch]

    def __len__(self) -> int:
        return next((len(column) for column in self._held().values()), 0)

    def __repr__(self) -> str:
        parts = [f"{name}: {_shown(column)}" for name, column in self._held().items()]
        return f"DataProto({len(self)} rows, {', '.join(parts) or 'no columns'}, meta_info={held(self.meta_info)!r})"

    def __iter__(self) -> Iterator[DataProto]:
        return (self[row] for row in range(len(self)))

    @overload
    def __getitem__(self, key: str) -> Any: ...

    @overload
    def __getitem__(self, key: int | RowIndex) -> DataProto: ...

    def __getitem__(self, key: str | int | RowIndex) -> Any:
        """A column by its name; or rows by an int (one row), slice, indices or a mask, as another batch."""
        if isinstance(key, str):
            self._require([key])
            return self.batch[key] if key in self.batch else self.non_tensor_batch[key]
        if isinstance(key, int | np.integer):
            row = int(key)
            if not -len(self) <= row < len(self):
                raise IndexError(f"row {row} of a batch of {len(self)} rows")
            row %= len(self)
            return self[row : row + 1]
        if isinstance(key, slice):
            if key.step is not None and key.step < 0:
                return self.reorder(range(len(self))[key])
            return self._with({k: t[key] for k, t in self.batch.items()}, lambda items: items[key])
        return self.reorder(self._indices(key))

    def select(self, columns: Iterable[str]) -> DataProto:
        """Keep these columns only; `meta_info` stays."""
        names = list(columns)
        self._require(names)
        columns = self._held()
        return DataProto(
            {n: columns[n] for n in names if n in self.batch},
            {n: columns[n] for n in names if n in self.non_tensor_batch},
            held(self.meta_info),
        )

    def drop(self, columns: Iterable[str]) -> DataProto:
        """Keep all but these columns."""
        names = set(columns)
        self._require(names)
        return self.select(n for n in self.columns if n not in names)

    def rename(self, names: Mapping[str, str]) -> DataProto:
        """Rename columns, old name to new; raises `DataError` when two columns would get one name."""
        self._require(names)
        renamed = [names.get(n, n) for n in self.columns]
        if len(set(renamed)) < len(renamed):
            raise DataError(f'column "{max(renamed, key=renamed.count)}" would be there twice after the renaming')
        return DataProto(
            {names.get(n, n): t for n, t in held(self.batch).items()},
            {names.get(n, n): items for n, items in held(self.non_tensor_batch).items()},
            held(self.meta_info),
        )

    def union(self, other: DataProto | SupportsGet) -> DataProto:
        """Put the columns of two batches of the same rows side by side.

        A future is waited for; its columns stay where they are until they are read. A column or `meta_info` key that
        both have must be equal in both, else `DataError` names it; to compare two that lie elsewhere fetches them.
        """
        if not isinstance(other, DataProto):
            other = other.references() if isinstance(other, SupportsReferences) else other.get()
        if self.columns and other.columns and len(self) != len(other):
            raise DataError(f"a batch of {len(self)} rows cannot be united with one of {len(other)} rows")
        for mine, theirs, what in (
            (self._held(), other._held(), "column"),
            (held(self.meta_info), held(other.meta_info), "meta_info"),
        ):
            for name in mine.keys() & theirs.keys():
                if mine[name] is not theirs[name] and not same_value(_value(mine[name]), _value(theirs[name])):
                    raise DataError(f'{what} "{name}" is in both batches and differs: drop or rename one')
        return DataProto(
            held(self.batch) | held(other.batch),
            held(self.non_tensor_batch) | held(other.non_tensor_batch),
            held(self.meta_info) | held(other.meta_info),
        )

    def chunk(self, n: int) -> list[DataProto]:
        """Cut into `n` parts whose sizes differ by at most one, the longer ones first; some may be empty."""
        if n < 1:
            raise DataError(f"a batch cannot be cut into {n} parts")
        size, longer = divmod(len(self), n)
        starts = [i * size + min(i, longer) for i in range(n + 1)]
        return [self[a:b] for a, b in pairwise(starts)]

    def split(self, size: int) -> list[DataProto]:
        """Cut into parts of `size` rows, the last of which may be shorter."""
        if size < 1:
            raise DataError(f"a batch cannot be split into parts of {size} rows")
        return [self[start : start + size] for start in range(0, len(self), size)]

    @staticmethod
    def concat(parts: Sequence[DataProto]) -> DataProto:
        """Put batches of the same columns below each other.

        A `meta_info` key with the same value in all parts keeps it; where they differ (metrics of several
        ranks) it becomes the list of the parts' values in their order, None where a part has none.
        """
        if not parts:
            raise DataError("concat needs at least one batch")
        first = parts[0]
        for index, part in enumerate(parts[1:], start=1):
            for names, others in ((first.batch, part.batch), (first.non_tensor_batch, part.non_tensor_batch)):
                if odd := names.keys() ^ others.keys():
                    raise DataError(f'column "{min(odd)}" is not alike in parts 0 and {index} of the concat')
        keys = dict.fromkeys(key for part in parts for key in part.meta_info)
        meta = {key: _merge([part.meta_info.get(key) for part in parts]) for key in keys}
        return DataProto(
            {name: concat_tensors([p.batch[name] for p in parts], name) for name in first.batch},
            {name: [x for p in parts for x in p.non_tensor_batch[name]] for name in first.non_tensor_batch},
            meta,
        )

    def repeat(self, times: int, interleave: bool = True) -> DataProto:
        """Repeat each row `times` times in place, or the whole batch as a block when not `interleave`."""
        if times < 0:
            raise DataError(f"rows cannot be repeated {times} times")
        rows = torch.arange(len(self))
        return self.reorder(rows.repeat_interleave(times) if interleave else rows.repeat(times))

    def reorder(self, indices: Sequence[int] | torch.Tensor) -> DataProto:
        """The rows at these indices, in their order; an index may come more than once."""
        rows = indices.tolist() if isinstance(indices, torch.Tensor) else [int(i) for i in indices]
        if bad := [row for row in rows if not -len(self) <= row < len(self)]:
            raise IndexError(f"row {bad[0]} of a batch of {len(self)} rows")
        index = torch.tensor(rows, dtype=torch.long)
        return self._with(
            {k: t[index.to(t.device)] for k, t in self.batch.items()},
            lambda items: [items[row] for row in rows],
        )

    def pad_to_divisor(self, n: int) -> tuple[DataProto, int]:
        """Append rows, repeated from the start, until `n` divides their number; returns how many too."""
        if n < 1:
            raise DataError(f"rows cannot be padded to a multiple of {n}")
        pad_rows = -len(self) % n
        if pad_rows == 0:
            return self, 0
        return self.reorder([i % len(self) for i in range(len(self) + pad_rows)]), pad_rows

    def unpad(self, pad_rows: int) -> DataProto:
        """Take the rows away that `pad_to_divisor` appended."""
        if not 0 <= pad_rows <= len(self):
            raise DataError(f"{pad_rows} rows cannot be taken from a batch of {len(self)}")
        return self[: len(self) - pad_rows]

    def to(self, device: torch.device | str) -> DataProto:
        """Move the tensors to a device."""
        return self._with({k: t.to(device) for k, t in self.batch.items()}, lambda items: items)

    def equals(self, other: DataProto) -> bool:
        """Whether both hold the same names, types and values, bit for bit; the columns' order is ignored."""
        pairs = (
            (self.batch, other.batch),
            (self.non_tensor_batch, other.non_tensor_batch),
            (self.meta_info, other.meta_info),
        )
        return all(a.keys() == b.keys() and all(same_value(a[k], b[k]) for k in a) for a, b in pairs)

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, with the rest as JSON in its metadata."""
        from safetensors.torch import save_file

        try:
            rest = {
                "non_tensor_batch": json.dumps(self.non_tensor_batch),
                "meta_info": json.dumps(self.meta_info),
            }
        except (TypeError, ValueError) as error:
            raise DataError(f"only JSON values can be saved beside the tensors: {error}") from error
        # A clone each: safetensors refuses columns that share memory, as slices of one tensor do.
        tensors = {
            name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in self.batch.items()
        }
        save_file(tensors, str(path), metadata={"format": _FORMAT, **rest})

    @classmethod
    def load(cls, path: str | Path) -> DataProto:
        """Read what `save` wrote.

        Raises:
            WireFormatError: The file is something else; nothing in it is ever executed.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), framework="pt") as file:
                meta = file.metadata() or {}
                if meta.get("format") != _FORMAT:
                    raise WireFormatError(f'"{path}" is no saved DataProto: it lacks the mark "{_FORMAT}"')
                tensors = {name: file.get_tensor(name) for name in file.keys()}
            return cls(tensors, json.loads(meta["non_tensor_batch"]), json.loads(meta["meta_info"]))
        except (SafetensorError, json.JSONDecodeError, KeyError) as error:
            raise WireFormatError(f'"{path}" is no saved DataProto: {error}') from error

    def _with(self, batch: dict[str, torch.Tensor], items: Any) -> DataProto:
        lists = {name: items(column) for name, column in self.non_tensor_batch.items()}
        return DataProto(batch, lists, held(self.meta_info))

    def _held(self) -> dict[str, Any]:
        return held(self.batch) | held(self.non_tensor_batch)

    def _require(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.batch and name not in self.non_tensor_batch:
                raise UnknownColumnError(f'no column "{name}"; there are: {", ".join(self.columns) or "none"}')

    def _indices(self, key: Any) -> list[int]:
        index = torch.as_tensor(key)
        if index.dim() != 1 or (index.numel() and (index.is_floating_point() or index.is_complex())):
            raise DataError("rows are chosen by an int, a slice, a list of ints or bools, or such a tensor")
        if index.dtype == torch.bool:
            if len(index) != len(self):
                raise DataError(f"a mask of {len(index)} does not fit a batch of {len(self)} rows")
            index = index.nonzero().flatten()
        return [int(i) for i in index.tolist()]


def _value(column: Any) -> Any:
    return column.get() if isinstance(column, Reference) else column


def _shown(column: Any) -> str:
    if isinstance(column, torch.Tensor):
        return f"{str(column.dtype)[6:]}{list(column.shape)}"
    return "elsewhere" if isinstance(column, Reference) else "list"


def same_value(a: Any, b: Any) -> bool:
    """Whether two column or meta values are the same; tensors bit for bit, so that NaN equals NaN."""
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            return False
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        a, b = a.detach().to(b.device), b.detach()
        if torch.equal(a, b) or a.numel() == 0:
            return True
        # `contiguous()` would not do: it leaves one row of a longer stride, which no other type can view.
        bits = [t.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for t in (a, b)]
        return torch.equal(bits[0], bits[1])
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return type(a) is type(b) and a.dtype == b.dtype and np.array_equal(a, b)
    return bool(a == b) or repr(a) == repr(b)  # repr: NaN differs from itself


def concat_tensors(tensors: Sequence[torch.Tensor], name: str) -> torch.Tensor:
    """`torch.cat` along the rows that names the column when types or shapes of a row differ."""
    first = tensors[0]
    for tensor in tensors[1:]:
        if tensor.dtype != first.dtype:
            raise DataError(f'column "{name}" is {first.dtype} in one part and {tensor.dtype} in another')
        if tensor.shape[1:] != first.shape[1:]:
            raise DataError(
                f'column "{name}" has rows of shape {list(first.shape[1:])} in one part and '
                f"{list(tensor.shape[1:])} in another: pad them to one length first"
            )
    return torch.cat(list(tensors))


def _merge(values: list[Any]) -> Any:
    return values[0] if all(same_value(value, values[0]) for value in values[1:]) else values
