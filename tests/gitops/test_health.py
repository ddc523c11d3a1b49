"""Argo CD's health scripts, run with no more of Lua than Argo CD allows: the language, no libraries but the basic one.

Their test data are statuses that a real control plane stored (`python -m tests.gitops.record`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import lupa.lua51 as lua
import pytest
import yaml

from tests.gitops.kstatus import compute, violations

ROOT: Final = Path(__file__).parents[2] / "gitops/argocd/resource_customizations/inference.trtllm-operator.dev"
KINDS: Final = ("LLMDeployment", "LLMEngine")
LIBRARIES: Final = ("string", "os", "io", "table", "math", "debug", "package", "require", "python", "coroutine")

HEALTH_OF: Final = {"Current": "Healthy", "InProgress": "Progressing", "Failed": "Degraded"}
"""What Argo CD must show for what kstatus computes; paused and suspended are Argo CD's own word."""


def health(kind: str, obj: dict[str, Any]) -> dict[str, str]:
    """What the script of this kind says about `obj`."""
    runtime = lua.LuaRuntime(register_eval=False, register_builtins=False)
    for name in LIBRARIES:
        runtime.globals()[name] = None
    runtime.globals()["obj"] = runtime.table_from(obj, recursive=True)
    said = runtime.execute((ROOT / kind / "health.lua").read_text())
    return {"status": said["status"], "message": said["message"]}


def cases() -> Iterator[tuple[str, str, dict[str, str]]]:
    for kind in KINDS:
        for case in yaml.safe_load((ROOT / kind / "health_test.yaml").read_text())["tests"]:
            yield kind, case["inputPath"], case["healthStatus"]


@pytest.mark.parametrize(("kind", "path", "expected"), list(cases()))
def test_a_recorded_object_is_judged_as_the_case_says(kind: str, path: str, expected: dict[str, str]) -> None:
    assert health(kind, yaml.safe_load((ROOT / kind / path).read_text())) == expected


@pytest.mark.parametrize("file", sorted(ROOT.glob("*/testdata/*.yaml")), ids=lambda file: file.stem)
def test_argo_cd_and_kstatus_agree_and_no_recorded_status_contradicts_itself(file: Path) -> None:
    obj = yaml.safe_load(file.read_text())
    assert violations(obj) == []
    said, computed = health(obj["kind"], obj)["status"], compute(obj)
    if said == "Suspended":
        assert computed in ("Current", "InProgress")
    elif "status" in obj:
        assert said == HEALTH_OF[computed]
    else:
        assert said == "Progressing", "kstatus calls an object without a status current; a sync wave must wait for it"


@pytest.mark.parametrize("kind", KINDS)
def test_every_recorded_object_is_a_case(kind: str) -> None:
    recorded = {f"testdata/{file.name}" for file in (ROOT / kind / "testdata").glob("*.yaml")}
    assert recorded == {path for of, path, _ in cases() if of == kind}
    assert len(recorded) >= 6
