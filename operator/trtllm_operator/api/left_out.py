"""What the reference has and a spec has not, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PRIVATE: Final = "it is private to the reference"
LIVE_OBJECT: Final = "it lives in a running Python program, and a resource cannot hold it"

LEFT_OUT: Final[Mapping[str, str]] = {
    "batched_logits_processor": LIVE_OBJECT,
    "decoding_config": "the reference overwrites or discards it (SPEC-9, Q18); speculativeConfig decides",
    "build_config.auto_parallel_config": (
        "the planner behind autoParallel stands in place of the reference's search, and reads the nodes in place of "
        "its ClusterInfo"
    ),
    "build_config.plugin_config.explicitly_disable_gemm_plugin": (
        "the reference's note that somebody wrote disable; gemmPlugin: disable says it"
    ),
    "pytorch_backend_config.extra_resource_managers": LIVE_OBJECT,
    "_use_runtime_defaults": PRIVATE,
    "_mpi_session": LIVE_OBJECT,
    "_num_postprocess_workers": PRIVATE,
    "_postprocess_tokenizer_dir": PRIVATE,
}
"""Path in the reference's spelling -> why it is not in a spec."""
