from decimal import Decimal

import pytest
from pydantic import TypeAdapter, ValidationError

from rlhf_api.quantity import parse_quantity
from rlhf_api.types.scalars import Quantity


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1", 1),
        ("500m", Decimal("0.5")),
        ("0.5", Decimal("0.5")),
        (".5", Decimal("0.5")),
        ("2.", 2),
        ("2Gi", 2 * 1024**3),
        ("1.5Gi", 3 * 1024**3 // 2),
        ("16G", 16 * 10**9),
        ("128Ki", 128 * 1024),
        ("1k", 1000),
        ("1e3", 1000),
        ("1E", 10**18),
        ("2E3", 2000),
    ],
)
def test_stands_for(text: str, want: Decimal | int) -> None:
    assert parse_quantity(text) == want
    assert TypeAdapter(Quantity).validate_python(text) == text


@pytest.mark.parametrize("text", ["", ".", "Gi", "-1", "16GB", "1 Gi", "1gi", "0x10", "1e", "½"])
def test_is_no_quantity_to_anyone(text: str) -> None:
    with pytest.raises(ValueError, match="must be a Kubernetes quantity"):
        parse_quantity(text)
    with pytest.raises(ValidationError):
        TypeAdapter(Quantity).validate_python(text)
