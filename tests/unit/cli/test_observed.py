"""The cluster is read as far as the user may, and only what belongs to the deployment counts."""

from typing import Any, cast

from tests.builders import a_deployment_object, a_resolution, an_engine_object, some_defaults
from trtllm_operator.api.deployment import LLMDeployment
from trtllm_operator.cli.observed import read
from trtllm_operator.cluster.client import Client
from trtllm_operator.cluster.errors import Forbidden
from trtllm_operator.desired.controller_revision import controller_revision, freeze
from trtllm_operator.desired.statefulset import statefulset
from trtllm_operator.reconcile.resync import Listing

from .harness import a_node

Json = dict[str, Any]


class FakeClient:
    """Answers from a list of objects, and refuses some kinds."""

    def __init__(self, *objects: Json, forbidden: frozenset[str] = frozenset()) -> None:
        self._objects = objects
        self._forbidden = forbidden

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        return next((o for o in self._objects if (o["kind"], o["metadata"]["name"]) == (kind, name)), None)

    async def list(self, kind: str, namespace: str | None = None) -> Listing:
        if kind in self._forbidden:
            raise Forbidden(f"list {kind}", 403, "Forbidden", "no")
        return Listing([o for o in self._objects if o["kind"] == kind], 1)

    def as_client(self) -> Client:
        return cast(Client, self)


def children(deployment: LLMDeployment) -> list[Json]:
    frozen = freeze(deployment, a_resolution(deployment.spec), some_defaults())
    return [controller_revision(deployment, frozen), statefulset(deployment, frozen, 0)]


async def test_only_children_of_the_deployment_count() -> None:
    ours = LLMDeployment.of(a_deployment_object("a"))
    theirs = LLMDeployment.of(a_deployment_object("b", spec={"replicas": 2, "dtype": "float16"}))
    client = FakeClient(
        a_deployment_object("a"), *children(ours), *children(theirs), an_engine_object("e"), a_node("n")
    )
    seen = await read(client.as_client(), "default", "a", "nvidia.com/gpu")
    assert seen.deployment is not None
    assert seen.deployment.meta.name == "a"
    assert [group.meta.name for group in seen.groups] == ["a-0"]
    assert len(seen.revisions) == 1
    assert [engine.meta.name for engine in seen.engines] == ["e"]
    assert [(node.name, node.gpus) for node in seen.nodes or ()] == [("n", 1)]


async def test_a_revision_of_another_version_is_left_out() -> None:
    deployment = LLMDeployment.of(a_deployment_object("a"))
    revision, group = children(deployment)
    client = FakeClient(a_deployment_object("a"), {**revision, "data": {"other": 1}}, group)
    assert (await read(client.as_client(), "default", "a", "nvidia.com/gpu")).revisions == {}


async def test_nodes_that_may_not_be_read_are_not_known() -> None:
    client = FakeClient(forbidden=frozenset({"Node"}))
    seen = await read(client.as_client(), "default", "a", "nvidia.com/gpu")
    assert (seen.nodes, seen.deployment, seen.engines) == (None, None, ())
