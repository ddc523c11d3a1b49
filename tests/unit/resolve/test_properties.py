"""What holds for every spec, whatever is written in it."""

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import DEPLOYMENT_SPEC, VERSIONS, merged, smollm2_facts, some_defaults
from tests.unit.resolve.cases import GIB, a_node, llama_8b, mixtral
from trtllm_operator.api.deployment import LLMDeploymentSpec
from trtllm_operator.api.llm_args import LlmArgs, iter_fields
from trtllm_operator.api.problems import Adjustment, Caution, Problem, Refused
from trtllm_operator.api.schema import parse_spec
from trtllm_operator.resolve.claims import negotiate
from trtllm_operator.resolve.options import nested, written
from trtllm_operator.resolve.resolution import resolve
from trtllm_operator.resolve.review import Review, review
from trtllm_operator.resolve.rules.case import Case

Json = dict[str, Any]
BARE = merged(DEPLOYMENT_SPEC, {"dtype": None, "buildConfig": None})
FIELDS = {fact.path for fact in iter_fields(LlmArgs)} | {"speculativeConfig.decodingType"}
SMALL, DEGREES, SIZES = (
    st.integers(1, 16),
    st.sampled_from([1, 1, 2, 3, 4, 8, 16]),
    st.sampled_from([1, 64, 512, 2048, 8192]),
)


