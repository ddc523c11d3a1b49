"""LlmArgs `scheduler_config`: which requests enter an iteration."""

from __future__ import annotations

import enum
from typing import Annotated

from ..schema import ApiModel
from .bounds import Positive
from .facts import REQUIRED, Ref


class CapacitySchedulerPolicy(enum.StrEnum):
    """When a request may enter."""

    MAX_UTILIZATION = "MAX_UTILIZATION"
    GUARANTEED_NO_EVICT = "GUARANTEED_NO_EVICT"
    STATIC_BATCH = "STATIC_BATCH"


class ContextChunkingPolicy(enum.StrEnum):
    """How chunks of prompts share an iteration."""

    FIRST_COME_FIRST_SERVED = "FIRST_COME_FIRST_SERVED"
    EQUAL_PROGRESS = "EQUAL_PROGRESS"


class DynamicBatchConfig(ApiModel):
    """Limits that follow the load; all three fields are written, or none."""

    enable_batch_size_tuning: Annotated[bool, Ref(REQUIRED, "runtime")]
    """Whether the batch size follows the load."""
    enable_max_num_tokens_tuning: Annotated[bool, Ref(REQUIRED, "runtime")]
    """Whether the token limit follows the load."""
    dynamic_batch_moving_average_window: Annotated[Positive, Ref(REQUIRED, "runtime")]
    """Iterations that the load is averaged over; the runtime's own value is 128."""


class SchedulerConfig(ApiModel):
    """Which requests enter an iteration."""

    capacity_scheduler_policy: Annotated[CapacitySchedulerPolicy | None, Ref("GUARANTEED_NO_EVICT", "runtime")] = None
    """When a request may enter."""
    context_chunking_policy: Annotated[ContextChunkingPolicy | None, Ref(None, "runtime")] = None
    """How chunks of prompts share an iteration. Unset: the runtime decides."""
    dynamic_batch_config: Annotated[DynamicBatchConfig | None, Ref(None, "runtime")] = None
    """Limits that follow the load. Unset: they are fixed."""
