"""What the machine must bring: checked before anything starts, installed where that is possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.cluster import cgroups
from tests.cluster.errors import HarnessError
from tests.cluster.network import CNI_PROGRAMS


class Tier(StrEnum):
    """How much of a cluster: APISERVER has no node, NODE has one that really runs pods."""

    APISERVER = "apiserver"
    NODE = "node"


COMMANDS: Final = {
    Tier.APISERVER: {"openssl": "openssl"},
    Tier.NODE: {
        "openssl": "openssl",
        "containerd": "containerd",
        "ctr": "containerd",
        "runc": "runc",
        "ip": "iproute2",
        "nft": "nftables",
        "iptables": "iptables",
        "conntrack": "conntrack",
        "nsenter": "util-linux",
        "sysctl": "procps",
        str(CNI_PROGRAMS / "ptp"): "containernetworking-plugins",
    },
}
"""Command (or program file) to the Debian package that has it."""
IMAGE_COMMANDS: Final = {"buildah": "buildah", "debootstrap": "debootstrap"}

SEARCH_PATH: Final = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


def ensure(commands: dict[str, str]) -> None:
    """Install the packages of the commands that are missing.

    Raises `HarnessError` with what is missing where that cannot be done: not root, or not Debian.
    """
    packages = sorted({name for command, name in commands.items() if not shutil.which(command, path=SEARCH_PATH)})
    if not packages:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise HarnessError(
            f"missing programs; on Debian: sudo apt-get install {' '.join(packages)}\n"
            "Root on Debian gets them installed. To use a cluster that you have, say: make demo CLUSTER=current"
        )
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for argv in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise HarnessError(f"{' '.join(argv)} failed:\n{done.stderr.strip()[-2000:]}")


def require(tier: Tier) -> None:
    """Make sure that the machine can run a cluster of this tier.

    Raises `HarnessError` with everything that is missing and the way around.
    """
    lacks = obstacles() if tier is Tier.NODE else []
    if lacks:
        raise HarnessError(
            "\n- ".join(["this machine cannot run a node of its own:", *lacks])
            + "\nTo use a cluster that you have, say: make demo CLUSTER=current"
        )
    ensure(COMMANDS[tier])


def obstacles() -> list[str]:
    """Why this machine cannot run a node; what packages mend is not counted."""
    lacks = []
    if sys.platform != "linux":
        return [f"the system is {sys.platform}; containers need Linux"]
    if os.geteuid() != 0:
        lacks.append("not root; run with sudo")
    if controllers := cgroups.missing_controllers():
        lacks.append(f"no control group controllers {', '.join(controllers)} in {cgroups.ROOT}")
    elif not os.access(cgroups.ROOT if cgroups.unified() else cgroups.ROOT / "pids", os.W_OK):
        lacks.append(f"{cgroups.ROOT} is read-only (inside an unprivileged container?)")
    if "overlay" not in Path("/proc/filesystems").read_text().split():
        subprocess.run(["modprobe", "overlay"], check=False, capture_output=True)
        if "overlay" not in Path("/proc/filesystems").read_text().split():
            lacks.append("the kernel has no overlay file system")
    return lacks
