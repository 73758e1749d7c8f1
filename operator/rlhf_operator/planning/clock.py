"""Times as Kubernetes writes them, and waits that differ between jobs without chance."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime


def parse_time(text: str | None) -> datetime | None:
    """The moment that a timestamp of the API names; None for none."""
    if not text:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """A moment as the API writes it, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def spread(seed: str) -> float:
    """A number from 0 to 1 that looks random and is always the same for one seed."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") / 2**64
