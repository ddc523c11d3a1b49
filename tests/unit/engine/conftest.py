"""What the tests of the build side share."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.models import tiny_llama
from trtllm_engine.build import job
from trtllm_engine.build.toolchain import toolchain_version
from trtllm_engine.checkpoint.folder import digest
from trtllm_engine.contract import (
    BuildArgs,
    BuildRequest,
    Mapping,
    ModelSource,
    Result,
    Target,
    Toolchain,
    engine_folder,
)
from trtllm_engine.mounts import Mounts


@dataclass(frozen=True)
class Workspace:
    """Volumes with a tiny model on them, and requests to build it."""

    root: Path

    @property
    def model(self) -> Path:
        return self.root / "models" / "tiny"

    @property
    def engine(self) -> Path:
        return self.root / "store" / engine_folder("key1")

    def request(self, toolchain: Toolchain = Toolchain.TORCH, **changes: object) -> BuildRequest:
        """A request that succeeds; `changes` are fields of `BuildRequest` or of its `args`."""
        args = BuildArgs(dtype="float32", max_batch_size=2, max_input_len=16, max_seq_len=32)
        names = {field.name for field in dataclasses.fields(BuildArgs)}
        request = BuildRequest(
            engine_key="key1",
            model=ModelSource(path="/models/tiny"),
            model_digest=digest(self.model),
            args=dataclasses.replace(args, **{k: v for k, v in changes.items() if k in names}),  # type: ignore[arg-type]
            mapping=Mapping(),
            toolchain=toolchain,
            toolchain_version=toolchain_version(toolchain),
            target=Target(compute_capability=None if toolchain is Toolchain.TORCH else "8.9"),
            output=engine_folder("key1"),
        )
        return dataclasses.replace(request, **{k: v for k, v in changes.items() if k not in names})  # type: ignore[arg-type]

    def build(self, request: BuildRequest, rank: int = 0) -> Result:
        return job.build(request, rank, Mounts.below(self.root), job.reporter(request, rank))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path)
    tiny_llama(workspace.model)
    return workspace
