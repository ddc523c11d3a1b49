"""The alerts and the dashboard of the chart, as Prometheus itself reads them.

Each alert is shown series with which it fires, with the words that people get, and series with which it does not.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests import render
from tests.builders import NOW
from tests.cluster.binaries import binary
from trtllm_engine.serve.metrics import Metrics as ServerMetrics
from trtllm_operator.api import names
from trtllm_operator.cluster.metrics import Metrics
from trtllm_operator.cluster.state_metrics import StateCollector, census
from trtllm_operator.reconcile.store import Store

Json = Mapping[str, Any]

RUNBOOKS: Final = "https://docs.example.com/alerts"
PAGE: Final = render.ROOT / "docs" / "runbooks" / "alerts.md"
HERE: Final = f'namespace="{render.NAMESPACE}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`series` hold a value a minute, in Prometheus' notation: `start+step x times`."""

    alert: str
    fires: Mapping[str, str]
    quiet: Mapping[str, str]
    at: str = "40m"
    labels: Mapping[str, str]
    """Of the alert, beside its name and severity."""
    says: str


def leading(pod: str, values: str) -> Mapping[str, str]:
    return {f'trtllm_operator_leader{{{HERE},pod="{pod}"}}': values}


def stalled(kind: str, reason: str, values: str) -> Mapping[str, str]:
    return {f'trtllm_operator_stalled{{{HERE},kind="{kind}",object_namespace="team-a",reason="{reason}"}}': values}


def replicas(desired: int, ready: str) -> Mapping[str, str]:
    return {
        f'trtllm_operator_replicas_desired{{{HERE},object_namespace="team-a"}}': f"{desired}x60",
        f'trtllm_operator_replicas_ready{{{HERE},object_namespace="team-a"}}': ready,
    }


def calls(code: str, values: str) -> Mapping[str, str]:
    return {f'trtllm_operator_api_requests_total{{{HERE},verb="get",code="{code}"}}': values}


def waits(fast: str, slow: str) -> Mapping[str, str]:
    name = f"trtllm_operator_queue_latency_seconds_bucket{{{HERE}"
    return {f'{name},le="1.0"}}': fast, f'{name},le="60.0"}}': slow, f'{name},le="+Inf"}}': slow}


def served(what: str, label: str, values: str) -> Mapping[str, str]:
    return {f'trtllm_request_{what}_total{{namespace="team-a",model_name="chat",{label}}}': values}


AT_HOME: Final = {"namespace": render.NAMESPACE}

