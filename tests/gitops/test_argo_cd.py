"""A real Argo CD installs the chart and a deployment from Git, and keeps them.

Real: etcd, API server, controller manager, Argo CD's controller and repository server, Helm, Git, the operator's
process with the chart's arguments, configuration and rights. A test double is the node (`played_node`): it runs no
container, so a build is a wait of BUILD_SECONDS that says a line for every half percent. No packet reaches a Service,
so the webhook that the chart installs never answers, and the chart's failure policy lets every spec pass.

The Applications, the manifests and the installation of the health scripts are those of docs/guides/gitops.md.
"""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tests.cluster.argocd import ArgoCd
from tests.cluster.binaries import binary
from tests.cluster.cluster import Cluster
from tests.cluster.paths import REPOSITORY
from tests.cluster.prerequisites import Tier
from tests.cluster.waiting import wait_until
from tests.gitops.judge import faults
from tests.gitops.played_node import PlayedNode
from tests.gitops.recorder import Recorder, Seen
from tests.gitops.world import (
    APPLICATIONS,
    NAME,
    Application,
    Git,
    World,
    changed,
    guide_blocks,
    guide_manifest,
    health,
    is_of,
    resource,
    sync,
)
from trtllm_operator.api.names import API_VERSION

Json = dict[str, Any]

BUILD_SECONDS: Final = 60.0
"""Long enough for several refreshes, if there were any; a real build takes minutes to hours."""
REFRESH_EVERY: Final = 10.0
"""Seconds: more often, status writes may not make Argo CD compare an application."""
OPERATOR: Final = "trtllm-operator"
OPERATOR_NAMESPACE: Final = "trtllm-operator-system"

WHOLE: Final = "models"
"""The guide's Application: chart and deployment, applied and compared by the client."""
APPLIED: Final = "server-side-apply"
COMPARED: Final = "server-side-diff"
MODES: Final = (WHOLE, APPLIED, COMPARED)


def manifest(mode: str) -> Json:
    """The guide's LLMDeployment; where the server applies, with a number of replicas that Argo CD has to ignore."""
    found = guide_manifest("LLMDeployment")
    return found if mode == WHOLE else changed(found, replicas=1)


def application(url: str, *, server_applies: bool = False, server_compares: bool = False) -> Json:
    """The guide's, with the repository of the tests."""
    app = guide_manifest("Application")
    for source in app["spec"]["sources"]:
        source["repoURL"] = url
    if server_applies:
        app["spec"]["syncPolicy"]["syncOptions"].append("ServerSideApply=true")
    if server_compares:
        app["metadata"]["annotations"] = {"argocd.argoproj.io/compare-options": "ServerSideDiff=true"}
    return app


def models_only(name: str, url: str) -> Json:
    """The guide's Application without the chart, applied by the server and, if its name says so, compared by it."""
    app = application(url, server_applies=True, server_compares=name == COMPARED)
    app["metadata"]["name"] = app["spec"]["destination"]["namespace"] = name
    app["spec"]["sources"] = [{**app["spec"]["sources"][1], "path": name}]
    return app


def install_health_scripts(cluster: Cluster) -> None:
    """Run what the guide says, where a reader would."""
    (command,) = (block for block in guide_blocks() if "resource.customizations.health" in block)
    environment = os.environ | {
        "KUBECONFIG": str(cluster.kubeconfig),
        "PATH": f"{binary('kubectl').parent}:{os.environ['PATH']}",
    }
    subprocess.run(["bash", "-eo", "pipefail", "-c", command], cwd=REPOSITORY, env=environment, check=True)


