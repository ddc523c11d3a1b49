"""Kubernetes quantities as numbers: `500m`, `2Gi`, 4."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

UNITS: Final[Mapping[str, Decimal]] = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(1000),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("MGTPE", start=2)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}
QUANTITY_PATTERN: Final = rf"^[0-9]+(\.[0-9]+)?({'|'.join(unit for unit in UNITS if unit)})?$"
"""The quantities that make sense for a request: not negative, no exponent."""
_PARTS: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)")


def amount(quantity: object) -> Decimal | None:
    """The number that a quantity stands for; None for what is none."""
    match = _PARTS.fullmatch(str(quantity))
    return Decimal(match[1]) * UNITS[match[2]] if match and match[2] in UNITS else None
