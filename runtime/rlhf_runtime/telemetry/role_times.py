"""Who worked when: time per role, and the time of a step that no role's method covers.

The latter is what the framework itself costs: `outside_roles_fraction`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rlhf_runtime.control.events import Event


@dataclass(slots=True)
class RoleTimes:
    """Intervals of worker methods, by role, by the workers' own clocks."""

    intervals: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    windows: list[tuple[float, float]] = field(default_factory=list)

    def add(self, event: Event) -> None:
        """Take an "end" event."""
        self.intervals.setdefault(event.role, []).append((event.started, event.ended))

    def add_step(self, began: float, ended: float) -> None:
        """Take a training step's wall time."""
        self.windows.append((began, ended))

    def wall(self) -> float:
        """Seconds of training steps."""
        return sum(end - start for start, end in merged(self.windows))

    def working(self, role: str) -> float:
        """Seconds of training steps during which at least one worker of `role` ran a method."""
        return overlap(merged(self.windows), merged(self.intervals.get(role, [])))

    def outside_fraction(self) -> float:
        """Share of the training steps' wall time that no role's method covers."""
        wall = self.wall()
        every = merged([interval for intervals in self.intervals.values() for interval in intervals])
        return 1.0 - overlap(merged(self.windows), every) / wall if wall else 0.0


def merged(intervals: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The union as disjoint intervals, in order."""
    union: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def overlap(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> float:
    """Seconds that two lists of disjoint, ordered intervals have in common."""
    total, i, j = 0.0, 0, 0
    while i < len(a) and j < len(b):
        total += max(0.0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return total
