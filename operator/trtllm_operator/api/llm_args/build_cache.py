"""LlmArgs `enable_build_cache`: the reference's own cache of engines."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ..schema import ApiModel
from .bounds import Positive, Text
from .facts import Ref


class BuildCacheConfig(ApiModel):
    """The reference's cache of engines. The reference's true is an empty section."""

    cache_root: Annotated[Text | None, Ref(None, "build")] = None
    """Folder of the cache."""
    max_records: Annotated[Positive | None, Ref(10, "build")] = None
    """Engines that are kept."""
    max_cache_storage_gb: Annotated[float | None, Field(ge=0, le=1048576), Ref(256, "build")] = None
    """Largest size of the cache, in GB."""
