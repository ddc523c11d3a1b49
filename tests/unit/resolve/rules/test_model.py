"""Where the model is, and what it may do."""

import pytest

from tests.builders import HUB, smollm2_facts
from tests.unit.resolve.cases import for_engine, found, gptq, refused, silent, warned


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        ({"model": "../../etc"}, "spec.model", "is no repository of the hub"),
        ({"model": "/models/../etc"}, "spec.model", "is no path below /models/"),
        ({"model": "/etc/passwd"}, "spec.model", "is no path below /models/"),
        ({"model": "/models/a", "modelVolume": None}, "spec.modelVolume", "is required"),
        ({"model": "owner/name"}, "spec.modelVolume", "has no meaning"),
        ({"revision": "main"}, "spec.revision", "has no meaning"),
    ],
)
def test_mdl_3_a_path_is_a_path_and_a_repository_a_repository(spec: dict[str, object], path: str, said: str) -> None:
    """Q24: what is no folder is never tried as a repository."""
    problem = refused("MDL-3", found(spec))

    assert problem.path == path
    assert said in problem.message
    assert silent("MDL-3", found({}))
    assert silent("MDL-3", found(HUB))


def test_op_1_code_of_a_repository_is_never_run() -> None:
    assert refused("OP-1", found({"trustRemoteCode": True})).path == "spec.trustRemoteCode"
    assert silent("OP-1", found({"trustRemoteCode": False}))


def test_op_2_the_volume_with_models_is_read_only() -> None:
    assert refused("OP-2", found({"modelVolume": {"readOnly": False}})).path == "spec.modelVolume.readOnly"
    assert silent("OP-2", found({"modelVolume": {"readOnly": True}}))


def test_init_1_a_tokenizer_that_is_not_loaded_is_told() -> None:
    spec = for_engine(skipTokenizerInit=True, tokenizer="owner/tokenizer")

    assert warned("INIT-1", found(spec)).path == "spec.tokenizer"
    assert silent("INIT-1", found(for_engine(skipTokenizerInit=True)))


def test_llm_4_guided_decoding_needs_a_tokenizer() -> None:
    spec = for_engine(guidedDecodingBackend="xgrammar", skipTokenizerInit=True)

    assert refused("LLM-4", found(spec)).path == "spec.guidedDecodingBackend"
    assert silent("LLM-4", found(for_engine(guidedDecodingBackend="xgrammar")))


def test_op_10_random_weights_are_told_to_answer_nonsense() -> None:
    result = found({"loadFormat": "dummy"}, smollm2_facts())

    assert "every answer is nonsense" in warned("OP-10", result).message
    assert result.chosen is not None and result.chosen.args.load_format == "dummy"
    plain = found({"loadFormat": "auto"}, smollm2_facts())
    assert silent("OP-10", plain)
    assert plain.chosen is not None and plain.chosen.args.load_format is None


def test_op_11_random_weights_are_as_large_as_the_checkpoints_only_if_asked() -> None:
    caution = warned("OP-11", found({"loadFormat": "dummy"}, smollm2_facts(**gptq(64))))

    assert (caution.path, "quantConfig.quantAlgo: W4A16 makes" in caution.message) == ("spec.loadFormat", True)
    asked = {"loadFormat": "dummy", "quantConfig": {"quantAlgo": "W4A16"}}
    assert silent("OP-11", found(asked, smollm2_facts(**gptq(64))))
    assert silent("OP-11", found({"loadFormat": "dummy"}, smollm2_facts()))
