"""A whole cluster as one object: up, down, faults, and looks inside."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.cluster import audit, controlplane, node, storage
from tests.cluster.binaries import binaries, binary
from tests.cluster.cgroups import ControlGroup
from tests.cluster.errors import HarnessError
from tests.cluster.images import build_store
from tests.cluster.locking import exclusive
from tests.cluster.network import Network, free_ports, release_number, reserve_number
from tests.cluster.paths import REPOSITORY, cache, state
from tests.cluster.prerequisites import Tier, require
from tests.cluster.processes import Processes
from tests.cluster.progress import step
from tests.cluster.users import Users
from tests.cluster.waiting import wait_until

NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
PROVISIONER: Final = "provisioner"


@dataclass(frozen=True)
class Settings:
    """What a cluster was started with. `number` is 0 for a cluster without a node."""

    name: str
    tier: Tier
    number: int
    ports: dict[str, int]
    scheduler: bool
    gpus: int
    gpu_labels: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> Settings:
        """The settings in a cluster's folder."""
        raw = json.loads(file.read_text())
        return cls(**{**raw, "tier": Tier(raw["tier"])})


class Cluster:
    """One cluster that is up, or was left behind by a crash. Get it by `Cluster.up` or `Cluster.find`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.network = Network(settings.number)
        self.folder = folder_of(settings.name)
        self.logs = self.folder / "logs"
        self.users = Users(self.folder / "users")
        self.processes = Processes(self.folder / "processes", self.logs, self._wrapper())
        self.plane = controlplane.ControlPlane(self.folder, self.processes, self.network, settings.ports, self.users)
        self.node = node.Node(self.folder, self.network, self.processes, self.users)

    @classmethod
    def up(
        cls,
        tier: Tier,
        name: str = "dev",
        *,
        gpus: int = 8,
        gpu_labels: dict[str, str] | None = None,
        scheduler: bool = False,
    ) -> Self:
        """Start a cluster, or return the one of this name if it runs.

        `gpus` and `gpu_labels` (default: those of L4s) are advertised by the node of Tier.NODE. `scheduler` adds one
        to Tier.APISERVER. Raises `HarnessError` if the machine cannot, or if the running cluster is of another tier.
        What a crashed cluster of this name left behind is removed first.
        """
        if not NAME.fullmatch(name):
            raise HarnessError(f"cluster name {name!r}: use up to 32 of a-z, 0-9 and '-', first and last no '-'")
        tier = Tier(tier)
        with exclusive(cache() / "locks" / name):
            if (found := cls.find(name)) is not None:
                if found.running():
                    if found.settings.tier is not tier:
                        raise HarnessError(
                            f"cluster {name!r} runs with tier {found.settings.tier}, not {tier}; "
                            f"take another name, or: python -m tests.cluster down --name {name}"
                        )
                    return found
                found.down()
            require(tier)
            with step("programs"):
                binaries(_programs(tier))
            labels = dict(node.GPU_LABELS if gpu_labels is None else gpu_labels)
            folder = folder_of(name)
            number = reserve_number(folder) if tier is Tier.NODE else 0
            ports = dict(zip(controlplane.PORTS, free_ports(len(controlplane.PORTS)), strict=True))
            settings = Settings(name, tier, number, ports, scheduler or tier is Tier.NODE, gpus, labels)
            folder.mkdir(parents=True)
            (folder / "cluster.json").write_text(json.dumps(asdict(settings), indent=1))
            cluster = cls(settings)
            try:
                cluster._start()
            except BaseException:
                if not os.environ.get("TRTLLM_OPERATOR_KEEP_FAILED"):
                    cluster.down()
                raise
            return cluster

    @classmethod
    def find(cls, name: str) -> Self | None:
        """The cluster of this name, running or crashed; None if there is none."""
        file = folder_of(name) / "cluster.json"
        if file.exists():
            return cls(Settings.read(file))
        if folder_of(name).exists():  # interrupted before its first process started
            shutil.rmtree(folder_of(name))
        return None

    @classmethod
    def all(cls) -> list[Self]:
        """All clusters of this state folder."""
        found = (cls.find(file.parent.name) for file in sorted(state().glob("*/cluster.json")))
        return [cluster for cluster in found if cluster is not None]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    @property
    def name(self) -> str:
        """The cluster's name."""
        return self.settings.name

    @property
    def server_url(self) -> str:
        """The API server's URL, good on the machine and (Tier.NODE) in pods."""
        return self.plane.server_url

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig file."""
        return self.folder / "kubeconfig"

    @property
    def apiserver_audit(self) -> Path:
        """The audit log: JSON lines of level Metadata. See `writes`."""
        return self.plane.audit_log

    def running(self) -> bool:
        """Whether all components live."""
        return all(self.processes.alive(name) for name in self.components())

    def components(self) -> list[str]:
        """The names that `stop`, `start` and `restart` take."""
        plane = [name for name in controlplane.COMPONENTS if name != "scheduler" or self.settings.scheduler]
        return [*plane, *node.COMPONENTS, PROVISIONER] if self.settings.tier is Tier.NODE else plane

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator; with `check` a failure raises `CalledProcessError` noted with its message."""
        argv = [str(binary("kubectl")), f"--kubeconfig={self.kubeconfig}", *args]
        done = subprocess.run(argv, input=input, capture_output=True, text=True, check=False)
        if check and done.returncode:
            error = subprocess.CalledProcessError(done.returncode, ["kubectl", *args], done.stdout, done.stderr)
            error.add_note(done.stderr.strip())
            raise error
        return done

    def define(self, folder: Path) -> None:
        """Apply the custom resource definitions in a folder; returns when the API server serves them."""
        self.kubectl("apply", "--server-side", "-f", str(folder))
        # kubectl gives up on a definition that has no conditions yet, so a failed look is only one look.
        look = ("wait", "--for=condition=Established", "--timeout=1s", "-f", str(folder))
        wait_until(lambda: self.kubectl(*look, check=False).returncode == 0, f"{folder.name} to be served", 30)

    def token(self, user: str) -> str:
        """The bearer token of one of `users.USERS`: `admin`, or `tenant` and `viewer`, who have no rights yet."""
        return self.users.token(user)

    def kubeconfig_of(self, user: str) -> Path:
        """A kubeconfig file of one of `users.USERS`."""
        return self.users.kubeconfig(user, self.server_url)

    def load(self, image: str | Path) -> None:
        """Give the node an image: the name of one built by `images.build_images`, or an OCI or Docker archive file."""
        self._require_node("load an image")
        if Path(image).is_file():
            self.node.images.load_archive(Path(image).read_bytes())
        else:
            self.node.images.load(build_store(), str(image))

    def storage_folder(self, pvc_namespace: str, pvc_name: str) -> Path:
        """The folder on this machine that backs a bound claim."""
        api = self.plane.api()
        claim = api.get(f"/api/v1/namespaces/{pvc_namespace}/persistentvolumeclaims/{pvc_name}")
        name = claim["spec"].get("volumeName")
        if not name:
            raise HarnessError(f"claim {pvc_namespace}/{pvc_name} is not bound (phase {claim['status'].get('phase')})")
        return Path(api.get(f"/api/v1/persistentvolumes/{name}")["spec"]["hostPath"]["path"])

    def writes(self, since: datetime, user_agent_contains: str) -> list[audit.AuditEvent]:
        """The requests since a time (with a zone) that could change something, by clients of a given user agent."""
        return audit.writes(self.apiserver_audit, since, user_agent_contains)

    def stop(self, component: str) -> None:
        """Stop one component. Pods go on running without any of them, even without containerd."""
        self._require_component(component)
        self.processes.stop(component)

    def start(self, component: str) -> None:
        """Start a stopped component as it was started before; returns when it works again."""
        self._require_component(component)
        self.processes.start_again(component)
        if component in ("etcd", "apiserver"):
            if self.processes.alive("etcd") and self.processes.alive("apiserver"):
                self.plane.wait_ready()
        elif component == "containerd":
            self.node.wait_containerd()
        elif component == "kubelet":
            self.node.wait_ready(self.plane.api())
            self._advertise_gpus()

    def restart(self, component: str) -> None:
        """Stop and start one component."""
        self.stop(component)
        self.start(component)

    def down(self) -> None:
        """Remove the cluster with all its data, whatever state it is in; nothing of it stays on the machine."""
        if self.settings.tier is Tier.NODE:
            self.node.stop()
            self.network.delete()
            release_number(self.settings.number)
        else:
            for name in reversed(self.processes.names()):
                self.processes.stop(name)
        shutil.rmtree(self.folder)

    def _start(self) -> None:
        self.logs.mkdir()
        if self.settings.tier is Tier.NODE:
            with step("network and control group"):
                self.node.group.create()
                self.network.create()
        self.users.create()
        with step("control plane"):
            self.plane.start(self.settings.scheduler)
        shutil.copy(self.kubeconfig_of("admin"), self.kubeconfig)
        self.kubeconfig.chmod(0o600)
        if self.settings.tier is Tier.NODE:
            with step("container runtime"):
                self.node.start_containerd()
            with step("node"):
                self.node.start(self.plane)
                self._advertise_gpus()
            with step("storage"):
                self.start_provisioner()
        with step("default service account"):
            wait_until(self._default_service_account, "the default service account", 30)

    def start_provisioner(self) -> None:
        """Give each claim a folder of this machine; a cluster of Tier.NODE has that from the start."""
        api = self.plane.api()
        for name in storage.CLASSES:
            api.apply(f"/apis/storage.k8s.io/v1/storageclasses/{name}", storage.storage_class(name))
        token = self.users.folder / "harness.token"
        token.write_text(self.users.token("harness"))
        argv = [
            *(sys.executable, "-m", "tests.cluster.storage", f"--server={self.server_url}"),
            *(f"--ca={self.users.ca}", f"--token-file={token}", f"--folder={self.folder / 'volumes'}"),
        ]
        self.processes.start(PROVISIONER, argv, {"PYTHONPATH": str(REPOSITORY)})

    def _advertise_gpus(self) -> None:
        self.node.advertise_gpus(self.plane.api(), self.settings.gpus, self.settings.gpu_labels)

    def _default_service_account(self) -> bool:
        """Pods are refused before the controller manager has made it."""
        found = self.plane.api().get("/api/v1/namespaces/default/serviceaccounts")
        return any(item["metadata"]["name"] == "default" for item in found["items"])

    def _wrapper(self) -> list[str]:
        """A node's daemons enter the control group first, so that they are found whatever happens, then the network."""
        if self.settings.tier is Tier.APISERVER:
            return []
        enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        return ["/bin/sh", "-c", enter, str(ControlGroup(self.network.namespace).daemons), *self.network.entry()]

    def _require_component(self, component: str) -> None:
        if component not in self.components():
            known = ", ".join(self.components())
            raise HarnessError(f"no component {component!r} in cluster {self.name!r}; it has {known}")

    def _require_node(self, what: str) -> None:
        if self.settings.tier is not Tier.NODE:
            raise HarnessError(f"cannot {what}: cluster {self.name!r} has no node; start it with --tier node")


def folder_of(name: str) -> Path:
    """Where a cluster of this name keeps everything."""
    return state() / name


def _programs(tier: Tier) -> list[str]:
    plane = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "kube-scheduler"]
    return [*plane, "kubelet", "kube-proxy", "coredns", "pause"] if tier is Tier.NODE else plane
