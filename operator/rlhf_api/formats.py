"""Numbers and times as status, events and termination messages have them: text."""

from __future__ import annotations

import math
from datetime import UTC, datetime

_LONGEST_DECIMAL = 7


def decimal(value: float | None) -> str | None:
    """A number as text of at most seven characters; None if it is no number or needs more."""
    if value is None or not math.isfinite(value):
        return None
    for digits in (4, 3, 2, 1, 0):
        text = f"{value:.{digits}f}"
        if len(text) <= _LONGEST_DECIMAL:
            return text
    return None


def parse_time(text: str | None) -> datetime | None:
    """The moment that a timestamp of the API names; None for none."""
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """A moment as the API writes it, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
