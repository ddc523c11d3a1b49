"""Where the demonstration runs: on a cluster of its own, or on the user's."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from tests.cluster import images
from tests.cluster.binaries import binary
from tests.cluster.cluster import Cluster
from tests.demo.kubectl import Kubectl
from tests.demo.steps import Failure, Progress

NAME: Final = "demo"
NAMESPACE: Final = "demo"
"""Where the examples go; made by the demo."""
CLAIM: Final = "models"
"""What examples/*.yaml name as their `modelVolume`."""

OPERATOR_IMAGE: Final = "trtllm-operator:0.1.0"
ENGINE_IMAGE: Final = "trtllm-engine:0.1.0"
"""What dist/install.yaml names."""


class Target(Protocol):
    """A cluster to run on."""

    def kubectl(self) -> Kubectl: ...

    def install_manifest(self, manifest: str) -> str:
        """dist/install.yaml as this cluster needs it: only names of images may differ."""
        ...

    def image_version(self) -> str | None:
        """What changes with the operator's image although its name does not; None: its name says it."""
        ...

    def put_model(self, model: Path, progress: Progress) -> None:
        """Bring a model's folder onto the claim, which exists already."""
        ...


@dataclass(frozen=True, slots=True)
class OwnCluster:
    """The harness's cluster, started by the demo on this machine."""

    def cluster(self) -> Cluster:
        """Raises `Failure` if it does not run."""
        if (cluster := Cluster.find(NAME)) is None:
            raise Failure(f"cluster {NAME!r} does not run", advice="make demo starts it again")
        return cluster

    def kubectl(self) -> Kubectl:
        return Kubectl(str(binary("kubectl")), self.cluster().kubeconfig)

    def install_manifest(self, manifest: str) -> str:
        return manifest

    def image_version(self) -> str | None:
        return self.cluster().node.images.digests()[on_node(OPERATOR_IMAGE)]

    def name_images(self) -> None:
        """Give the loaded images the names that dist/install.yaml says."""
        store = self.cluster().node.images
        for built, name in ((images.OPERATOR.name, OPERATOR_IMAGE), (images.ENGINE.name, ENGINE_IMAGE)):
            store.ctr("images", "tag", "--force", built, on_node(name))

    def put_model(self, model: Path, progress: Progress) -> None:
        """The claim is a folder of this machine."""
        kubectl = self.kubectl()
        while kubectl.text("get", "pvc", CLAIM, "-n", NAMESPACE, "-o", "jsonpath={.status.phase}") != "Bound":
            progress.detail = f"claim {CLAIM} is not bound yet"
            progress.pause(0.5)
        folder = self.cluster().storage_folder(NAMESPACE, CLAIM)
        if not same(model, folder / model.name):
            progress.detail = f"copying to {folder}"
            copy(model, folder / model.name)


@dataclass(frozen=True, slots=True)
class CurrentCluster:
    """The cluster of the current kubeconfig. Its nodes pull (or hold) the images named by the environment."""

    operator_image: str
    engine_image: str

    @classmethod
    def of_environment(cls) -> CurrentCluster:
        """`OPERATOR_IMAGE` and `ENGINE_IMAGE`; the defaults suit clusters into which the images were loaded."""
        return cls(os.environ.get("OPERATOR_IMAGE", OPERATOR_IMAGE), os.environ.get("ENGINE_IMAGE", ENGINE_IMAGE))

    def kubectl(self) -> Kubectl:
        program = shutil.which("kubectl")
        return Kubectl(program or str(binary("kubectl")))

    def install_manifest(self, manifest: str) -> str:
        return manifest.replace(OPERATOR_IMAGE, self.operator_image).replace(ENGINE_IMAGE, self.engine_image)

    def image_version(self) -> str | None:
        return None

    def put_model(self, model: Path, progress: Progress) -> None:
        """Through a pod that mounts the claim, as a user would who has no other way to the volume."""
        kubectl = self.kubectl()
        kubectl.apply(LOADER.replace("IMAGE", self.engine_image))
        try:
            progress.detail = "waiting for the pod that mounts the claim"
            kubectl.text("wait", "-n", NAMESPACE, "pod/model-loader", "--for=condition=Ready", "--timeout=240s")
            held = kubectl.text("exec", "-n", NAMESPACE, "model-loader", "--", "ls", "/models", check=False).split()
            if model.name not in held:
                progress.detail = f"copying {sum(f.stat().st_size for f in model.iterdir()) >> 20} MiB"
                # To another name first: a copy that was cut short must not look like a model.
                kubectl.text("cp", "-n", NAMESPACE, str(model), "model-loader:/models/.incoming")
                kubectl.text(
                    "exec", "-n", NAMESPACE, "model-loader", "--", "mv", "/models/.incoming", f"/models/{model.name}"
                )  # fmt: skip
        finally:
            kubectl.text("delete", "pod", "model-loader", "-n", NAMESPACE, "--wait=false", check=False)


LOADER: Final = f"""\
apiVersion: v1
kind: Pod
metadata:
  name: model-loader
  namespace: {NAMESPACE}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {{type: RuntimeDefault}}
  containers:
    - name: loader
      image: IMAGE
      command: [sleep, infinity]
      securityContext:
        allowPrivilegeEscalation: false
        capabilities: {{drop: [ALL]}}
      volumeMounts:
        - {{name: models, mountPath: /models}}
  volumes:
    - name: models
      persistentVolumeClaim: {{claimName: {CLAIM}}}
"""


def on_node(image: str) -> str:
    """A short image name as the container runtime completes it."""
    return f"docker.io/library/{image}"


def same(source: Path, copied: Path) -> bool:
    """Whether a copy has every file in its full size."""
    return copied.is_dir() and sizes(source) == sizes(copied)


def copy(source: Path, destination: Path) -> None:
    """Copy a folder so that it is there whole or not at all, readable by the pods' user."""
    draft = destination.with_name(f".{destination.name}.incoming")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.copytree(source, draft)
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.rmtree(destination, ignore_errors=True)
    draft.rename(destination)


def sizes(folder: Path) -> dict[str, int]:
    """Size by relative path."""
    return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}