CASES: Final = (
    Case(
        alert="TrtllmOperatorDown",
        fires={**leading("a", "0x60"), **leading("b", "0x60")},
        quiet={**leading("a", "0x60"), **leading("b", "1x60")},
        labels=AT_HOME,
        says="In namespace trtllm-operator-system no process has held the lease for 5 minutes. What serves goes on"
        " serving; nothing is repaired, built or rolled out.",
    ),
    Case(
        alert="TrtllmOperatorReconcileErrors",
        fires={f'trtllm_operator_reconcile_total{{{HERE},result="failed"}}': "0+1x60"},
        quiet={
            f'trtllm_operator_reconcile_total{{{HERE},result="failed"}}': "2x60",
            f'trtllm_operator_reconcile_total{{{HERE},result="retried"}}': "0+9x60",
        },
        labels=AT_HOME,
        says="15 looks at objects failed within 15 minutes; its log says which, and how.",
    ),
    Case(
        alert="TrtllmOperatorApiErrors",
        fires={**calls("200", "0+60x60"), **calls("503", "0+20x60"), **calls("error", "0+20x60")},
        quiet={**calls("200", "0+60x60"), **calls("503", "0+2x60"), **calls("409", "0+60x60")},
        labels=AT_HOME,
        says="40% of the operator's calls end without an answer, with 429 or with 5xx.",
    ),
    Case(
        alert="TrtllmOperatorFallsBehind",
        fires=waits("0+10x60", "0+20x60"),
        quiet=waits("0+20x60", "0+20x60"),
        labels=AT_HOME,
        says="One in a hundred waits 58.82s or longer from when it is due until a worker looks.",
    ),
    Case(
        alert="LLMDeploymentStalled",
        fires=stalled("LLMDeployment", "BuildFailed", "2x60"),
        quiet={**stalled("LLMDeployment", "RolledBack", "1x60"), **stalled("LLMDeployment", "Forbidden", "_x35 1x3")},
        labels={"object_namespace": "team-a", "reason": "BuildFailed"},
        says="2 LLMDeployment(s) in namespace team-a are stalled with the reason BuildFailed.",
    ),
    Case(
        alert="LLMDeploymentRolledBack",
        fires=stalled("LLMDeployment", "RolledBack", "1x60"),
        quiet=stalled("LLMDeployment", "BuildFailed", "1x60"),
        labels={"object_namespace": "team-a"},
        says="1 LLMDeployment(s) in namespace team-a serve their previous revision, because the one that the spec asks"
        " for did not become ready.",
    ),
    Case(
        alert="LLMDeploymentReplicasUnavailable",
        fires=replicas(3, "1x60"),
        quiet=replicas(3, "3x25 2x10 3x30"),
        labels={"object_namespace": "team-a"},
        says="2 replica(s) in namespace team-a have not served for 15 minutes.",
    ),
    Case(
        alert="LLMEngineBuildFailing",
        fires=stalled("LLMEngine", "BuildOutOfMemory", "1x60"),
        quiet=stalled("LLMDeployment", "BuildOutOfMemory", "1x60"),
        labels={"object_namespace": "team-a", "reason": "BuildOutOfMemory"},
        says="1 LLMEngine(s) in namespace team-a failed with the reason BuildOutOfMemory. Deployments that serve go on"
        " with their previous engine.",
    ),
    Case(
        alert="LLMEngineBuildWaiting",
        fires={f"trtllm_operator_build_longest_wait_seconds{{{HERE}}}": "0+60x60"},
        quiet={f"trtllm_operator_build_longest_wait_seconds{{{HERE}}}": "0+40x60"},
        labels=AT_HOME,
        says="The oldest build that does not run yet has waited for 40m 0s.",
    ),
    Case(
        alert="LLMDeploymentGpusIdle",
        fires={f"trtllm_operator_gpu_idle_seconds_total{{{HERE}}}": "0+240x60"},
        quiet={f"trtllm_operator_gpu_idle_seconds_total{{{HERE}}}": "0x5 0+480x3 1440x60"},
        labels=AT_HOME,
        says="Over the last 30 minutes 4.0 GPU(s) were held on average by pods that are not ready.",
    ),
    Case(
        alert="LLMServerRefusesRequests",
        fires=served("refused", 'reason="queue_full"', "0+30x60"),
        quiet=served("refused", 'reason="invalid"', "0+30x60"),
        labels={"namespace": "team-a", "model_name": "chat"},
        says="chat in namespace team-a refuses 0.50 requests a second.",
    ),
    Case(
        alert="LLMServerRequestsFail",
        fires={
            **served("success", 'finished_reason="stop"', "0+90x60"),
            **served("success", 'finished_reason="error"', "0+10x60"),
        },
        quiet={
            **served("success", 'finished_reason="stop"', "0+90x60"),
            **served("success", 'finished_reason="error"', "0+1x60"),
            **served("success", 'finished_reason="abort"', "0+50x60"),
        },
        labels={"namespace": "team-a", "model_name": "chat"},
        says="10% of the requests to chat in namespace team-a end with an error.",
    ),
)


def rendered() -> list[Json]:
    """The chart with everything that is about metrics."""
    parts = ("serviceMonitor", "podMonitor", "rules", "dashboard")
    switches = ",".join(f"metrics.{part}.enabled=true" for part in parts)
    text = render.render("--set", switches, "--set", f"metrics.rules.runbookUrl={RUNBOOKS}")
    return [manifest for manifest in yaml.safe_load_all(text) if manifest]


@pytest.fixture(scope="module")
def manifests() -> list[Json]:
    return rendered()


@pytest.fixture(scope="module")
def groups(manifests: list[Json]) -> Json:
    (rule,) = (manifest for manifest in manifests if manifest["kind"] == "PrometheusRule")
    spec: Json = rule["spec"]
    return spec


@pytest.fixture(scope="module")
def dashboard(manifests: list[Json]) -> Json:
    (config,) = (m for m in manifests if m["kind"] == "ConfigMap" and m["metadata"]["name"].endswith("-dashboard"))
    board: Json = json.loads(config["data"]["trtllm-operator.json"])
    return board


def rules(groups: Json) -> list[Json]:
    return [rule for group in groups["groups"] for rule in group["rules"]]


def expressions(dashboard: Json) -> list[str]:
    """Of all panels; what Grafana would put in for its variables is put in."""
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    values = {"$__rate_interval": "2m", "$operator": "trtllm-operator-system", "$namespace": "team-a|team-b"}
    for variable, value in values.items():
        asked = [expression.replace(variable, value) for expression in asked]
    return asked


