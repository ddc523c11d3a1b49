"""Torch gets as many threads as the container may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtllm_engine.serve.cpus import usable_cpus


@pytest.mark.parametrize(
    ("quota", "cpus"),
    [("max 100000", 8), ("200000 100000", 2), ("150000 100000", 2), ("50000 100000", 1), ("9900000 100000", 8)],
)
def test_a_cgroup_quota_limits_the_affinity(tmp_path: Path, quota: str, cpus: int) -> None:
    (tmp_path / "cpu.max").write_text(quota + "\n")
    assert usable_cpus(tmp_path, affinity=8) == cpus


@pytest.mark.parametrize(("quota", "cpus"), [("-1", 8), ("300000", 3)])
def test_version_1_of_cgroups_is_understood(tmp_path: Path, quota: str, cpus: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert usable_cpus(tmp_path, affinity=8) == cpus


def test_without_cgroups_the_affinity_counts(tmp_path: Path) -> None:
    assert usable_cpus(tmp_path, affinity=3) == 3
