"""Retry, pause, resume, rollback: exactly one small write, or none and a word why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_deployment_spec, merged
from trtllm_operator.api import names
from trtllm_operator.api.views import Meta, timestamp
from trtllm_operator.cli.rights import USER_KINDS
from trtllm_operator.cli.rollback import difference, restored
from trtllm_operator.cli.steering import git_owner
from trtllm_operator.resolve.revision import UNSEEN, revision_hash

from .fake_cluster import FakeCluster, Request, fake_cluster
from .harness import llmd
from .running import KEY, NEW, SINCE, a_condition, a_served_model, child, its_engine

Json = dict[str, Any]
PATH = "/apis/inference.trtllm-operator.dev/v1alpha1/namespaces/prod/llmdeployments/llama"
FAILED = {"revision": "b" * 10, "reason": "ReplicaCrashing", "message": "no peer", "at": SINCE}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with fake_cluster(tmp_path, "prod") as found:
        yield found


def run(cluster: FakeCluster, *arguments: str) -> tuple[int, str, str]:
    result = llmd(*arguments, "--kubeconfig", cluster.kubeconfig)
    return result.exit_code, result.stdout, result.stderr


def only_write(cluster: FakeCluster) -> Request:
    (request,) = cluster.writes()
    return request


def in_git(obj: Json) -> Json:
    return merged(obj, {"metadata": {"annotations": {"argocd.argoproj.io/tracking-id": "app:x"}}})


def a_record(revision: str, number: int, spec: Json, owner: str = "llama") -> Json:
    meta = child(names.revision(owner, revision), f"uid-of-{owner}", {names.REVISION_LABEL: revision})
    data = {"revision": revision, "spec": spec}
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": meta, "revision": number, "data": data}


def record_of(spec: Json, number: int) -> Json:
    return a_record(revision_hash(a_deployment_spec(**spec)), number, a_deployment_spec(**spec).to_json())


# --- retry ------------------------------------------------------------------------------------------------------------


def test_a_revision_that_was_rolled_back_is_asked_for_by_an_annotation(cluster: FakeCluster) -> None:
    cluster.put(a_served_model(status={"failedRevision": FAILED}))
    code, text, _ = run(cluster, "retry", "llama")
    assert (code, text) == (0, "revision bbbbbbbbbb is rolled out once more; it had failed: no peer\n")
    written = only_write(cluster)
    assert (written.method, written.path, written.query) == ("PATCH", PATH, {"fieldManager": "llmd"})
    asked = timestamp(written.body["metadata"]["annotations"][names.RETRY_ANNOTATION])
    assert asked is not None
    assert asked > timestamp(SINCE)  # type: ignore[operator]
    assert list(written.body) == ["metadata"]


def test_a_retry_counts_also_when_the_clock_here_is_behind(cluster: FakeCluster) -> None:
    cluster.put(a_served_model(status={"failedRevision": {**FAILED, "at": "2999-01-01T00:00:00Z"}}))
    run(cluster, "retry", "llama")
    assert only_write(cluster).body["metadata"]["annotations"][names.RETRY_ANNOTATION] == "2999-01-01T00:00:00Z"


def test_a_retry_is_also_for_what_comes_from_git(cluster: FakeCluster) -> None:
    cluster.put(in_git(a_served_model(status={"failedRevision": FAILED})))
    assert run(cluster, "retry", "llama")[0] == 0


def test_a_failed_build_starts_anew_without_its_engine(cluster: FakeCluster) -> None:
    engine = {"name": "llama-41be90c2d7f3", "key": KEY, "state": "Failed"}
    cluster.put(
        a_served_model(status={"engine": engine}), its_engine(status={"phase": "Failed", "message": "no space"})
    )
    code, text, _ = run(cluster, "retry", "llama")
    assert (code, text) == (0, "engine llama-41be90c2d7f3 is built once more; it had failed: no space\n")
    written = only_write(cluster)
    assert (written.method, written.path.rpartition("/")[2]) == ("DELETE", "llama-41be90c2d7f3")
    assert written.body["preconditions"]["uid"] == "uid-of-llama-41be90c2d7f3"


def test_an_engine_of_somebody_elses_is_not_deleted(cluster: FakeCluster) -> None:
    engine = {"name": "llama-41be90c2d7f3", "key": KEY, "state": "Failed"}
    cluster.put(a_served_model(status={"engine": engine}), its_engine(status={"phase": "Failed"}, ours=False))
    code, text, _ = run(cluster, "retry", "llama")
    assert code == 1
    assert "delete it and apply it again" in text
    assert cluster.writes() == []


def test_a_failed_fetch_starts_anew_without_its_job(cluster: FakeCluster) -> None:
    obj = a_served_model()
    del obj["status"]["engine"]
    status = {
        "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "3 times"}]
    }
    for owner in ("llama", "other"):
        meta = child(f"{owner}-fetch-1", f"uid-of-{owner}", {names.ROLE_LABEL: "fetch"})
        cluster.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "status": status})
    cluster.put(obj)
    code, text, _ = run(cluster, "retry", "llama")
    assert (code, text) == (0, "the model is fetched once more; it had failed: 3 times\n")
    assert only_write(cluster).path.endswith("/jobs/llama-fetch-1")


def test_where_nothing_was_given_up_nothing_is_written(cluster: FakeCluster) -> None:
    waits = a_condition("Ready", "False", "WaitingForGPUs", "no node")
    cluster.put(a_served_model(status={"conditions": [waits]}), its_engine())
    assert run(cluster, "retry", "llama") == (
        1,
        "nothing of llama was given up; it is not ready: WaitingForGPUs: no node\n",
        "",
    )
    assert cluster.writes() == []


# --- refresh ----------------------------------------------------------------------------------------------------------


def test_a_refresh_is_asked_for_by_an_annotation_also_where_the_spec_comes_from_git(cluster: FakeCluster) -> None:
    cluster.put(in_git(a_served_model()))
    code, text, _ = run(cluster, "refresh", "llama")
    assert code == 0
    assert text.startswith("llama is resolved anew with what the operator has by now, ")
    assert f"revision {NEW} serves until then" in text
    written = only_write(cluster)
    assert (written.method, written.path, list(written.body)) == ("PATCH", PATH, ["metadata"])
    asked = timestamp(written.body["metadata"]["annotations"][names.REFRESH_ANNOTATION])
    assert asked is not None
    assert asked > timestamp(SINCE)  # type: ignore[operator]


def test_what_was_never_resolved_needs_no_refresh(cluster: FakeCluster) -> None:
    cluster.put(a_served_model(status={"targetRevision": None}))
    code, text, _ = run(cluster, "refresh", "llama")
    assert (code, cluster.writes()) == (1, [])
    assert text.startswith("nothing of llama is resolved yet")


# --- pause and resume -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "before", "written"), [("pause", None, True), ("resume", True, None)])
def test_pausing_and_resuming_write_one_field_of_the_version_that_was_read(
    cluster: FakeCluster, command: str, before: bool | None, written: bool | None
) -> None:
    cluster.put(a_served_model(spec={"strategy": {"paused": before, "maxSurge": 2}}))
    assert run(cluster, command, "llama")[0] == 0
    assert only_write(cluster).body == {
        "metadata": {"resourceVersion": "100"},
        "spec": {"strategy": {"paused": written}},
    }
    assert cluster.objects[PATH]["spec"]["strategy"] == {"maxSurge": 2} | ({"paused": True} if written else {})


@pytest.mark.parametrize(("command", "paused"), [("pause", True), ("resume", False), ("resume", None)])
def test_what_is_so_already_is_not_written(cluster: FakeCluster, command: str, paused: bool | None) -> None:
    cluster.put(a_served_model(spec={"strategy": {"paused": paused}}))
    assert run(cluster, command, "llama")[0] == 0
    assert cluster.writes() == []


def test_what_comes_from_git_is_paused_there(cluster: FakeCluster) -> None:
    cluster.put(in_git(a_served_model()))
    code, text, remarks = run(cluster, "pause", "llama")
    assert (code, yaml.safe_load(text)) == (1, {"spec": {"strategy": {"paused": True}}})
    assert "comes from Git, by Argo CD" in remarks
    assert cluster.writes() == []


@pytest.mark.parametrize(
    ("labels", "annotations", "managers", "owner"),
    [
        ({"argocd.argoproj.io/instance": "a"}, {}, [], "Argo CD"),
        ({}, {"argocd.argoproj.io/tracking-id": "a"}, [], "Argo CD"),
        ({}, {}, ["kubectl", "argocd-controller"], "Argo CD"),
        ({"kustomize.toolkit.fluxcd.io/name": "a"}, {}, [], "Flux"),
        ({}, {}, ["kustomize-controller"], "Flux"),
        ({}, {}, ["helm-controller"], "Flux"),
        ({"app.kubernetes.io/instance": "a"}, {}, ["kubectl-client-side-apply", "llmd", "trtllm-operator"], None),
    ],
)
def test_the_marks_of_gitops_tools_are_known(labels: Json, annotations: Json, managers: list[str], owner: str) -> None:
    assert git_owner(Meta(name="llama", labels=labels, annotations=annotations), managers) == owner


# --- rollback ---------------------------------------------------------------------------------------------------------


def two_revisions(cluster: FakeCluster, **status: Any) -> tuple[str, str]:
    """The spec asks for the second; returns both hashes."""
    new = {"dtype": "float16", "maxBatchSize": 4}
    old = {"dtype": "float32", "replicas": 9}
    first, second = record_of(old, 1), record_of(new, 2)
    cluster.put(a_served_model(spec={**new, "strategy": {"maxSurge": 2}}, status=status), first, second)
    cluster.put(a_record("c" * 10, 7, {"dtype": "other"}, owner="other"))
    return first["data"]["revision"], second["data"]["revision"]


def test_a_rollback_writes_the_old_spec_and_leaves_what_no_pod_sees(cluster: FakeCluster) -> None:
    old, _ = two_revisions(cluster)
    code, text, _ = run(cluster, "rollback", "llama")
    assert code == 0
    assert text.splitlines() == [
        f"llama goes back to revision {old}:",
        "  spec.maxBatchSize removed",
        '  spec.dtype "float32"',
        "see: llmd status llama -w",
    ]
    assert only_write(cluster).body["metadata"] == {"resourceVersion": "100"}
    spec = cluster.objects[PATH]["spec"]
    assert revision_hash(a_deployment_spec(**spec)) != revision_hash(a_deployment_spec(dtype="float16"))
    assert (spec["dtype"], spec["replicas"], spec["strategy"]) == ("float32", 2, {"maxSurge": 2})


def test_going_back_gives_the_very_revision(cluster: FakeCluster) -> None:
    old, _ = two_revisions(cluster)
    run(cluster, "rollback", "llama", "--to", old[:4])
    current = cluster.objects[PATH]["spec"]
    assert revision_hash(a_deployment_spec(**{"maxBatchSize": None, **current})) == old


def test_going_back_behind_a_refresh_takes_the_refresh_back(cluster: FakeCluster) -> None:
    spec = a_deployment_spec(dtype="float16")
    before = a_record(revision_hash(spec), 1, spec.to_json())
    after = a_record(revision_hash(spec, "2026-01-02T15:00:00Z"), 1, spec.to_json())
    served = a_served_model(spec={"dtype": "float16"})
    served["metadata"]["annotations"] = {names.REFRESH_ANNOTATION: "2026-01-02T15:00:00Z"}
    cluster.put(served, before, after)
    assert run(cluster, "rollback", "llama", "--to", before["data"]["revision"])[0] == 0
    assert only_write(cluster).body == {
        "metadata": {"resourceVersion": "100", "annotations": {names.REFRESH_ANNOTATION: None}}
    }


def test_without_a_choice_what_serves_comes_first_and_what_failed_never(cluster: FakeCluster) -> None:
    serving, third = record_of({"dtype": "bfloat16"}, 1), record_of({"maxSeqLen": 64}, 3)
    two_revisions(cluster, currentRevision=serving["data"]["revision"])
    cluster.put(serving, third)
    assert f"revision {serving['data']['revision']}:" in run(cluster, "rollback", "llama")[1]


def test_a_revision_that_is_not_kept_is_told_with_those_that_are(cluster: FakeCluster) -> None:
    old, _ = two_revisions(cluster)
    assert run(cluster, "rollback", "llama", "--to", "zzz") == (
        1,
        "",
        f"llmd: no revision of llama is zzz: there are {old}\n",
    )


def test_with_one_revision_there_is_nothing_to_go_back_to(cluster: FakeCluster) -> None:
    cluster.put(a_served_model(), record_of({}, 1))
    code, _, remarks = run(cluster, "rollback", "llama")
    assert code == 1
    assert "strategy.revisionHistoryLimit" in remarks


def test_for_what_comes_from_git_the_patch_is_printed_and_nothing_is_written(cluster: FakeCluster) -> None:
    two_revisions(cluster)
    cluster.objects[PATH]["metadata"]["managedFields"] = [{"manager": "kustomize-controller"}]
    code, text, remarks = run(cluster, "rollback", "llama")
    assert code == 1
    assert yaml.safe_load(text) == {"spec": {"dtype": "float32", "maxBatchSize": None}}
    assert "by Flux" in remarks
    assert cluster.writes() == []


JSON = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=2) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from(["a", "b", "engine", "replicas", "storage"]), inner, min_size=1),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "engine", "replicas"]), JSON, max_size=4)


@given(OBJECTS, OBJECTS)
def test_the_difference_makes_one_of_the_other(before: Json, after: Json) -> None:
    assert merged(before, difference(before, after)) == after


def test_nested_fields_that_no_pod_sees_stay_as_they_are() -> None:
    now = {"engine": {"toolchain": "torch", "retention": "Keep"}, "replicas": 3, "dtype": "float16"}
    old = {"engine": {"toolchain": "tensorrt", "retention": "Delete"}, "replicas": 1, "suspend": True}
    assert restored(now, old, UNSEEN) == {"engine": {"toolchain": "tensorrt", "retention": "Keep"}, "replicas": 3}


def test_no_command_can_write_anything_else() -> None:
    looks = {"get", "list"}
    writes = {kind: sorted(entry.verbs - looks) for kind, entry in USER_KINDS.items() if entry.verbs - looks}
    assert writes == {"LLMDeployment": ["patch"], "LLMEngine": ["delete"], "Job": ["delete"]}
