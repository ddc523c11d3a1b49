"""Every section of LlmArgs that the schema allows, for properties."""

import enum
import types
import typing
from typing import Any

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from trtllm_operator.api.llm_args import LlmArgs

LONGEST = 4
"""Items of a list, and characters of a text: enough to tell mistakes, and quick."""


def llm_args() -> st.SearchStrategy[LlmArgs]:
    """Valid arguments of one model, as a person may write them."""
    return _section(LlmArgs).map(lambda data: LlmArgs.model_validate({**data, "model": "owner/name"}))


def _section(model: type[BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    required: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in model.model_fields.items():
        strategy = _value(field.annotation, field.metadata)
        (required if field.is_required() else optional)[field.alias or name] = strategy
    return st.fixed_dictionaries(required, optional=optional)


def _value(annotation: Any, metadata: list[Any]) -> st.SearchStrategy[Any]:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _value(inner[0], [*_constraints(inner[1:]), *metadata])
    if origin in (typing.Union, types.UnionType):
        return st.one_of([_value(one, metadata) for one in inner if one is not type(None)])
    if origin is typing.Literal:
        return st.sampled_from(inner)
    if origin is tuple:
        low, high = _first(metadata, MinLen, "min_length", 0), _first(metadata, MaxLen, "max_length", LONGEST)
        return st.lists(_value(inner[0], []), min_size=low, max_size=min(high, LONGEST))
    if origin is dict:
        return st.dictionaries(st.text("abz", min_size=1), _value(inner[1], []), max_size=LONGEST)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _section(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return st.sampled_from([member.value for member in annotation])
    if annotation is bool:
        return st.booleans()
    if annotation is int:
        low = _first(metadata, Ge, "ge", 0)
        limits: list[Any] = [one.le for one in metadata if isinstance(one, Le)]
        highest = min(limits, default=2**31)
        return st.integers(low, min(highest, low + 100_000))
    if annotation is float:
        return st.floats(
            _first(metadata, Ge, "ge", _first(metadata, Gt, "gt", -1e6)),
            _first(metadata, Le, "le", _first(metadata, Lt, "lt", 1e6)),
            exclude_min=_first(metadata, Gt, "gt", None) is not None,
            exclude_max=_first(metadata, Lt, "lt", None) is not None,
        )
    assert annotation is str, annotation
    low, high = _first(metadata, MinLen, "min_length", 0), _first(metadata, MaxLen, "max_length", LONGEST)
    # A name has a pattern; everything else may hold whatever YAML has a meaning for.
    alphabet = "aZ0_" if any(getattr(one, "pattern", None) for one in metadata) else "aZ0 #:'\"{}-\n~é&*!%"
    return st.text(alphabet, min_size=low, max_size=max(low, min(high, LONGEST)))


def _constraints(metadata: tuple[Any, ...]) -> list[Any]:
    return [inner for one in metadata for inner in (one.metadata if isinstance(one, FieldInfo) else [one])]


def _first(metadata: list[Any], kind: type, name: str, default: Any) -> Any:
    return next((getattr(one, name) for one in metadata if isinstance(one, kind)), default)
