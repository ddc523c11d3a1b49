"""kstatus' documented algorithm for a custom resource, as sigs.k8s.io/cli-utils states it: a test's measure."""

from __future__ import annotations

from typing import Any


def compute(obj: dict[str, Any]) -> str:
    """Current, InProgress, Failed or Terminating."""
    if "deletionTimestamp" in obj["metadata"]:
        return "Terminating"
    status = obj.get("status") or {}
    if "observedGeneration" in status and status["observedGeneration"] != obj["metadata"]["generation"]:
        return "InProgress"
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    if conditions.get("Stalled") == "True":
        return "Failed"
    if conditions.get("Reconciling") == "True" or conditions.get("Ready", "True") != "True":
        return "InProgress"
    return "Current"


def violations(obj: dict[str, Any]) -> list[str]:
    """What is wrong with a status in itself, whatever it says: I3, I4 and the shape of conditions."""
    status, found = obj.get("status") or {}, []
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    if not conditions:
        return []
    abnormal = [kind for kind in ("Reconciling", "Stalled") if kind in conditions]
    found += [f"{kind} is there and not True" for kind in abnormal if conditions[kind]["status"] != "True"]
    if len(abnormal) == 2:
        found.append("Reconciling and Stalled at once")
    if "Ready" not in conditions:
        found.append("no condition Ready")
    elif (conditions["Ready"]["status"] == "True") == bool(abnormal):
        found.append(f"Ready={conditions['Ready']['status']} with {abnormal or 'nothing abnormal'}")
    if status.get("observedGeneration", 0) > obj["metadata"]["generation"]:
        found.append("observedGeneration exceeds the generation")
    late = [c["type"] for c in conditions.values() if c.get("observedGeneration") != status.get("observedGeneration")]
    return found + [f"{kind} is of another generation than the status" for kind in late]