def sections(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Some of the fields."""
    return st.fixed_dictionaries({}, optional=fields)


PLUGINS = sections(
    usePagedContextFmha=st.booleans(),
    useFp8ContextFmha=st.booleans(),
    contextFmha=st.booleans(),
    streamingllm=st.booleans(),
    reduceFusion=st.booleans(),
    loraPlugin=st.sampled_from(["auto", "disable", "float16"]),
    gemmPlugin=st.sampled_from(["auto", "disable", "nvfp4"]),
    manageWeights=st.booleans(),
)
BUILD = sections(
    maxBatchSize=SMALL,
    maxInputLen=SIZES,
    maxSeqLen=SIZES,
    maxBeamWidth=st.sampled_from([1, 4]),
    maxNumTokens=SIZES,
    optNumTokens=SIZES,
    gatherContextLogits=st.booleans(),
    stronglyTyped=st.booleans(),
    maxDraftLen=st.sampled_from([0, 3, 40]),
    speculativeDecodingMode=st.sampled_from(["NONE", "MEDUSA", "EAGLE"]),
    pluginConfig=PLUGINS,
)
SPECULATION = st.one_of(
    st.fixed_dictionaries({"decodingType": st.just("Lookahead")}, optional={"maxNgramSize": st.integers(1, 4)}),
    st.fixed_dictionaries(
        {"decodingType": st.sampled_from(["Medusa", "Eagle", "MTP"])}, optional={"maxDraftLen": st.integers(0, 300)}
    ),
)
SPECS = sections(
    dtype=st.sampled_from(["auto", "float16", "bfloat16", "float32"]),
    tensorParallelSize=DEGREES,
    pipelineParallelSize=DEGREES,
    moeExpertParallelSize=DEGREES,
    gpusPerNode=st.sampled_from([1, 4, 8]),
    autoParallel=st.booleans(),
    autoParallelWorldSize=DEGREES,
    maxBatchSize=SMALL,
    maxSeqLen=SIZES,
    maxBeamWidth=st.sampled_from([1, 4]),
    maxNumTokens=SIZES,
    buildConfig=BUILD,
    quantConfig=sections(
        quantAlgo=st.sampled_from(["FP8", "NVFP4", "W4A16_AWQ", "W4A16", "NO_QUANT"]),
        kvCacheQuantAlgo=st.sampled_from(["FP8", "INT8"]),
    ),
    kvCacheConfig=sections(
        enableBlockReuse=st.booleans(),
        freeGpuMemoryFraction=st.just(0.8),
        maxAttentionWindow=st.just([64]),
        sinkTokenLength=st.just(4),
    ),
    speculativeConfig=SPECULATION,
    enableChunkedPrefill=st.booleans(),
    enableLora=st.booleans(),
    maxLoraRank=SMALL,
    fastBuild=st.booleans(),
    backend=st.just("pytorch"),
    pytorchBackendConfig=sections(enableIterReqStats=st.booleans(), enableIterPerfStats=st.booleans()),
    engine=st.fixed_dictionaries(
        {"toolchain": st.sampled_from(["torch", "torch", "tensorrt_llm", "tensorrt_rtx"])},
        optional={"target": st.fixed_dictionaries({"computeCapability": st.sampled_from(["7.5", "8.9", "9.0"])})},
    ),
    serving=sections(device=st.sampled_from(["auto", "cpu"])),
)
OWN = sections(
    dtype=st.sampled_from(["auto", "float16", "float32"]),
    buildConfig=sections(maxBatchSize=SMALL, maxInputLen=SIZES, maxSeqLen=SIZES),
    maxBatchSize=SMALL,
    maxSeqLen=SIZES,
    autoParallel=st.booleans(),
    gpusPerNode=st.sampled_from([1, 8]),
    tensorParallelSize=st.just(1),
    enableChunkedPrefill=st.booleans(),
    kvCacheConfig=sections(enableBlockReuse=st.booleans()),
    serving=sections(device=st.sampled_from(["auto", "cpu"])),
)
"""Specs that own toolchains mostly take."""
MODELS = st.sampled_from([smollm2_facts(), llama_8b(), mixtral(), smollm2_facts(dtype="float32")])
NODES = st.none() | st.lists(
    st.builds(a_node, memory=st.sampled_from([16 * GIB, 80 * GIB]), gpus=st.sampled_from([1, 8])), max_size=2
)


def parsed(data: Json) -> LLMDeploymentSpec:
    spec, problems = parse_spec(LLMDeploymentSpec, merged(BARE, data))
    assert spec is not None, problems
    return spec


def explicit(spec: LLMDeploymentSpec) -> set[str]:
    """What the user wrote and did not leave to us."""
    return {path for path, value in written(spec).items() if (path, value) != ("spec.dtype", "auto")}


def judged(data: Json, model: Any = None, nodes: Any = None) -> Review:
    return review(parsed(data), some_defaults(), model, nodes)


@settings(max_examples=60, deadline=None)
@given(SPECS, st.none() | MODELS, NODES)
def test_judging_never_fails_and_never_changes_its_mind(data: Json, model: Any, nodes: Any) -> None:
    first = judged(data, model, nodes)

    assert first == judged(data, model, nodes)
    assert (first.resolved is not None) == (model is not None and not first.problems)


@settings(max_examples=60, deadline=None)
@given(SPECS, st.none() | MODELS, NODES)
def test_every_path_is_written_or_names_a_field(data: Json, model: Any, nodes: Any) -> None:
    found = judged(data, model, nodes)
    said: list[Problem | Caution | Adjustment] = [*found.problems, *found.cautions, *found.adjustments]

    deployment = re.compile(r"(engine\.(toolchain|target\.computeCapability)|serving\.device|modelVolume)")
    for finding in said:
        name = finding.path.removeprefix("spec.")
        assert name in FIELDS or deployment.fullmatch(name), finding


@settings(max_examples=60, deadline=None)
@given(SPECS, st.none() | MODELS, NODES)
def test_no_adjustment_touches_what_was_written(data: Json, model: Any, nodes: Any) -> None:
    spec = parsed(data)
    found = review(spec, some_defaults(), model, nodes)

    assert not {adjustment.path for adjustment in found.adjustments} & explicit(spec)
    paths = [adjustment.path for adjustment in found.adjustments]
    assert len(paths) == len(set(paths)), "one change of each field"


@settings(max_examples=60, deadline=None)
@given(OWN, MODELS, NODES)
def test_what_was_resolved_needs_no_further_word(data: Json, model: Any, nodes: Any) -> None:
    first = judged(data, model, nodes)
    if first.resolved is None:
        assert first.problems
        return
    again = judged({**data, **first.resolved, "autoParallel": None}, model, nodes)

    assert (again.problems, again.adjustments, again.resolved) == ((), (), first.resolved)
    assert again.memory == first.memory
    assert {caution.rule for caution in again.cautions} <= {caution.rule for caution in first.cautions}


@settings(max_examples=60, deadline=None)
@given(SPECS)
def test_options_that_were_settled_stay_settled(data: Json) -> None:
    case = Case.of(parsed(data), some_defaults())
    first = negotiate(case)
    if first.problems:
        return
    again = negotiate(Case.of(parsed(merged(data, nested(first.values))), some_defaults()))

    assert (again.problems, again.adjustments) == ((), ())


@settings(max_examples=60, deadline=None)
@given(OWN, MODELS, NODES)
def test_a_spec_without_problems_resolves(data: Json, model: Any, nodes: Any) -> None:
    spec = parsed(data)
    found = review(spec, some_defaults(), model, nodes)
    try:
        resolution = resolve(spec, model, VERSIONS, some_defaults(), nodes)
    except Refused as refused:
        assert refused.problems == found.problems
    else:
        assert not found.problems
        assert resolution == resolve(spec, model, VERSIONS, some_defaults(), nodes)
        assert resolution.adjustments == found.adjustments
