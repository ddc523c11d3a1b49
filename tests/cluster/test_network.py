"""Clusters side by side never share a name, an address or a port."""

from __future__ import annotations

import json
from ipaddress import ip_address, ip_network
from itertools import combinations
from pathlib import Path

import pytest

from tests.cluster import network
from tests.cluster.errors import HarnessError
from tests.cluster.network import NUMBERS, Network, free_ports, release_number, reserve_number


def test_no_two_clusters_overlap() -> None:
    networks = [Network(number) for number in NUMBERS]
    assert len({each.namespace for each in networks}) == len(NUMBERS)
    ranges = [ip_network(cidr) for each in networks for cidr in (each.pods, each.services)]
    ranges += [ip_network(f"{each.node_address}/24", strict=False) for each in networks]
    assert not any(one.overlaps(other) for one, other in combinations(ranges, 2))


@pytest.mark.parametrize("number", [NUMBERS[0], NUMBERS[-1]])
def test_the_dns_address_is_a_virtual_ip_of_the_cluster(number: int) -> None:
    assert ip_address(Network(number).dns_address) in ip_network(Network(number).services)


def test_link_names_fit_the_kernels_limit() -> None:
    assert len(f"trtllm{NUMBERS[-1]}-node") <= 15


def test_pods_get_addresses_of_their_cluster() -> None:
    plugin = json.loads(Network(7).cni_configuration(Path("/somewhere")))["plugins"][0]
    assert plugin["ipam"]["ranges"] == [[{"subnet": "10.244.7.0/24"}]]
    assert plugin["ipam"]["dataDir"] == "/somewhere"


def test_free_ports_are_distinct() -> None:
    assert len(set(free_ports(20))) == 20


def test_a_number_has_one_owner_until_it_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "RUN", tmp_path)
    monkeypatch.setattr(network, "NUMBERS", range(1, 3))
    assert [reserve_number(Path("/a")), reserve_number(Path("/b"))] == [1, 2]
    with pytest.raises(HarnessError, match="down --all"):
        reserve_number(Path("/c"))
    release_number(1)
    assert reserve_number(Path("/c")) == 1
    assert (tmp_path / "1" / "owner").read_text() == "/c"
