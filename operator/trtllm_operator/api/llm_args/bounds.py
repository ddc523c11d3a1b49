"""The ranges that arguments share. Every list, string and map has a maximum: the cost of CEL is judged by it."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

INT32_MAX: Final = 2**31 - 1

Count = Annotated[int, Field(ge=0, le=INT32_MAX)]
Positive = Annotated[int, Field(ge=1, le=INT32_MAX)]
Degree = Annotated[int, Field(ge=1, le=4096)]
Tokens = Annotated[int, Field(ge=1, le=16777216)]
Batch = Annotated[int, Field(ge=1, le=65536)]
Beams = Annotated[int, Field(ge=1, le=1024)]
Bytes = Annotated[int, Field(ge=0, le=2**50)]
Share = Annotated[float, Field(ge=0, le=1)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
"""A share strictly between nothing and everything."""
Word = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
"""A name out of an open list: the image decides what it knows."""
Text = Annotated[str, Field(min_length=1, max_length=512)]
"""A path, or a repository of the hub."""
Choices = Annotated[tuple[Annotated[tuple[Count, ...], Field(max_length=64)], ...], Field(max_length=1024)]
"""A tree of draft tokens: each entry is the path to a node, as ranks among the candidates of each step."""