def is_past_the_operator(app: Json) -> bool:
    return resource(app, "LLMDeployment", NAME).get("health", {}).get("status") in ("Progressing", "Healthy")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All three Applications, Synced and Healthy after their builds."""
    git = Git(tmp_path_factory.mktemp("git"))
    git.run("init", "--quiet", "--initial-branch=main")
    shutil.copytree(REPOSITORY / "charts", git.folder / "charts")
    git.write(f"{WHOLE}/namespace.yaml", guide_manifest("Namespace"))
    for mode in MODES:
        git.write(f"{mode}/{NAME}.yaml", manifest(mode))
    git.commit("first")
    with Cluster.up(Tier.APISERVER, f"argocd-{os.getpid()}") as cluster:
        argocd = ArgoCd.install(cluster)
        install_health_scripts(cluster)
        with (
            PlayedNode(cluster, tmp_path_factory.mktemp("node"), BUILD_SECONDS) as node,
            Recorder(cluster, APPLICATIONS) as applications,
            Recorder(cluster, f"/apis/{API_VERSION}/llmdeployments") as deployments,
        ):
            world = World(cluster, argocd, git, node, applications, deployments)
            world.application(WHOLE).create(application(git.url))
            whole = world.application(WHOLE)
            whole.wait(is_past_the_operator, "past the operator's wave")
            for mode in (APPLIED, COMPARED):
                world.application(mode).create(models_only(mode, git.url))
            for mode in MODES:
                world.application(mode).wait_settled(seconds=BUILD_SECONDS + 120)
            yield world


@pytest.fixture(params=MODES)
def app(world: World, request: pytest.FixtureRequest) -> Application:
    return world.application(request.param)


def reason(seen: Seen) -> str:
    conditions = (seen.obj.get("status") or {}).get("conditions") or ()
    return next((c["reason"] for c in conditions if c["type"] == "Ready"), "")


def building(app: Application) -> list[datetime]:
    """When the status said how far the first build is, each time."""
    told = app.seen_deployment()
    done = next(index for index, each in enumerate(told) if reason(each) == "RollingOut")
    return [each.at for each in told[:done] if "percent" in ((each.obj.get("status") or {}).get("engine") or {})]


def test_the_deployment_waits_for_the_operator_of_the_wave_before(world: World) -> None:
    whole = world.application(WHOLE)
    created = whole.seen_deployment()[0].at
    before = [each.obj for each in whole.seen() if each.at <= created]
    operators = [resource(app, "Deployment", OPERATOR).get("health", {}).get("status") for app in before]
    assert "Progressing" in operators, "the operator's start is waited for"
    (operator,) = (
        item
        for item in world.cluster.plane.api().get(f"/apis/apps/v1/namespaces/{OPERATOR_NAMESPACE}/deployments")["items"]
    )
    available = next(c for c in operator["status"]["conditions"] if c["type"] == "Available")
    assert datetime.fromisoformat(available["lastTransitionTime"]) <= created


def test_the_application_progresses_while_the_engine_builds_and_is_healthy_after(app: Application) -> None:
    began, *_, ended = building(app)
    assert (ended - began).total_seconds() > BUILD_SECONDS / 2
    shown = app.shown(began, ended)
    assert {health(each) for each in shown} == {"Progressing"}
    assert {resource(each, "LLMDeployment", NAME)["health"]["status"] for each in shown} == {"Progressing"}
    assert health(app.get()) == "Healthy"


def test_a_build_is_no_drift(app: Application) -> None:
    assert app.drift(building(app)[0]) == []


def test_a_build_makes_argo_cd_compare_at_most_once_in_ten_seconds(app: Application) -> None:
    written = building(app)
    allowed = (written[-1] - written[0]).total_seconds() / REFRESH_EVERY
    assert len(written) > allowed, "the status tells how far the build is"
    refreshed = app.refreshes(written[0], written[-1])
    assert len(refreshed) <= allowed, refreshed
    assert app.refreshes(written[-1], datetime.now(UTC)), "what is made after the build is seen at once"


def test_scaling_is_no_drift(app: Application) -> None:
    began = datetime.now(UTC)
    app.kubectl("scale", f"llmd/{NAME}", "--replicas=2")
    _wait_ready(app, replicas=2)
    app.world.argocd.refresh(app.name)
    _wait_compared(app, began)
    assert app.drift(began) == []
    deployment = app.deployment()
    assert deployment is not None and deployment["spec"]["replicas"] == 2


def test_a_foreign_edit_is_healed(app: Application) -> None:
    deployment = app.deployment()
    assert deployment is not None
    began, batch = datetime.now(UTC), deployment["spec"]["buildConfig"]["maxBatchSize"]
    edit = f'{{"spec": {{"buildConfig": {{"maxBatchSize": {batch * 2}}}}}}}'
    app.kubectl("patch", "llmd", NAME, "--type=merge", "-p", edit)
    wait_until(lambda: _batch(app) == batch, "the edit to be undone", 60)
    app.wait_settled()
    assert batch * 2 in {each.obj["spec"]["buildConfig"]["maxBatchSize"] for each in app.seen_deployment(began)}


def test_a_rollout_is_no_drift_once_it_is_applied(app: Application) -> None:
    app.kubectl("scale", f"llmd/{NAME}", "--replicas=2")
    _wait_ready(app, replicas=2)
    began = datetime.now(UTC)
    commit = app.push("another revision", **{NAME: changed(manifest(app.name), serving={"drainSeconds": 11})})
    app.wait_settled(commit)
    applied = next(each.at for each in app.seen(began) if is_of(each.obj, commit) and sync(each.obj) == "Synced")
    assert app.drift(applied) == []
    assert "RollingOut" in {reason(each) for each in app.seen_deployment(began)}
    after = app.deployment()
    assert after is not None and after["spec"]["replicas"] == 2, "whoever scaled it is left alone"


def test_a_restart_of_the_operator_is_no_drift(world: World) -> None:
    began = datetime.now(UTC)
    before = world.node.operator
    world.kubectl("-n", OPERATOR_NAMESPACE, "delete", "pod", "--all", "--timeout=60s")
    wait_until(lambda: world.node.operator not in (None, before), "the next operator", 60)
    for mode in MODES:
        world.argocd.refresh(mode)
        _wait_compared(world.application(mode), began)
        world.application(mode).wait_settled()
        assert world.application(mode).drift(began) == []


def test_the_chart_too_is_no_drift_once_the_server_applies_and_compares_it(world: World) -> None:
    """Between the change of the ways and the synchronisation that follows, fields have the owner of before."""
    whole = world.application(WHOLE)
    whole.create(application(world.git.url, server_applies=True, server_compares=True))
    try:
        whole.synchronise()
        whole.wait_settled()
        began = datetime.now(UTC)
        world.argocd.refresh(WHOLE)
        _wait_compared(whole, began)
        assert whole.drift(began) == []
        webhook = world.kubectl("get", "validatingwebhookconfigurations", "-o", "yaml")
        assert "caBundle" in webhook, "what the operator writes there is not in Git, and stays"
    finally:
        whole.create(application(world.git.url))


def test_a_bad_spec_is_degraded_with_the_reason_until_it_is_mended(app: Application) -> None:
    good = manifest(app.name)
    bad = app.push("bad", **{NAME: changed(good, model="/etc/passwd")})
    degraded = app.wait_health("Degraded", bad)
    assert resource(degraded, "LLMDeployment", NAME)["health"]["message"].startswith("InvalidSpec: ")
    assert sync(degraded) == "Synced", "it is what Git says"
    app.wait_settled(app.push("mended", **{NAME: good}))


def test_what_leaves_git_is_pruned_with_all_that_was_made_of_it(app: Application) -> None:
    second = copy.deepcopy(manifest(app.name))
    second["metadata"]["name"] = "second"
    app.wait_settled(app.push("a second", second=second))
    kinds = "llmd,statefulsets,pods,services,controllerrevisions,poddisruptionbudgets"
    assert "second-0" in app.kubectl("get", kinds, "-o", "name")
    app.wait_settled(app.push("only one again", second=None))
    wait_until(lambda: "second" not in app.kubectl("get", kinds, "-o", "name"), "everything of it to be gone", 60)
    assert app.deployment() is not None


def test_no_status_contradicts_itself_at_any_moment(world: World) -> None:
    assert world.deployments.seen
    assert faults(world.deployments.seen) == []


def _batch(app: Application) -> int:
    deployment = app.deployment()
    return int(deployment["spec"]["buildConfig"]["maxBatchSize"]) if deployment else 0


def _wait_ready(app: Application, replicas: int) -> None:
    def ready() -> bool:
        status = (app.deployment() or {}).get("status") or {}
        return bool(status.get("readyReplicas") == replicas and status.get("phase") == "Ready")

    wait_until(ready, f"{replicas} replicas of {app.name}", 60)


def _wait_compared(app: Application, since: datetime) -> None:
    """Until Argo CD has compared again, as it was asked to."""

    def compared(said: Json) -> bool:
        at = said["status"].get("reconciledAt")
        asked = "argocd.argoproj.io/refresh" in (said["metadata"].get("annotations") or {})
        return bool(at and not asked and datetime.fromisoformat(at) >= since.replace(microsecond=0))

    app.wait(compared, "compared again", 60)
