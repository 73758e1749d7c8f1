"""Answers that may be some seconds old, so that a job that is looked at often asks seldom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Cached(Generic[K, V]):
    """Remembers what was found for each key, for some time. Those who ask at the same time wait for one answer.

    Args:
        clock: Of this process, seconds.
        seconds: How old an answer may be. An error is not remembered.
    """

    def __init__(self, clock: Callable[[], float], *, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._found: dict[K, tuple[float, V]] = {}
        self._locks: dict[K, asyncio.Lock] = {}

    async def get(self, key: K, ask: Callable[[K], Awaitable[V]]) -> V:
        """What `ask` says, or said not long ago."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = self._found.get(key)
            if found is None or self._clock() - found[0] >= self._seconds:
                found = (self._clock(), await ask(key))
                self._found[key] = found
            return found[1]

    def forget(self, unwanted: Callable[[K], bool]) -> None:
        """Drop the answers for some keys."""
        for key in [key for key in self._found if unwanted(key)]:
            del self._found[key]
            self._locks.pop(key, None)
