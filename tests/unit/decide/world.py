"""A pure world for decisions: actions become objects at once, and the test says what the cluster does next."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from tests.builders import NOW, VERSIONS, merged, smollm2_facts, some_defaults
from trtllm_engine.contract import ModelFacts, Progress, Result, Step
from trtllm_operator.api import names
from trtllm_operator.api.deployment import LLMDeployment
from trtllm_operator.api.engine import LLMEngine
from trtllm_operator.cluster.snapshots import deployment_snapshot, engine_snapshot, gpus
from trtllm_operator.decide.deployment import DeploymentPlan, decide_deployment
from trtllm_operator.decide.engine import EnginePlan, decide_engine
from trtllm_operator.decide.plan import Create, Delete, Plan
from trtllm_operator.decide.snapshot import DeploymentSnapshot
from trtllm_operator.decide.status import deployment_status, engine_status
from trtllm_operator.reconcile.store import Key, Store
from trtllm_operator.resolve.defaults import Defaults

Json = dict[str, Any]


@dataclass
class World:
    """A stand-in for the cluster: it stores what it is given, and nothing happens by itself."""

    defaults: Defaults = field(default_factory=some_defaults)
    store: Store = field(default_factory=lambda: Store(labels=[names.ROLE_LABEL]))
    now: Any = NOW
    others: list[Json] = field(default_factory=list)
    """Pods on nodes that are none of ours."""
    _version: int = 1000

    def put(self, obj: Json) -> Json:
        """Create or replace; the UID of a name stays, as long as the object is not removed."""
        obj = copy.deepcopy(obj)
        meta = obj["metadata"]
        meta.setdefault("namespace", "default")
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        meta.setdefault("uid", f"uid-{self._version}")
        meta.setdefault("creationTimestamp", self.now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        meta.setdefault("generation", 1)
        assert self.store.put(obj)
        return obj

    def get(self, kind: str, name: str) -> Json:
        found = self.store.get(Key(kind, "default", name))
        assert found is not None, f"no {kind} {name}"
        return found

    def change(self, kind: str, name: str, **changes: Any) -> Json:
        """Merge into an object, as a controller or a person would."""
        obj = merged(self.get(kind, name), changes)
        if "spec" in changes:
            obj["metadata"]["generation"] += 1
        return self.put(obj)

    def remove(self, kind: str, name: str) -> None:
        obj = self.get(kind, name)
        self._version += 1
        self.store.delete(Key(kind, "default", name), obj["metadata"]["uid"], self._version)
        for child in self.store.owned(obj["metadata"]["uid"]) if kind == "StatefulSet" else ():
            self.remove("Pod", child["metadata"]["name"])

    def names(self, kind: str) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.store.list(kind)]

    # --- what the operator does -------------------------------------------------------------------------------------

    def look_at_deployment(self, name: str) -> DeploymentPlan:
        """One reconcile: decide, apply, write the status."""
        snapshot, plan = self.decide_for(name)
        self._carry_out(plan)
        self._report(LLMDeployment.KIND, name, deployment_status(snapshot, plan, self.now))
        return plan

    def decide_for(self, name: str) -> tuple[DeploymentSnapshot, DeploymentPlan]:
        """A decision, with the GPUs counted if it asks for that."""
        snapshot = deployment_snapshot(self.store, self.get(LLMDeployment.KIND, name), self.defaults)
        plan = decide_deployment(snapshot, self.now)
        if plan.asks_gpus:
            snapshot = replace(snapshot, gpus=gpus(self.store, snapshot.deployment, self.others, ()))
            plan = decide_deployment(snapshot, self.now)
        return snapshot, plan

    def look_at_engine(self, name: str) -> EnginePlan:
        """One reconcile: decide, apply, write the status."""
        snapshot = engine_snapshot(self.store, self.get(LLMEngine.KIND, name), self.defaults)
        plan = decide_engine(snapshot, self.now)
        self._carry_out(plan)
        if name in self.names(LLMEngine.KIND):
            self._report(LLMEngine.KIND, name, engine_status(snapshot, plan, self.now))
        return plan

    def settle(self, deployment: str) -> DeploymentPlan:
        """Look at everything until nothing is written any more."""
        while True:
            before = self._version
            plan = self.look_at_deployment(deployment)
            for engine in self.names(LLMEngine.KIND):
                self.look_at_engine(engine)
            if self._version == before:
                return plan

    # --- what the cluster does --------------------------------------------------------------------------------------

    def job_succeeds(self, job: str, facts: ModelFacts | None = None, **result: Any) -> None:
        said = Result(ok=True, **result)
        if "-fetch-" in job:
            said = Result(ok=True, facts=facts or smollm2_facts(), versions=VERSIONS)
        self._pod_ends(job, 0, said, "Succeeded")
        self._job_status(job, {"succeeded": 1, "conditions": [_condition("Complete")]})

    def pod_fails(self, job: str, code: int, **result: Any) -> None:
        """The pod is over; the Job controller has not said anything yet."""
        self._pod_ends(job, code, Result(ok=False, code=code, **result) if result else None, "Failed")

    def job_runs(
        self, job: str, percent: float, step: Step = Step.WEIGHTS, eta: int | None = None, node: str | None = None
    ) -> None:
        pod = self._pod(job, {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, node)
        self._job_status(job, {"active": 1, "startTime": "2026-01-02T14:03:00Z"})
        line = Progress(ts="2026-01-02T14:03:30Z", step=step, percent=percent, eta_seconds=eta)
        self.store.set_progress(Key("Pod", "default", pod["metadata"]["name"]), line)

    def a_node(self, name: str, *, gpus: int = 0, ready: bool = True, labels: Json | None = None) -> None:
        self.put(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "namespace": "", "labels": labels or {}},
                "status": {
                    "allocatable": {"cpu": "64", "nvidia.com/gpu": str(gpus)},
                    "conditions": [self._stamped("Ready", "True" if ready else "Unknown")],
                },
            }
        )

    def remove_node(self, name: str) -> None:
        self._version += 1
        key = Key("Node", "", name)
        found = self.store.get(key)
        assert found is not None
        self.store.delete(key, found["metadata"]["uid"], self._version)

    def group_becomes_ready(self, name: str, node: str = "gpu-a") -> None:
        """Its pods are placed on one node and serve."""
        group = self.get("StatefulSet", name)
        size = group["spec"]["replicas"]
        running = {"phase": "Running", "conditions": [self._stamped("PodScheduled"), self._stamped("Ready")]}
        for rank in range(size):
            self.group_pod(name, running, rank=rank, node=node)
        self.change(
            "StatefulSet", name, status={"observedGeneration": group["metadata"]["generation"], "readyReplicas": size}
        )

    def group_is_placed(self, name: str, node: str = "gpu-a") -> None:
        """Its pods have a node since now, and load."""
        loading = {"phase": "Running", "conditions": [self._stamped("PodScheduled"), self._stamped("Ready", "False")]}
        for rank in range(self.get("StatefulSet", name)["spec"]["replicas"]):
            self.group_pod(name, loading, rank=rank, node=node)

    def group_finds_no_node(
        self, name: str, message: str = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    ) -> None:
        stuck = self._stamped("PodScheduled", "False") | {"reason": "Unschedulable", "message": message}
        self.group_pod(name, {"phase": "Pending", "conditions": [stuck]})

    def job_pod(self, job: str, status: Json) -> None:
        self._pod(job, status)

    def group_pod(self, group: str, status: Json, *, rank: int = 0, node: str | None = None) -> Json:
        owner = self.get("StatefulSet", group)
        pod = _child("Pod", f"{group}-{rank}", owner, status)
        pod["metadata"]["labels"] = owner["spec"]["template"]["metadata"]["labels"]
        pod["spec"] = owner["spec"]["template"]["spec"] | ({"nodeName": node} if node else {})
        return self.put(pod)

    def later(self, **delta: float) -> None:
        self.now += timedelta(**delta)

    def _stamped(self, type: str, status: str = "True") -> Json:
        return {"type": type, "status": status, "lastTransitionTime": self.now.strftime("%Y-%m-%dT%H:%M:%SZ")}

    def _pod_ends(self, job: str, code: int, said: Result | None, phase: str) -> None:
        ended = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "finishedAt": "2026-01-02T14:04:00Z",
        }
        if said is not None:
            ended["message"] = said.cut().to_json()
        self._pod(job, {"phase": phase, "containerStatuses": [{"state": {"terminated": ended}}]})

    def _pod(self, job: str, status: Json, node: str | None = None) -> Json:
        pod = _child("Pod", f"{job}-0-abcde", self.get("Job", job), status)
        return self.put(pod | ({"spec": {"nodeName": node}} if node else {}))

    def _job_status(self, job: str, status: Json) -> None:
        self.change("Job", job, status=status)

    def _carry_out(self, plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, Delete):
                self.remove(action.kind, action.name)
                continue
            manifest = dict(action.manifest)
            known = self.store.get(Key(manifest["kind"], "default", manifest["metadata"]["name"]))
            if known is None:
                self.put(manifest)
            elif not isinstance(action, Create) and (mended := merged(known, manifest)) != known:
                self.put(mended)

    def _report(self, kind: str, name: str, status: Json) -> None:
        if self.get(kind, name).get("status") != status:
            obj = copy.deepcopy(self.get(kind, name))
            obj["status"] = status
            self.put(obj)


def _condition(type: str) -> Json:
    return {"type": type, "status": "True", "lastTransitionTime": "2026-01-02T14:04:00Z"}


def _child(kind: str, name: str, owner: Json, status: Json) -> Json:
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "ownerReferences": [reference | {"controller": True}]},
        "status": status,
    }
