"""A network namespace per node cluster: its own links, ports and packet filter rules, so clusters never meet.

The machine reaches nodes, pods and virtual IPs through one link pair; deleting the namespace removes it all.
Pods reach each other, the node and the machine, but nothing beyond: no rule of the machine is changed.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.cluster.errors import HarnessError
from tests.cluster.paths import RUN

NUMBERS: Final = range(1, 100)
"""Of clusters with a node; the number is in every name and address. 0 stands for clusters on loopback."""
CNI_PROGRAMS: Final = Path("/usr/lib/cni")
CNI_RESULTS: Final = Path("/var/lib/cni/results")
"""Where the CNI library remembers what it did; a killed runtime leaves its entries."""


@dataclass(frozen=True)
class Network:
    """Names and addresses of one cluster, all derived from its number."""

    number: int

    @property
    def namespace(self) -> str:
        """Name of the network namespace, the control group and the pod network."""
        return f"trtllm-{self.number}"

    @property
    def node_address(self) -> str:
        """Where the API server and the kubelet listen."""
        return f"10.250.{self.number}.1" if self.number else "127.0.0.1"

    @property
    def machine_address(self) -> str:
        """The machine, seen from the node and its pods."""
        return f"10.250.{self.number}.254"

    @property
    def pods(self) -> str:
        """The range of pod addresses."""
        return f"10.244.{self.number}.0/24"

    @property
    def services(self) -> str:
        """The range of virtual IPs."""
        return f"10.{96 + self.number}.0.0/16"

    @property
    def dns_address(self) -> str:
        """The virtual IP of the cluster's DNS."""
        return f"10.{96 + self.number}.0.10"

    def create(self) -> None:
        """Make the namespace, the link pair and the machine's routes into it."""
        space, machine, node = self.namespace, f"trtllm{self.number}", f"trtllm{self.number}-node"
        _ip("netns", "add", space)
        _ip("link", "add", machine, "type", "veth", "peer", "name", node, "netns", space)
        _ip("address", "add", f"{self.machine_address}/24", "dev", machine)
        _ip("link", "set", machine, "up")
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "address", "add", f"{self.node_address}/24", "dev", node)
        _ip("-n", space, "link", "set", node, "up")
        _ip("-n", space, "route", "add", "default", "via", self.machine_address)
        for destination in (self.pods, self.services):
            _ip("route", "add", destination, "via", self.node_address, "dev", machine)
        self.inside("sysctl", "-qw", "net.ipv4.ip_forward=1")

    def delete(self) -> None:
        """Remove the namespace and with it the links, routes and rules; nothing happens if it is gone."""
        if Path("/run/netns", self.namespace).exists():
            _ip("netns", "delete", self.namespace)
        with contextlib.suppress(HarnessError):
            # The kernel destroys a namespace some time after its deletion; its link pair must be gone now.
            _ip("link", "delete", f"trtllm{self.number}")
        for entry in CNI_RESULTS.glob(f"{self.namespace}-*-eth0"):
            sandbox = entry.name.removeprefix(f"{self.namespace}-").removesuffix("-eth0")
            (CNI_RESULTS / f"cni-loopback-{sandbox}-lo").unlink(missing_ok=True)
            entry.unlink(missing_ok=True)

    def entry(self) -> list[str]:
        """A command prefix that runs the rest inside. Not `ip netns exec`: that would hide the control groups."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "--"]

    def inside(self, *argv: str) -> str:
        """Run a command in the namespace."""
        return _run([*self.entry(), *argv])

    def cni_configuration(self, data: Path) -> str:
        """Each pod gets a routed point-to-point link; addresses are kept in `data`."""
        ipam = {
            "type": "host-local",
            "ranges": [[{"subnet": self.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(data),
        }
        plugins = [{"type": "ptp", "ipam": ipam}]
        return json.dumps({"cniVersion": "0.4.0", "name": self.namespace, "plugins": plugins}, indent=1)


def reserve_number(owner: Path) -> int:
    """Take the lowest free cluster number for the cluster whose folder is `owner`.

    A folder below /run is the reservation: made by one atomic mkdir, freed by `release_number`, gone after a reboot.
    """
    RUN.mkdir(parents=True, exist_ok=True)
    for number in NUMBERS:
        try:
            (RUN / str(number)).mkdir()
        except FileExistsError:
            continue
        (RUN / str(number) / "owner").write_text(str(owner))
        return number
    raise HarnessError(f"all numbers below {RUN} are taken; free some: python -m tests.cluster down --all")


def release_number(number: int) -> None:
    """Give a number back."""
    shutil.rmtree(RUN / str(number), ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Distinct TCP ports that nobody listens on at 127.0.0.1 now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _ip(*arguments: str) -> str:
    return _run(["ip", *arguments])


def _run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HarnessError(f"{' '.join(argv)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
