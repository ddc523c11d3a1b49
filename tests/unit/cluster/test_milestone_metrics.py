"""A build, a rollout and a rollback count when they come to their end, and then once."""

from __future__ import annotations

from typing import Any

from tests.builders import a_deployment_object, an_engine_object
from trtllm_operator.cluster.metrics import Metrics
from trtllm_operator.cluster.milestone_metrics import Milestones

Json = dict[str, Any]
KEY = "5eed" * 16
BUILDING: Json = {"phase": "Building", "key": KEY, "toolchain": "torch", "buildStarted": "2026-01-02T14:00:00Z"}
BUILT: Json = {**BUILDING, "phase": "Ready", "buildFinished": "2026-01-02T14:05:00Z"}


def a_status(revision: str, *, ready: bool = True, target: str | None = None, **more: Any) -> Json:
    condition = {"type": "Ready", "status": str(ready), "reason": "AsExpected"}
    return {"currentRevision": revision, "targetRevision": target or revision, "conditions": [condition], **more}


def a_failure(at: str, revision: str = "bbb") -> Json:
    return {"failedRevision": {"revision": revision, "reason": "ReplicaCrashing", "message": "exit code 7", "at": at}}


def met(obj: Json, *statuses: Json, metrics: Metrics | None = None) -> Metrics:
    """Of a process that finds these statuses of one object, in this order."""
    metrics = metrics or Metrics()
    milestones = Milestones(metrics)
    for status in statuses:
        milestones.meet(obj, status)
    return metrics


def builds(metrics: Metrics, outcome: str) -> float:
    return metrics.value("build_seconds_count", toolchain="torch", outcome=outcome) or 0


def test_a_build_counts_when_it_ends_with_its_seconds() -> None:
    metrics = met(an_engine_object(), BUILDING, BUILT)
    assert builds(metrics, "succeeded") == 1
    assert metrics.value("build_seconds_sum", toolchain="torch", outcome="succeeded") == 300


def test_a_build_that_is_met_again_counts_once() -> None:
    assert builds(met(an_engine_object(), BUILDING, BUILT, BUILT, BUILT), "succeeded") == 1


def test_a_build_that_had_ended_before_this_process_began_does_not_count() -> None:
    assert builds(met(an_engine_object(), BUILT, BUILT), "succeeded") == 0


def test_a_failed_build_counts_when_its_job_has_ended_even_if_its_failure_is_known_earlier() -> None:
    failing = {**BUILDING, "phase": "Failed"}
    metrics = met(an_engine_object(), BUILDING, failing)
    assert builds(metrics, "failed") == 0
    metrics = met(an_engine_object(), BUILDING, failing, {**failing, "buildFinished": "2026-01-02T14:01:00Z"})
    assert builds(metrics, "failed") == 1


def test_a_second_build_of_the_same_engine_counts_again() -> None:
    again = {**BUILT, "buildFinished": "2026-01-02T15:05:00Z"}
    assert builds(met(an_engine_object(), BUILDING, BUILT, BUILDING, again), "succeeded") == 2


def test_engines_with_one_key_count_the_build_that_they_share_once() -> None:
    metrics = Metrics()
    milestones = Milestones(metrics)
    elder, heir = an_engine_object("elder"), an_engine_object("heir")
    milestones.meet(elder, BUILDING)
    milestones.meet(heir, {**BUILDING, "reference": "elder"})
    milestones.meet(elder, BUILT)
    milestones.meet(heir, {**BUILT, "reference": "elder"})
    milestones.meet(heir, BUILT)
    assert builds(metrics, "succeeded") == 1


def test_a_rollout_counts_when_all_replicas_serve_the_revision() -> None:
    moving = a_status("aaa", ready=False, target="bbb")
    metrics = met(a_deployment_object(), {}, a_status("aaa"), a_status("aaa"), moving)
    assert metrics.value("rollouts_total") == 1
    metrics = met(a_deployment_object(), {}, a_status("aaa"), moving, a_status("bbb"), a_status("bbb", ready=False))
    assert metrics.value("rollouts_total") == 2


def test_a_deployment_that_served_before_this_process_began_does_not_count() -> None:
    assert met(a_deployment_object(), a_status("aaa"), a_status("aaa")).value("rollouts_total") == 0


def test_a_rollback_counts_once_with_what_had_failed() -> None:
    failed = a_status("aaa", ready=False, target="bbb", **a_failure("2026-01-02T14:03:00Z"))
    metrics = met(a_deployment_object(), a_status("aaa"), failed, failed, a_status("aaa"))
    assert metrics.value("rollbacks_total", reason="ReplicaCrashing") == 1
    assert metrics.value("rollouts_total") == 0, "what served before serves again"


def test_a_revision_that_fails_again_counts_again() -> None:
    first = a_status("aaa", ready=False, target="bbb", **a_failure("2026-01-02T14:03:00Z"))
    second = a_status("aaa", ready=False, target="bbb", **a_failure("2026-01-02T16:00:00Z"))
    metrics = met(a_deployment_object(), a_status("aaa"), first, a_status("aaa"), second)
    assert metrics.value("rollbacks_total", reason="ReplicaCrashing") == 2


def test_a_deployment_made_anew_under_its_old_name_is_another_one() -> None:
    metrics = Metrics()
    milestones = Milestones(metrics)
    for uid in ("uid-1", "uid-2"):
        obj = a_deployment_object()
        obj["metadata"]["uid"] = uid
        milestones.meet(obj, {})
        milestones.meet(obj, a_status("aaa"))
    assert metrics.value("rollouts_total") == 2
