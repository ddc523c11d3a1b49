"""The ecosystem's own code judges the recorded statuses: kstatus' library, and Flux by our health check expressions.

What it says is compared with Argo CD's script and with the algorithm that other tests use as their measure.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any, Final

import pytest
import yaml

from tests.cluster.binaries import binary
from tests.cluster.paths import REPOSITORY
from tests.gitops.kstatus import compute
from tests.gitops.test_health import HEALTH_OF, ROOT, health

Json = dict[str, Any]

EXPRESSIONS: Final = REPOSITORY / "gitops/flux/health-checks.yaml"
RECORDED: Final = sorted(ROOT.glob("*/testdata/*.yaml"))


def name(file: Any) -> str:
    return f"{file.parents[1].name}/{file.stem}"


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Json]:
    """By recorded object: what `kstatus` and `flux` say."""
    objects = json.dumps([yaml.safe_load(file.read_text()) for file in RECORDED])
    argv = [str(binary("verdicts")), str(EXPRESSIONS)]
    done = subprocess.run(argv, input=objects, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(map(name, RECORDED), json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("file", RECORDED, ids=name)
def test_the_library_computes_what_the_measure_of_the_other_tests_does(file: Any, verdicts: dict[str, Json]) -> None:
    assert verdicts[name(file)]["kstatus"] == compute(yaml.safe_load(file.read_text()))


@pytest.mark.parametrize("file", RECORDED, ids=name)
def test_flux_comes_to_the_result_of_argo_cd(file: Any, verdicts: dict[str, Json]) -> None:
    obj = yaml.safe_load(file.read_text())
    shown = health(obj["kind"], obj)["status"]
    said = verdicts[name(file)]["flux"]
    if "status" not in obj:
        assert (said, shown) == ("Unknown", "Progressing"), "no expression can ask for what is not there; Flux waits"
    else:
        assert said == "Current" if shown == "Suspended" else HEALTH_OF[said] == shown
