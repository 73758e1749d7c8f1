"""Kubernetes quantities as numbers: `500m` is half a core, `2Gi` is 2,147,483,648 bytes."""

import re
from decimal import Decimal

_SUFFIXES = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
_FORM = re.compile(r"([0-9]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)([a-zA-Z]*)")


def parse_quantity(text: str) -> Decimal:
    """The number that a quantity stands for, in cores, bytes or pieces.

    Raises:
        ValueError: The text is no quantity; fields of type `Quantity` never hold one.
    """
    match = _FORM.fullmatch(text)
    if match is None or match[2] not in _SUFFIXES or not any(digit.isdigit() for digit in match[1]):
        raise ValueError(f'"{text}" must be a Kubernetes quantity such as "500m", "2" or "16Gi"')
    return Decimal(match[1]) * _SUFFIXES[match[2]]
