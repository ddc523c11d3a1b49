"""One node that really runs pods: containerd, kubelet, kube-proxy and DNS, in a network namespace and control group."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.api import Api, ApiError
from tests.cluster.binaries import binary
from tests.cluster.cgroups import ControlGroup
from tests.cluster.controlplane import ControlPlane
from tests.cluster.imagestore import ImageStore
from tests.cluster.network import CNI_PROGRAMS, Network
from tests.cluster.oci import Image, single_layer
from tests.cluster.paths import RUN, cache
from tests.cluster.processes import Processes
from tests.cluster.users import NODE_NAME, Users
from tests.cluster.waiting import wait_until

COMPONENTS: Final = ("containerd", "kubelet", "kube-proxy", "coredns")
PAUSE_IMAGE: Final = "localhost/pause:1"

GPU_LABELS: Final = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-L4",
    "nvidia.com/gpu.memory": "23034",
    "nvidia.com/gpu.family": "ada-lovelace",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "9",
}
"""What GPU feature discovery writes on a node with L4s; `nvidia.com/gpu.count` is added. Memory is in MiB."""


@dataclass(frozen=True)
class Node:
    """The node of the cluster in `folder`."""

    folder: Path
    network: Network
    processes: Processes
    users: Users

    @property
    def group(self) -> ControlGroup:
        """Limits and finds everything that runs on the node."""
        return ControlGroup(self.network.namespace)

    @property
    def run(self) -> Path:
        """Sockets and mounts."""
        return RUN / str(self.network.number)

    @property
    def store(self) -> Path:
        """containerd's images: in the cache, because layers are hard links to those of the image builder."""
        return cache() / "containerd" / str(self.network.number)

    @property
    def images(self) -> ImageStore:
        """The images of the running containerd."""
        return ImageStore(self.run / "containerd.sock")

    def start_containerd(self) -> None:
        """Start the container runtime and give it the pause image; needs no API server."""
        configuration = self._write("containerd.toml", self._containerd())
        (self.folder / "cni").mkdir(exist_ok=True)
        (self.folder / "cni" / "10-pods.conflist").write_text(self.network.cni_configuration(self.folder / "addresses"))
        self.processes.start("containerd", ["containerd", "--config", str(configuration)])
        self.wait_containerd()
        image, layer = pause_image()
        self.images.load_archive(image.archive(layer))

    def wait_containerd(self) -> None:
        """Wait until the runtime answers."""

        def answers() -> bool:
            self.processes.require_alive("containerd")
            argv = ["ctr", "--address", str(self.images.socket), "version"]
            return subprocess.run(argv, capture_output=True, check=False).returncode == 0

        wait_until(answers, "containerd to answer", 30)

    def start(self, plane: ControlPlane) -> None:
        """Start the rest; returns when the node is Ready."""
        server = plane.server_url
        api = plane.api()
        kubeconfigs = {name: self.users.kubeconfig(name, server) for name in ("kubelet", "kube-proxy", "coredns")}
        self._serve_dns(api)
        self.processes.start("kubelet", self._kubelet(kubeconfigs["kubelet"]))
        self.processes.start("kube-proxy", self._kube_proxy(kubeconfigs["kube-proxy"]))
        self.processes.start("coredns", self._coredns(kubeconfigs["coredns"]))
        self.wait_ready(api)

    def wait_ready(self, api: Api) -> None:
        """Wait for the node's Ready condition."""

        def ready() -> bool:
            for name in COMPONENTS:
                if self.processes.record(name) is not None:
                    self.processes.require_alive(name)
            try:
                node = api.get(f"/api/v1/nodes/{NODE_NAME}")
            except ApiError:
                return False
            conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", [])}
            return conditions.get("Ready") == "True"

        wait_until(ready, f"node {NODE_NAME} to be Ready (log: {self.processes.log('kubelet')})", 60)

    def advertise_gpus(self, api: Api, count: int, labels: dict[str, str]) -> None:
        """Let the node offer GPUs that are not there; the kubelet keeps what it finds, except over its own restart."""
        product = {**labels, "nvidia.com/gpu.count": str(count)} if count else {}
        api.merge(f"/api/v1/nodes/{NODE_NAME}", {"metadata": {"labels": product}})
        amount = {"nvidia.com/gpu": str(count)} if count else {}
        api.merge(f"/api/v1/nodes/{NODE_NAME}/status", {"status": {"capacity": amount, "allocatable": amount}})

    def stop(self) -> None:
        """End everything on the node and undo what it did to the machine."""
        # The kubelet first: it would start again what is killed.
        self.processes.stop("kubelet")
        self.group.kill()
        self._forget_shims()
        for mount in mounts_below(self.folder, self.run, self.store):
            subprocess.run(["umount", "--lazy", str(mount)], check=False, capture_output=True)
        shutil.rmtree(self.store, ignore_errors=True)
        self.group.remove()
        for link in Path("/var/log/containers").glob("*.log"):
            if self.folder in Path(os.readlink(link)).parents:
                link.unlink()

    def _forget_shims(self) -> None:
        """A killed shim leaves its socket in a folder that all runtimes of the machine share."""
        for address in self.run.glob("containerd/io.containerd.runtime.v2.task/*/*/address"):
            Path(address.read_text().strip().removeprefix("unix://")).unlink(missing_ok=True)

    def _write(self, name: str, content: str | Mapping[str, object]) -> Path:
        file = self.folder / name
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        return file

    def _containerd(self) -> str:
        cri = 'plugins."io.containerd.grpc.v1.cri"'
        return f"""version = 2
root = "{self.store}"
state = "{self.run / "containerd"}"
[grpc]
  address = "{self.images.socket}"
[debug]
  level = "warn"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.run / "opt"}"
[{cri}]
  sandbox_image = "{PAUSE_IMAGE}"
  # Lowering the score of a container below our own needs rights that the machine may not grant.
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
[{cri}.cni]
  bin_dir = "{CNI_PROGRAMS}"
  conf_dir = "{self.folder / "cni"}"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""

    def _kubelet(self, kubeconfig: Path) -> list[str]:
        root = self.folder / "kubelet"
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.network.node_address,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.users.kubelet_client)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self.images.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.group.name}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "clusterDNS": [self.network.dns_address],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "localStorageCapacityIsolation": False,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,  # never: images come back only by hand
            "podLogsDir": str(self.folder / "logs" / "pods"),
            "volumePluginDir": str(root / "volume-plugins"),
            "healthzBindAddress": "127.0.0.1",
            "registerWithTaints": [],
        }
        return [
            str(binary("kubelet")),
            f"--config={self._write('kubelet.json', configuration)}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={root}",
            f"--cert-dir={root / 'pki'}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={self.network.node_address}",
        ]

    def _kube_proxy(self, kubeconfig: Path) -> list[str]:
        configuration = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": self.network.pods,
            "hostnameOverride": NODE_NAME,
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "conntrack": {"maxPerCore": 0, "min": 0},
        }
        return [str(binary("kube-proxy")), f"--config={self._write('kube-proxy.json', configuration)}"]

    def _coredns(self, kubeconfig: Path) -> list[str]:
        zone = f"""cluster.local:53 in-addr.arpa:53 {{
  bind {self.network.node_address}
  errors
  cache 5
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
  }}
}}
"""
        return [str(binary("coredns")), "-conf", str(self._write("Corefile", zone))]

    def _serve_dns(self, api: Api) -> None:
        """The Service that pods ask; DNS itself runs on the node, not in a pod."""
        port = {"name": "dns", "port": 53, "protocol": "UDP"}
        tcp = {"name": "dns-tcp", "port": 53, "protocol": "TCP"}
        api.apply(
            "/api/v1/namespaces/kube-system/services/kube-dns",
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "kube-dns", "namespace": "kube-system"},
                "spec": {"clusterIP": self.network.dns_address, "ports": [port, tcp]},
            },
        )
        api.apply(
            "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns",
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "kube-dns",
                    "namespace": "kube-system",
                    "labels": {"kubernetes.io/service-name": "kube-dns"},
                },
                "addressType": "IPv4",
                "ports": [port, tcp],
                "endpoints": [{"addresses": [self.network.node_address], "conditions": {"ready": True}}],
            },
        )
        rules = [
            {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ]
        group = "rbac.authorization.k8s.io"
        api.apply(
            f"/apis/{group}/v1/clusterroles/system:coredns",
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRole",
                "metadata": {"name": "system:coredns"},
                "rules": rules,
            },
        )
        api.apply(
            f"/apis/{group}/v1/clusterrolebindings/system:coredns",
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": "system:coredns"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "system:coredns"},
                "subjects": [{"apiGroup": group, "kind": "User", "name": "system:coredns"}],
            },
        )


def pause_image() -> tuple[Image, bytes]:
    """The image that holds a pod's namespaces, and its one layer: one static program."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive, binary("pause").open("rb") as program:
        member = archive.gettarinfo(arcname="pause", fileobj=program)
        member.uid = member.gid = member.mtime = 0
        member.uname = member.gname = "root"
        archive.addfile(member, program)
    layer = target.getvalue()
    return single_layer(PAUSE_IMAGE, layer, {"Entrypoint": ["/pause"], "User": "65535:65535"}), layer


def mounts_below(*folders: Path) -> list[Path]:
    """The mount points in some folders, innermost first."""
    # Octal escapes stand for blanks and the like.
    table = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split()[4].encode().decode("unicode_escape") for line in table]
    inside = [Path(point) for point in points if any(folder in Path(point).parents for folder in folders)]
    return sorted(inside, key=lambda path: len(path.parts), reverse=True)
