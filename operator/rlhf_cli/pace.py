"""How long a job will still take, from the steps that were seen done."""

from __future__ import annotations

from collections import deque

_LONGEST = 20


class Pace:
    """Watches steps and times; the guess is that of the steps seen last, so that it also holds after a suspension."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque(maxlen=_LONGEST)

    def saw(self, step: int, at: float) -> None:
        """Note a step; one that is lower than the last (after a rollback) begins anew."""
        if self._seen and step < self._seen[-1][0]:
            self._seen.clear()
        if not self._seen or step > self._seen[-1][0]:
            self._seen.append((step, at))

    def seconds_left(self, total: int, now: float) -> float | None:
        """A guess for the steps to `total`; None while fewer than two different steps were seen."""
        if len(self._seen) < 2:
            return None
        (first, began), (last, ended) = self._seen[0], self._seen[-1]
        each = (ended - began) / (last - first)
        return max(0.0, (total - last) * each - (now - ended))
