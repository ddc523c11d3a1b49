"""What the model's folder holds decides what can be asked for."""

from typing import Any

import pytest

from tests.builders import DIGEST, an_engine_spec, smollm2_facts, some_defaults
from tests.unit.resolve.cases import for_engine, found, gptq, others, refused, silent, warned
from trtllm_engine.contract import QuantAlgo
from trtllm_operator.api.conditions import Reason
from trtllm_operator.resolve.capability import SCHEMES
from trtllm_operator.resolve.examination import Examination, examine
from trtllm_operator.resolve.rules.case import Case


@pytest.mark.parametrize("format", ["trtllm_engine", "trtllm_checkpoint", "something_new"])
def test_fmt_2_a_format_that_the_toolchain_does_not_read_is_refused(format: str) -> None:
    problem = refused("FMT-2", found({}, smollm2_facts(format=format)))

    assert (problem.path, problem.code) == ("spec.model", Reason.UNSUPPORTED_BY_TOOLCHAIN)
    assert format in problem.message
    assert ("tensorrt_llm does" in str(problem.hint)) is (format != "something_new")
    assert silent("FMT-2", found(for_engine(), smollm2_facts(format="trtllm_engine")))


def test_fmt_4_a_family_that_nobody_builds_is_refused() -> None:
    mamba = smollm2_facts(family=None, architecture="Mamba")

    assert "Mamba" in refused("FMT-4", found({}, mamba)).message
    assert silent("FMT-4", found(for_engine(), mamba))


def test_eng_2_an_engine_keeps_its_quantisation() -> None:
    asked = for_engine(quantConfig={"quantAlgo": "FP8"})

    problem = refused("ENG-2", found(asked, smollm2_facts(format="trtllm_engine")))
    assert problem.path == "spec.quantConfig.quantAlgo"
    assert "was built with no quantisation" in problem.message
    assert silent("ENG-2", found(asked, smollm2_facts(format="trtllm_engine", quantization="FP8")))


def test_eng_3_build_options_of_a_finished_engine_count_for_nothing() -> None:
    spec, engine = for_engine(buildConfig={"maxBatchSize": 4}), smollm2_facts(format="trtllm_engine")

    assert warned("ENG-3", found(spec, engine)).path == "spec.buildConfig"
    assert silent("ENG-3", found(spec, smollm2_facts()))


@pytest.mark.parametrize(
    ("asked", "stored", "fine"),
    [("FP8", "fp8", True), ("W4A16_AWQ", "awq", True), ("FP8", "awq", False), ("NVFP4", "FP8", False)],
)
def test_qnt_3_a_quantised_checkpoint_keeps_its_scheme(asked: str, stored: str, fine: bool) -> None:
    result = found(for_engine(quantConfig={"quantAlgo": asked}), smollm2_facts(quantization=stored))

    assert silent("QNT-3", result) is fine
    if not fine:
        assert refused("QNT-3", result).path == "spec.quantConfig.quantAlgo"


@pytest.mark.parametrize(
    ("asked", "path", "said"),
    [
        ({"quantAlgo": "W8A16"}, "spec.quantConfig.quantAlgo", "W8A16 is asked for, and the checkpoint"),
        ({"quantAlgo": "W4A16", "groupSize": 32}, "spec.quantConfig.groupSize", "a group of 32 is asked for"),
    ],
)
def test_qnt_3_own_toolchains_name_both_schemes(asked: dict[str, Any], path: str, said: str) -> None:
    problem = refused("QNT-3", found({"quantConfig": asked}, smollm2_facts(**gptq(64))))

    assert (problem.path, problem.code) == (path, Reason.MODEL_MISMATCH)
    assert said in problem.message
    assert "quantised already (gptq: W4A16 in groups of 64)" in problem.message


@pytest.mark.parametrize("asked", [{}, {"quantAlgo": "W4A16"}, {"quantAlgo": "W4A16", "groupSize": 64}])
def test_qnt_3_who_names_the_scheme_of_the_checkpoint_is_given_it(asked: dict[str, Any]) -> None:
    result = found({"quantConfig": asked or None}, smollm2_facts(**gptq(64)))

    assert result.problems == ()
    assert result.chosen is not None and result.chosen.args.quant is None


def test_qnt_4_what_is_quantised_in_a_way_that_is_not_read_is_refused_with_the_reason() -> None:
    unread = smollm2_facts(quantization="gptq", quant_unread="desc_act is true")

    problem = refused("QNT-4", found({}, unread))
    assert (problem.path, problem.code) == ("spec.model", Reason.UNSUPPORTED_BY_TOOLCHAIN)
    assert "is quantised (gptq): desc_act is true" in problem.message
    assert "(fp8): engines cannot keep that" in refused("QNT-4", found({}, smollm2_facts(quantization="fp8"))).message
    assert others(found(for_engine(), unread)) == []


@pytest.mark.parametrize("method", ["gptq", "compressed-tensors"])
def test_qnt_4_what_the_engines_can_keep_is_taken(method: str) -> None:
    assert found({}, smollm2_facts(**gptq(64) | {"quantization": method})).problems == ()


def test_qnt_4_the_table_of_capabilities_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, QuantAlgo.W4A16, frozenset())

    message = refused("QNT-4", found({}, smollm2_facts(**gptq(64)))).message
    assert "(gptq: W4A16 in groups of 64), and toolchain torch keeps weights as W8A16" in message
    assert "W4A16 is not possible" in refused("CAP-5", found({"quantConfig": {"quantAlgo": "W4A16"}})).message


@pytest.mark.parametrize("algo", [QuantAlgo.FP8, QuantAlgo.W8A8_SQ_PER_CHANNEL])
def test_qnt_4_what_the_image_reads_is_refused_until_the_table_has_it(algo: QuantAlgo) -> None:
    message = refused("QNT-4", found({}, smollm2_facts(**gptq(None, algo)))).message
    assert f"{algo.value}), and toolchain torch keeps weights as W8A16 and W4A16" in message


def test_how_a_checkpoint_is_quantised_does_not_count_for_random_weights() -> None:
    for facts in (smollm2_facts(**gptq(48)), smollm2_facts(quantization="awq")):
        assert found({"loadFormat": "dummy", "quantConfig": {"quantAlgo": "W8A16"}}, facts).problems == ()


def test_op_5_a_pinned_model_must_be_that_model() -> None:
    def pinned(digest: str) -> Examination:
        return examine(Case.of(an_engine_spec(modelDigest=digest), some_defaults(), smollm2_facts()))

    assert silent("OP-5", pinned(DIGEST))
    assert silent("OP-5", pinned(DIGEST.removeprefix("sha256:")))
    problem = refused("OP-5", pinned("0" * 64))
    assert (problem.path, problem.code) == ("spec.modelDigest", Reason.MODEL_MISMATCH)
