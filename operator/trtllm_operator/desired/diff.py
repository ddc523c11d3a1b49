"""The first thing in which a live object differs from what we want; it becomes the reason that users read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

QUANTITY: Final = re.compile(r"(\d+(?:\.\d+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
FACTORS: Final[Mapping[str | None, Decimal]] = {
    None: Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(1000),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("MGTPE", start=2)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)},
}
QUANTITIES: Final = ("requests", "limits")
"""Objects whose values are quantities: the API server may write them back in another unit."""


def first_difference(desired: Any, live: Any) -> str | None:
    """For example `spec.template.spec.containers[0].image: "a" -> "b"` (live -> desired), or None.

    Only fields in `desired` count: what others added to the live object is theirs. Lists count by index and length.
    An empty object or list equals an absent one, because the API server drops it.
    """
    return _differ(desired, live, ())


def _differ(desired: Any, live: Any, path: tuple[str | int, ...]) -> str | None:
    if desired in ({}, []) and live is None:
        return None
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        pairs = [(name, value, live.get(name)) for name, value in desired.items()]
        return next((found for n, d, v in pairs if (found := _differ(d, v, (*path, n)))), None)
    if isinstance(desired, list | tuple) and isinstance(live, list | tuple):
        if len(desired) != len(live):
            return f"{_shown_path(path)}: {len(live)} -> {len(desired)} items"
        items = enumerate(zip(desired, live, strict=True))
        return next((found for i, (d, v) in items if (found := _differ(d, v, (*path, i)))), None)
    if desired == live or (_is_quantity(path) and _amount(desired) == _amount(live)):
        return None
    return f"{_shown_path(path)}: {_shown(live)} -> {_shown(desired)}"


def _is_quantity(path: tuple[str | int, ...]) -> bool:
    return len(path) > 1 and path[-2] in QUANTITIES


def _amount(value: Any) -> Any:
    """The number that a quantity stands for; anything else stands for itself."""
    match = QUANTITY.fullmatch(str(value))
    return Decimal(match[1]) * FACTORS[match[2]] if match else value


def _shown_path(path: tuple[str | int, ...]) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif re.fullmatch(r"[A-Za-z0-9]+", part):
            text += f".{part}"
        else:
            text += f'["{part}"]'
    return text.removeprefix(".")


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 120 else text[:117] + "..."
