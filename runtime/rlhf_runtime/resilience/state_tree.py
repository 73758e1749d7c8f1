"""Nested training state as a JSON skeleton and safetensors bytes: bit for bit, and without pickle.

What `state_dict()` of models and optimizers gives: dicts with str or int keys, lists, tuples, tensors, numpy
arrays of numbers, and JSON scalars (numpy's become Python's). A tensor that occurs twice (tied weights) is
stored once and comes back as one object; views that overlap only in part become tensors of their own.

In the skeleton scalars stand for themselves; all else is an object of one key that says what it is:
`{"t": tensor}`, `{"n": array}`, `{"d": [[key, node], ...]}`, `{"l": [node, ...]}` or for a
tuple `{"u": ...}`, and `{"p": [tensor, first row, rows of the whole]}` for a `RowPart`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from safetensors.torch import save as save_safetensors

from rlhf_runtime.errors import StateCorruptError, UnsupportedValueError

_ALLOWED = (
    "a state is made of dicts with str or int keys, lists, tuples, dense tensors, numpy arrays of numbers, "
    "str, int, float, bool and None"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowPart:
    """Some rows of a tensor whose others are in the states of other ranks.

    Attributes:
        tensor: The rows.
        first: Which of the whole tensor's rows is the first of them.
        total: How many rows the whole tensor has.
    """

    tensor: torch.Tensor
    first: int
    total: int


def join_parts(states: Sequence[Any]) -> Any:
    """One state from those of all ranks: `RowPart`s become whole tensors, all else is the first rank's.

    Raises:
        StateCorruptError: Parts do not fit together.
    """
    first = states[0]
    if isinstance(first, RowPart):
        parts = sorted(states, key=lambda part: part.first)
        whole = torch.cat([part.tensor for part in parts])
        if len(whole) != first.total:
            raise StateCorruptError(f"the parts of a tensor of {first.total} rows have {len(whole)} together")
        return whole
    if isinstance(first, dict):
        return {key: join_parts([state[key] for state in states]) for key in first}
    if isinstance(first, list | tuple):
        return type(first)(join_parts(items) for items in zip(*states, strict=True))
    return first


def pack_state(state: Mapping[str, Any], *, where: str = "state") -> tuple[Any, bytes]:
    """The skeleton and the tensors' bytes.

    Raises:
        UnsupportedValueError: Something in it cannot be stored; the message starts with its path.
    """
    packer = _Packer()
    try:
        skeleton = packer.node(state, where)
    except RecursionError:
        raise UnsupportedValueError(f"{where} is nested too deeply, or contains itself") from None
    return skeleton, save_safetensors(packer.tensors)


def unpack_state(skeleton: Any, data: bytes, *, where: str) -> Any:
    """The state, its tensors on the CPU; raises `StateCorruptError` when skeleton and bytes do not fit."""
    try:
        return _unpack(skeleton, load_safetensors(data))
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise StateCorruptError(f'"{where}" holds no state: {type(error).__name__}: {error}') from error


class _Packer:
    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._seen: dict[tuple[object, ...], tuple[str, torch.Tensor]] = {}

    def node(self, value: Any, path: str) -> Any:
        if isinstance(value, torch.Tensor):
            return {"t": self._tensor(value, path)}
        if isinstance(value, RowPart):
            return {"p": [self._tensor(value.tensor, path), value.first, value.total]}
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "biuf" or not value.dtype.isnative:
                raise UnsupportedValueError(f"{path} is a numpy array of type {value.dtype}: {_ALLOWED}")
            return {"n": self._tensor(torch.from_numpy(value.copy()), path)}
        if isinstance(value, Mapping):
            if wrong := [key for key in value if type(key) not in (str, int)]:
                raise UnsupportedValueError(f"{path} has the key {wrong[0]!r}: {_ALLOWED}")
            return {"d": [[key, self.node(item, f"{path}[{key!r}]")] for key, item in value.items()]}
        if isinstance(value, list | tuple):
            kind = "l" if isinstance(value, list) else "u"
            return {kind: [self.node(item, f"{path}[{index}]") for index, item in enumerate(value)]}
        if isinstance(value, np.generic) and value.dtype.kind in "biuf":
            return value.item()
        if value is None or isinstance(value, str | int | float):
            return value
        raise UnsupportedValueError(f'{path} is a "{type(value).__name__}": {_ALLOWED}')

    def _tensor(self, tensor: torch.Tensor, path: str) -> str:
        if tensor.layout != torch.strided or tensor.is_meta or hasattr(tensor, "to_local"):
            raise UnsupportedValueError(
                f"{path} is a {type(tensor).__name__} of layout {tensor.layout} on {tensor.device}: "
                f"{_ALLOWED}; of a distributed tensor give the local part"
            )
        name = str(len(self.tensors))
        if tensor.numel():  # empty tensors all have the address 0
            layout = (tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.is_conj())
            # The tensor is kept: were it freed, another could get its address.
            known, _ = self._seen.setdefault((tensor.data_ptr(), tensor.device, *layout), (name, tensor))
            if known != name:
                return known
        # A clone: a state that is still trained on must not move under the writer's hands, and safetensors
        # refuses tensors that share memory.
        self.tensors[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        return name


def _unpack(node: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(node, list):
        raise ValueError("a bare list in the skeleton")
    if not isinstance(node, dict):
        return node
    ((kind, content),) = node.items()
    if kind == "t":
        return tensors[content]
    if kind == "p":
        name, first, total = content
        return RowPart(tensor=tensors[name], first=int(first), total=int(total))
    if kind == "n":
        return tensors[content].numpy()
    if kind == "d":
        return {key: _unpack(item, tensors) for key, item in content}
    if kind == "l":
        return [_unpack(item, tensors) for item in content]
    if kind == "u":
        return tuple(_unpack(item, tensors) for item in content)
    raise ValueError(f'unknown node "{kind}" in the skeleton')
