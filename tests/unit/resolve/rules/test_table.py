"""The table of rules is complete: every rule has its place, its test and a line on the page."""

import re
from pathlib import Path

import pytest

from tests.builders import a_deployment_object
from trtllm_operator.api.deployment import LLMDeployment
from trtllm_operator.api.llm_args import LlmArgs, iter_fields
from trtllm_operator.resolve import arbitration, claims, fit
from trtllm_operator.resolve.rules.elsewhere import ELSEWHERE, QUIRKS, SCHEMA
from trtllm_operator.resolve.rules.reference import FILE, entries, page
from trtllm_operator.resolve.rules.rule import Outcome, Stage
from trtllm_operator.resolve.rules.table import RULES

ROOT = Path(__file__).parents[4]
TESTS = Path(__file__).parents[1]
REFERENCE_RULES = {
    "MDL": 4, "PAR": 7, "INIT": 10, "CON": 3, "EMB": 1, "SET": 13, "SPEC": 11, "FMT": 5, "ENG": 5, "CKPT": 3, "ARB": 11,
    "CORE": 4, "XTR": 4, "PYB": 2, "MAP": 7, "PLG": 4, "KVT": 2, "BLD": 10, "TOK": 7, "FMHA": 5, "SM": 1, "QNT": 4,
    "PRE": 1, "CXX": 6, "LLM": 5,
}  # fmt: skip
"""How many rules each family of the reference has."""
DEPLOYMENT_FIELDS = ("modelVolume", "modelDigest", "engine.", "serving.", "podTemplate", "scheduling.")


def test_every_rule_of_the_reference_has_its_place() -> None:
    known = {f"{family}-{n}" for family, count in REFERENCE_RULES.items() for n in range(1, count + 1)}
    placed = {entry.id for entry in entries()} | set(ELSEWHERE)

    assert known - placed == set()
    assert set(ELSEWHERE) <= known


def test_no_rule_is_both_a_check_and_none() -> None:
    assert {entry.id for entry in entries()} & set(ELSEWHERE) == set()


def test_every_quirk_has_its_right_behaviour() -> None:
    assert list(QUIRKS) == [f"Q{n}" for n in range(1, 32)]
    placed = {entry.id for entry in entries()} | set(ELSEWHERE)
    named = {id for text in QUIRKS.values() for id in re.findall(r"\b[A-Z]+-[0-9]+\b", text)}
    assert named <= placed


def test_every_decidable_rule_has_a_test_with_its_name() -> None:
    names = "\n".join(re.findall(r"def (test_\w+)", "\n".join(f.read_text() for f in TESTS.rglob("test_*.py"))))
    ids = {entry.id for entry in entries() if entry.stage is not Stage.SCHEMA}

    tested = {id for id in ids if re.search(rf"_{id.lower().replace('-', '_')}(_|$)", names, re.MULTILINE)}
    # One name for three choices of the same kind.
    tested |= {"SIZE-3", "SIZE-4"} if "test_size_2_3_4_" in names else set()
    assert sorted(ids - tested) == []


def test_every_field_of_a_rule_exists() -> None:
    known = {fact.path for fact in iter_fields(LlmArgs)} | {"speculativeConfig.decodingType"}
    named = {field for entry in entries() for field in entry.fields}

    assert sorted(f for f in named - known if not f.startswith(DEPLOYMENT_FIELDS)) == []


def test_checks_refuse_or_warn_and_the_others_change() -> None:
    assert {rule.entry.outcome for rule in RULES} == {Outcome.REFUSES, Outcome.WARNS}
    assert {entry.outcome for entry in claims.ENTRIES} == {Outcome.ADJUSTS}
    assert {entry.outcome for entry in arbitration.ENTRIES} == {Outcome.CHOOSES}
    assert {entry.outcome for entry in fit.ENTRIES} == {Outcome.REFUSES}


def test_the_page_is_up_to_date() -> None:
    """Otherwise: python -m trtllm_operator.resolve.rules docs/reference"""
    assert (ROOT / "docs" / "reference" / FILE).read_text() == page()


@pytest.mark.parametrize(
    ("rule", "spec", "path"),
    [
        ("MDL-1", {"model": ""}, "spec.model"),
        ("MDL-2", {"model": 7}, "spec.model"),
        ("EMB-1", {"embeddingParallelMode": "SOMEHOW"}, "spec.embeddingParallelMode"),
        ("SET-2", {"enableBuildCache": True}, "spec.enableBuildCache"),
        (
            "SET-3",
            {"speculativeConfig": {"decodingType": "Medusa", "speculativeModel": ""}},
            "spec.speculativeConfig.speculativeModel",
        ),
        (
            "SPEC-3",
            {"speculativeConfig": {"decodingType": "Lookahead", "maxWindowSize": 0}},
            "spec.speculativeConfig.maxWindowSize",
        ),
        ("SPEC-10", {"speculativeConfig": "Medusa"}, "spec.speculativeConfig"),
        ("SPEC-11", {"speculativeConfig": {"decodingType": "Guess"}}, "spec.speculativeConfig"),
        (
            "PLG-1",
            {"buildConfig": {"pluginConfig": {"gemmPlugin": "int4"}}},
            "spec.buildConfig.pluginConfig.gemmPlugin",
        ),
        ("CXX-1", {"kvCacheConfig": {"freeGpuMemoryFraction": 1.0}}, "spec.kvCacheConfig.freeGpuMemoryFraction"),
        ("CXX-1", {"kvCacheConfig": {"maxTokens": 0}}, "spec.kvCacheConfig.maxTokens"),
        ("CXX-1", {"kvCacheConfig": {"maxAttentionWindow": [0]}}, "spec.kvCacheConfig.maxAttentionWindow[0]"),
        ("CXX-2", {"maxBeamWidth": 0}, "spec.maxBeamWidth"),
        ("CXX-2", {"iterStatsMaxIterations": -1}, "spec.iterStatsMaxIterations"),
        (
            "CXX-4",
            {"speculativeConfig": {"decodingType": "Eagle", "posteriorThreshold": 1.0}},
            "spec.speculativeConfig.posteriorThreshold",
        ),
        ("Q21", {"tensorParallelSize": -1}, "spec.tensorParallelSize"),
        ("Q22", {"kvCacheConfig": {"enableBlockReuze": True}}, "spec.kvCacheConfig.enableBlockReuze"),
    ],
)
def test_the_schema_refuses_at_the_field(rule: str, spec: dict[str, object], path: str) -> None:
    assert rule in {entry.id for entry in SCHEMA}
    (problem,) = LLMDeployment.of(a_deployment_object(spec=spec)).problems
    # The types of speculative decoding are told apart by the word that stands between section and field.
    assert re.sub(r"\.(Medusa|Eagle|MTP|Lookahead)(?=\.)", "", problem.path).startswith(path)


def test_every_rule_of_the_schema_is_tried() -> None:
    (mark,) = (m for m in test_the_schema_refuses_at_the_field.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert {row[0] for row in mark.args[1]} == {entry.id for entry in SCHEMA}
