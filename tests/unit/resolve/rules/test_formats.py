"""What the model's folder holds decides what can be asked for."""

import pytest

from tests.builders import DIGEST, an_engine_spec, smollm2_facts, some_defaults
from tests.unit.resolve.cases import for_engine, found, others, refused, silent, warned
from trtllm_operator.api.conditions import Reason
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


def test_qnt_4_own_toolchains_read_no_quantised_checkpoint_yet() -> None:
    assert "quantised (fp8)" in refused("QNT-4", found({}, smollm2_facts(quantization="fp8"))).message
    assert others(found(for_engine(), smollm2_facts(quantization="fp8"))) == []


def test_op_5_a_pinned_model_must_be_that_model() -> None:
    def pinned(digest: str) -> Examination:
        return examine(Case.of(an_engine_spec(modelDigest=digest), some_defaults(), smollm2_facts()))

    assert silent("OP-5", pinned(DIGEST))
    assert silent("OP-5", pinned(DIGEST.removeprefix("sha256:")))
    problem = refused("OP-5", pinned("0" * 64))
    assert (problem.path, problem.code) == ("spec.modelDigest", Reason.MODEL_MISMATCH)
