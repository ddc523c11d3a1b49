"""Record what a real control plane stores: `python -m tests.gitops.record` rewrites the health scripts' test data.

API server, controllers and operator are real; scheduler and kubelet are the played ones of the apiserver tier.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml

from tests.apiserver.played_kubelet import PlayedKubelet
from tests.builders import a_deployment_object, an_engine_object
from tests.cluster.cluster import Cluster
from tests.cluster.paths import REPOSITORY
from tests.cluster.prerequisites import Tier
from tests.cluster.waiting import wait_until
from tests.gitops.test_health import ROOT, health
from tests.operator_process import OperatorProcess
from trtllm_engine.contract import ExitCode, Result, Step

Json = dict[str, Any]

FAILED: Final = Result(
    ok=False,
    code=ExitCode.BUILDER_ERROR,
    step=Step.BUILD,
    message="the builder found no implementation for layer 3",
    log="[E] Error Code 10: could not find any implementation for node layers.3.mlp",
)


class Scene:
    """One object in a namespace of its own, and where its states are written."""

    def __init__(self, cluster: Cluster, obj: Json, namespace: str) -> None:
        self._cluster, self._kind, self._name = cluster, obj["kind"], obj["metadata"]["name"]
        self._namespace = namespace
        self._obj = {**obj, "metadata": {"name": self._name, "namespace": namespace}}
        self.kubelet = PlayedKubelet(cluster, namespace)
        self._cases: dict[str, Json] = {}
        self.kubectl("create", "namespace", namespace)

    def kubectl(self, *args: str, input: str | None = None) -> str:
        return self._cluster.kubectl(*args, input=input).stdout

    def apply(self, **spec: Any) -> None:
        self._obj = {**self._obj, "spec": {**self._obj["spec"], **spec}}
        self.kubectl("apply", "-f-", input=json.dumps(self._obj))

    def get(self) -> Json:
        return dict(json.loads(self.kubectl("-n", self._namespace, "get", self._kind, self._name, "-o", "json")))

    def record(self, name: str, until: Callable[[Json], bool] = lambda obj: True) -> None:
        """Write the object down as soon as it is so."""

        def look() -> Json | None:
            obj = self.get()
            return obj if until(obj) else None

        obj = wait_until(look, f"{self._kind} to be {name}", 60, interval=0.05)
        obj["metadata"].pop("managedFields", None)
        (obj["metadata"].get("annotations") or {}).pop("kubectl.kubernetes.io/last-applied-configuration", None)
        file = ROOT / self._kind / "testdata" / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(obj, sort_keys=False, width=120))

    def has(self, reason: str) -> Callable[[Json], bool]:
        """Whether the reason of Ready is this one, for the generation that is stored."""

        def told(obj: Json) -> bool:
            status = obj.get("status") or {}
            ready: Json = next((c for c in status.get("conditions") or () if c["type"] == "Ready"), {})
            return ready.get("reason") == reason and status["observedGeneration"] == obj["metadata"]["generation"]

        return told


def record_deployment(scene: Scene, run: Callable[[], OperatorProcess]) -> None:
    scene.apply()
    scene.record("new")
    with run() as operator:
        scene.record("fetching", scene.has("FetchingModel"))
        scene.kubelet.finish_fetch()
        scene.record("building", scene.has("BuildingEngine"))
        scene.kubelet.finish_build()
        scene.record("rolling-out", scene.has("RollingOut"))
        scene.kubelet.start_groups()
        scene.record("ready", scene.has("AsExpected"))
        scene.apply(replicas=0)
        scene.record("scaled-to-zero", scene.has("ScaledToZero"))
        scene.apply(suspend=True)
        scene.record("suspended", scene.has("Suspended"))
        scene.apply(suspend=False, revision="main")
        scene.record("invalid-spec", scene.has("InvalidSpec"))
        operator.stop()
        scene.apply(replicas=2)
        scene.record("change-not-seen-yet")


def record_failed_build(scene: Scene, run: Callable[[], OperatorProcess]) -> None:
    with run():
        scene.apply()
        scene.kubelet.finish_fetch()
        scene.kubelet.fail_build(FAILED)
        scene.record("build-failed", scene.has("BuildFailed"))


def record_engine(scene: Scene, run: Callable[[], OperatorProcess]) -> None:
    scene.apply()
    scene.record("new")
    with run():
        scene.record("fetching", scene.has("FetchingModel"))
        scene.kubelet.finish_fetch()
        scene.record("building", scene.has("BuildingEngine"))
        scene.kubelet.finish_build()
        scene.record("ready", scene.has("AsExpected"))


def record_bad_engine(scene: Scene, run: Callable[[], OperatorProcess]) -> None:
    with run():
        scene.apply(target={"computeCapability": "7.5"})
        scene.record("invalid-spec", scene.has("UnsupportedByToolchain"))


SCENES: Final = (
    (a_deployment_object("chat"), record_deployment),
    (a_deployment_object("chat"), record_failed_build),
    (an_engine_object("chat-ada"), record_engine),
    (an_engine_object("chat-ada"), record_failed_build),
    (an_engine_object("chat-ada"), record_bad_engine),
)


def write_cases() -> None:
    """What the scripts say about each recorded object; read the difference before it is committed."""
    for kind in ("LLMDeployment", "LLMEngine"):
        tests = []
        for file in sorted((ROOT / kind / "testdata").glob("*.yaml")):
            said = health(kind, yaml.safe_load(file.read_text()))
            tests.append({"healthStatus": said, "inputPath": f"testdata/{file.name}"})
        (ROOT / kind / "health_test.yaml").write_text(yaml.safe_dump({"tests": tests}, width=120))


@contextmanager
def control_plane() -> Iterator[Cluster]:
    with Cluster.up(Tier.APISERVER, "record") as cluster:
        cluster.define(REPOSITORY / "crds")
        yield cluster


def main() -> None:
    with control_plane() as cluster, tempfile.TemporaryDirectory() as folder:
        for number, (obj, play) in enumerate(SCENES):
            namespace = f"scene-{number}"

            def run(namespace: str = namespace, number: int = number) -> OperatorProcess:
                return OperatorProcess(cluster.kubeconfig, Path(folder) / str(number), {}, namespace=namespace)

            play(Scene(cluster, obj, namespace), run)
            print(f"recorded {obj['kind']} {play.__name__}", flush=True)
    write_cases()


if __name__ == "__main__":
    main()
