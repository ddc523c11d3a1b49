"""Which ranks of a model this pod holds, and where rank 0 is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from trtllm_engine.contract import ExitCode
from trtllm_engine.contract import Mapping as ParallelMapping
from trtllm_engine.failure import Failure

POD: Final = "GROUP_RANK"
"""The pod's ordinal in its replica group; absent: 0."""
RANKS_PER_POD: Final = "LOCAL_WORLD_SIZE"
"""Absent: all ranks are in this pod."""
LEADER_HOST: Final = "MASTER_ADDR"
"""The first pod's DNS name; needed where there are more pods."""
LEADER_PORT: Final = "MASTER_PORT"
DEFAULT_PORT: Final = 29500


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Pod p holds the ranks from p * ranks_per_pod on; the variables are named as torch's own launcher names them."""

    world_size: int = 1
    pod: int = 0
    ranks_per_pod: int = 1
    leader_host: str = "127.0.0.1"
    leader_port: int = 0
    """0: a free one, which rank 0 tells the other ranks of its pod."""

    @property
    def ranks(self) -> range:
        """Of this pod; the first is the pod's own process, which starts the others."""
        return range(self.pod * self.ranks_per_pod, (self.pod + 1) * self.ranks_per_pod)

    @property
    def leads(self) -> bool:
        return self.pod == 0

    def local(self, rank: int) -> int:
        """Which of the pod's GPUs is this rank's."""
        return rank - self.ranks.start


def read_placement(mapping: ParallelMapping, environment: Mapping[str, str]) -> Placement:
    """Raises BAD_REQUEST naming the variable that does not fit the mapping."""
    world = mapping.world_size
    per_pod = _number(environment, RANKS_PER_POD, world, least=1)
    if world % per_pod:
        raise _refused(RANKS_PER_POD, f"{per_pod} ranks per pod do not make the mapping's {world}")
    pods, pod = world // per_pod, _number(environment, POD, 0, least=0)
    if pod >= pods:
        raise _refused(POD, f"pod {pod} is none of the {pods} pods that {world} ranks make, {per_pod} each")
    if pods == 1:
        return Placement(world_size=world, ranks_per_pod=per_pod)
    if not (host := environment.get(LEADER_HOST)):
        raise _refused(LEADER_HOST, f"{world} ranks are in {pods} pods, so the first pod's name must be said")
    port = _number(environment, LEADER_PORT, DEFAULT_PORT, least=1)
    return Placement(world_size=world, pod=pod, ranks_per_pod=per_pod, leader_host=host, leader_port=port)


def _number(environment: Mapping[str, str], name: str, default: int, *, least: int) -> int:
    said = environment.get(name) or str(default)
    if not said.isdecimal() or int(said) < least:
        raise _refused(name, f"must be a whole number from {least} on, got {said!r}")
    return int(said)


def _refused(name: str, message: str) -> Failure:
    return Failure(ExitCode.BAD_REQUEST, f"environment: {name}: {message}", field=name)
