"""Where a pod's volumes are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from trtllm_engine.checkpoint.folder import pod_path
from trtllm_engine.contract import CACHE_MOUNT, MODELS_MOUNT, STORE_MOUNT, ExitCode, ModelSource, model_folder
from trtllm_engine.failure import Failure


@dataclass(frozen=True, slots=True)
class Mounts:
    """The three volumes; outside of a pod they are folders below one root."""

    models: Path
    cache: Path
    store: Path

    @classmethod
    def below(cls, root: Path) -> Self:
        """`/` in a pod. Elsewhere the mounts are `<root>/models`, `<root>/cache` and `<root>/store`."""
        return cls(*(root / mount.lstrip("/") for mount in (MODELS_MOUNT, CACHE_MOUNT, STORE_MOUNT)))

    def model(self, source: ModelSource) -> tuple[Path, Path]:
        """The folder of a model that was fetched or mounted, and the mount that it must not leave.

        Raises BAD_REQUEST unless `path`, or `repo` and the commit as `revision`, are given.
        """
        if source.path is not None:
            return pod_path(source, MODELS_MOUNT, self.models), self.models
        if source.repo is None or source.revision is None:
            raise Failure(ExitCode.BAD_REQUEST, "model needs either path, or repo and revision", field="model")
        return self.cache / model_folder(source.repo, source.revision), self.cache
