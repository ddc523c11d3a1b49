"""Judges every status that any version of our objects ever had while tests ran, whatever the tests looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.cluster.cluster import Cluster
from tests.gitops.kstatus import violations
from tests.gitops.recorder import Recorder, Seen
from trtllm_operator.api.names import API_VERSION


@contextmanager
def every_status_judged(cluster: Cluster) -> Iterator[None]:
    """Watch both kinds until the end; then raises AssertionError with what contradicted itself or went back."""
    with (
        Recorder(cluster, f"/apis/{API_VERSION}/llmdeployments") as deployments,
        Recorder(cluster, f"/apis/{API_VERSION}/llmengines") as engines,
    ):
        yield
    found = faults([*deployments.seen, *engines.seen])
    assert not found, "\n".join(["a status broke its promises:", *found])


def faults(seen: Iterable[Seen]) -> list[str]:
    """What is wrong with a version in itself, and I4 between versions; each once, with the object that had it."""
    found: dict[str, None] = {}
    observed: dict[str, int] = {}
    for each in seen:
        meta, uid = each.obj["metadata"], each.obj["metadata"]["uid"]
        name = f"{each.obj['kind']} {meta['namespace']}/{meta['name']}"
        for violation in violations(each.obj):
            found[f"{name}: {violation}"] = None
        now = (each.obj.get("status") or {}).get("observedGeneration", 0)
        if now < observed.get(uid, 0):
            found[f"{name}: observedGeneration fell from {observed[uid]} to {now}"] = None
        observed[uid] = now
    return list(found)
