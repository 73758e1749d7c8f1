"""Columns that are elsewhere: on the controller a batch holds references, and a column is fetched when it is read."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from typing import Any


class Reference:
    """Stands for a value that lies in another process. `len` gives its rows without fetching it."""

    __slots__ = ()

    def get(self) -> Any:
        """Fetch the value; a second call gives the same object."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


class Columns(dict[str, Any]):
    """A dict in which a reference is fetched when it is read, and stays a reference for whoever asks `held`."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return value.get() if isinstance(value, Reference) else value

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()  # its presence keeps `dict(columns)` and `**columns` from copying the references

    def get(self, name: str, default: Any = None) -> Any:
        """The value, fetched if it must be."""
        return self[name] if name in self else default

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        """Names and fetched values."""
        return ItemsView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """Fetched values."""
        return ValuesView(self)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove a column and give its value, fetched."""
        value = super().pop(name, *default)
        return value.get() if isinstance(value, Reference) else value

    def copy(self) -> Columns:
        """The same columns; nothing is fetched."""
        return Columns(held(self))

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return fetching(held(self) | held(other))

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        return fetching(held(other) | held(self))

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == other

    __hash__ = None


def held(values: Mapping[str, Any]) -> dict[str, Any]:
    """What the mapping holds, references as references."""
    return dict(dict.items(values)) if isinstance(values, dict) else dict(values)


def fetching(values: dict[str, Any]) -> dict[str, Any]:
    """The dict itself, or if it holds references one that fetches them when they are read."""
    is_plain = isinstance(values, Columns) or not any(isinstance(value, Reference) for value in values.values())
    return values if is_plain else Columns(values)
