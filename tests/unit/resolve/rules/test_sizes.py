"""The sizes that an engine is built for, and those that it runs with."""

import pytest

from tests.unit.resolve.cases import adjusted, by, for_engine, found, llama_8b, others, refused, silent, warned

UNASKED = {"dtype": None, "buildConfig": None}


@pytest.mark.parametrize(("name", "build", "top"), [("maxSeqLen", 512, 1024), ("maxBeamWidth", 2, 4)])
def test_con_2_what_is_written_twice_is_the_same(name: str, build: int, top: int) -> None:
    """Q13: and what is written once stays."""
    problem = refused("CON-2", found(for_engine(buildConfig={name: build}, **{name: top})))

    assert problem.path == f"spec.{name}"
    assert f"spec.buildConfig.{name}, which says {build}" in problem.message
    assert silent("CON-2", found(for_engine(buildConfig={name: build}, **{name: build})))
    assert silent("CON-2", found(for_engine(**{name: top})))


@pytest.mark.parametrize("name", ["maxBatchSize", "maxNumTokens"])
def test_set_6_a_runtime_limit_is_not_above_the_build(name: str) -> None:
    """Q15."""
    assert refused("SET-6", found(for_engine(buildConfig={name: 64}, **{name: 65}))).path == f"spec.{name}"
    assert silent("SET-6", found(for_engine(buildConfig={name: 64}, **{name: 32})))


def test_set_7_own_servers_take_the_batch_of_the_build() -> None:
    assert warned("SET-7", found({"maxBatchSize": 4})).path == "spec.maxBatchSize"
    assert silent("SET-7", found({"maxBatchSize": 4, "buildConfig": None}))


def test_bld_2_a_prompt_is_not_longer_than_its_sequence() -> None:
    problem = refused("BLD-2", found({"buildConfig": {"maxInputLen": 4096, "maxSeqLen": 2048}}))

    assert problem.path == "spec.buildConfig.maxInputLen"
    assert "4096 is more than spec.buildConfig.maxSeqLen, which says 2048" in problem.message
    assert refused("BLD-2", found({**UNASKED, "maxInputLen": 9, "maxSeqLen": 8})).path == "spec.maxInputLen"


def test_bld_2_a_default_for_prompts_gives_way() -> None:
    result = found(for_engine(buildConfig={"maxSeqLen": 512}))
    assert adjusted("BLD-2", result) == {"buildConfig.maxInputLen": ("1024 (default)", "512")}


def test_bld_1_a_length_beyond_the_model_is_refused_by_own_toolchains() -> None:
    spec = {"buildConfig": {"maxSeqLen": 8193}}

    problem = refused("BLD-1", found(spec, llama_8b(max_position_embeddings=8192)))
    assert problem.path == "spec.buildConfig.maxSeqLen"
    assert "8193 tokens are more than the 8192" in problem.message
    assert silent("BLD-1", found(spec, llama_8b()))


def test_bld_1_a_length_beyond_the_model_is_told_by_tensorrt_llm() -> None:
    result = found(for_engine(buildConfig={"maxSeqLen": 8193}), llama_8b(max_position_embeddings=8192))
    assert warned("BLD-1", result).path == "spec.buildConfig.maxSeqLen"


def test_bld_6_draft_tokens_come_on_top() -> None:
    draft = {"decodingType": "Medusa", "maxDraftLen": 63}

    spec = for_engine(speculativeConfig=draft, buildConfig={"maxSeqLen": 2048})
    assert "built for 2111 tokens" in warned("BLD-6", found(spec)).message
    assert silent("BLD-6", found(for_engine(buildConfig={"maxSeqLen": 2048})))


def test_log_1_logits_of_prompts_and_draft_tokens_exclude_each_other() -> None:
    draft = {"decodingType": "Medusa", "maxDraftLen": 3}

    problem = refused("LOG-1", found(for_engine(speculativeConfig=draft, buildConfig={"gatherContextLogits": True})))
    assert problem.path == "spec.buildConfig.gatherContextLogits"
    assert silent("LOG-1", found(for_engine(buildConfig={"gatherContextLogits": True})))


@pytest.mark.parametrize(
    ("rule", "path", "to"),
    [
        ("SIZE-2", "spec.buildConfig.maxSeqLen", "8192"),
        ("SIZE-3", "spec.buildConfig.maxInputLen", "8192"),
        ("SIZE-4", "spec.buildConfig.maxBatchSize", "8"),
    ],
)
def test_size_2_3_4_what_is_left_open_is_chosen(rule: str, path: str, to: str) -> None:
    (adjustment,) = by(rule, found(UNASKED, llama_8b()))
    assert (adjustment.path, adjustment.from_value, adjustment.to_value) == (path, None, to)


def test_size_1_a_float32_checkpoint_becomes_float16() -> None:
    result = found(UNASKED, llama_8b(dtype="float32"))

    assert adjusted("SIZE-1", result) == {"dtype": (None, "float16")}
    assert others(result) == []