def promtool(*arguments: str) -> None:
    done = subprocess.run([binary("promtool"), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried_here(groups: Json) -> None:
    assert sorted(case.alert for case in CASES) == sorted(rule["alert"] for rule in rules(groups))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_fires_with_its_words_and_only_when_it_should(case: Case, groups: Json, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups))
    (rule,) = (rule for rule in rules(groups) if rule["alert"] == case.alert)
    expected = {
        "exp_labels": {"severity": rule["labels"]["severity"], **case.labels},
        "exp_annotations": {
            "summary": rule["annotations"]["summary"],
            "description": case.says,
            "runbook_url": f"{RUNBOOKS}#{case.alert.lower()}",
        },
    }
    tests = [_test(case, case.fires, [expected]), _test(case, case.quiet, [])]
    tried = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(tried))
    promtool("test", "rules", str(tmp_path / "test.yaml"))


def _test(case: Case, series: Mapping[str, str], alerts: Sequence[Json]) -> Json:
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": case.at, "alertname": case.alert, "exp_alerts": list(alerts)}],
    }


def test_every_alert_leads_to_its_runbook(groups: Json) -> None:
    headings = {heading.lower() for heading in re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE)}
    anchors = {rule["annotations"]["runbook_url"].removeprefix(f"{RUNBOOKS}#") for rule in rules(groups)}
    assert anchors == headings


def test_prometheus_understands_every_expression_of_the_dashboard(dashboard: Json, tmp_path: Path) -> None:
    recorded = [{"record": f"panel:{i}", "expr": expr} for i, expr in enumerate(expressions(dashboard))]
    assert recorded
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
    promtool("check", "rules", "--lint-fatal", str(tmp_path / "panels.yaml"))


def exported() -> Iterator[str]:
    """Every name that the operator's page or a model server's can show."""
    metrics = Metrics()
    store = Store(labels=[names.ROLE_LABEL])
    metrics.collect(StateCollector(lambda: census(store, "nvidia.com/gpu", NOW), clock=lambda: 0.0))
    for name in ("queue_ready", "queue_in_flight", "queue_failing"):
        metrics.gauge(name, "", lambda: 0.0)
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
    for page in (metrics.render().decode(), ServerMetrics().render("chat")):
        for family in text_string_to_metric_families(page):
            yield from (family.name + suffix for suffix in suffixes.get(family.type, ("",)))


def test_whatever_an_alert_or_a_panel_asks_for_is_exported(groups: Json, dashboard: Json) -> None:
    asked = [*expressions(dashboard), *(rule["expr"] for rule in rules(groups))]
    wanted = {name for expression in asked for name in re.findall(r"\btrtllm_\w+", expression)}
    assert wanted
    assert wanted - set(exported()) == set()


def test_the_monitors_select_what_the_operator_makes(manifests: list[Json]) -> None:
    group = yaml.safe_load((render.ROOT / "tests/golden/statefulset.yaml").read_text())["spec"]["template"]
    (servers,) = (manifest["spec"] for manifest in manifests if manifest["kind"] == "PodMonitor")
    labels = {**group["metadata"]["labels"], names.POD_INDEX_LABEL: "0"}
    assert servers["selector"]["matchLabels"].items() <= labels.items()
    ports = [port["name"] for container in group["spec"]["containers"] for port in container["ports"]]
    assert [endpoint["port"] for endpoint in servers["podMetricsEndpoints"]] == ports
    (label,) = servers["podMetricsEndpoints"][0]["relabelings"][0]["sourceLabels"]
    assert label == "__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", names.DEPLOYMENT_LABEL)
    (monitor,) = (manifest["spec"] for manifest in manifests if manifest["kind"] == "ServiceMonitor")
    chosen = [
        manifest
        for manifest in manifests
        if manifest["kind"] == "Service"
        and monitor["selector"]["matchLabels"].items() <= manifest["metadata"]["labels"].items()
    ]
    assert [service["metadata"]["name"] for service in chosen] == ["trtllm-operator-metrics"]
    assert [endpoint["port"] for endpoint in monitor["endpoints"]] == [p["name"] for p in chosen[0]["spec"]["ports"]]


def test_nothing_that_needs_another_operator_is_installed_unasked() -> None:
    kinds = {manifest["kind"] for manifest in yaml.safe_load_all(render.render()) if manifest}
    assert not kinds & {"ServiceMonitor", "PodMonitor", "PrometheusRule"}
