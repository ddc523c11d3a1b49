"""What a machine can ask for instead of text."""

from __future__ import annotations

import enum


class Format(enum.StrEnum):
    """Of `--output`."""

    JSON = "json"
    YAML = "yaml"
