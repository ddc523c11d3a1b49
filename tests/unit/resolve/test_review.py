"""A review says everything at once, and as much as can be known."""

from tests.builders import a_deployment_spec, an_engine_spec, smollm2_facts, some_defaults
from tests.unit.resolve.cases import GIB, a_node, llama_8b, mixtral
from trtllm_operator.resolve.options import nested
from trtllm_operator.resolve.review import review

JUST_A_MODEL = a_deployment_spec(dtype=None, buildConfig=None)


def test_without_facts_only_the_spec_is_judged() -> None:
    result = review(a_deployment_spec(trustRemoteCode=True, tensorParallelSize=7), some_defaults())

    assert [problem.rule for problem in result.problems] == ["OP-1"]
    assert (result.resolved, result.memory) == (None, None)


def test_with_facts_the_effective_arguments_and_the_memory_are_known() -> None:
    result = review(JUST_A_MODEL, some_defaults(), smollm2_facts())

    assert result.resolved == {
        "model": "/models/SmolLM2-135M-Instruct",
        "dtype": "bfloat16",
        "tensorParallelSize": 1,
        "pipelineParallelSize": 1,
        "contextParallelSize": 1,
        "buildConfig": {"maxBatchSize": 8, "maxInputLen": 8192, "maxSeqLen": 8192},
    }
    assert result.memory is not None and result.memory.fits is None


def test_with_nodes_it_is_known_whether_it_fits() -> None:
    fits, misfit = (review(JUST_A_MODEL, some_defaults(), facts, [a_node()]) for facts in (llama_8b(), mixtral()))

    assert fits.memory is not None and fits.memory.fits
    assert [problem.rule for problem in misfit.problems] == ["MEM-1"]
    assert misfit.memory is not None and not misfit.memory.fits
    assert misfit.resolved is None


def test_an_engine_is_reviewed_like_a_deployment() -> None:
    result = review(an_engine_spec(), some_defaults(), smollm2_facts())

    assert (result.problems, result.adjustments) == ((), ())
    assert result.resolved is not None and result.resolved["dtype"] == "bfloat16"


def test_all_that_is_wrong_comes_together_in_the_order_of_knowing() -> None:
    spec = a_deployment_spec(
        tensorParallelSize=2, trustRemoteCode=True, enableLora=True, buildConfig={"maxInputLen": 4096}
    )

    rules = [problem.rule for problem in review(spec, some_defaults(), smollm2_facts(), [a_node()]).problems]
    assert rules == ["OP-1", "CAP-5", "BLD-2", "FIT-1"]


def test_flat_values_become_sections() -> None:
    assert nested({"spec.a.b.c": 1, "spec.a.d": 2, "spec.e": [3]}) == {"a": {"b": {"c": 1}, "d": 2}, "e": [3]}


def test_what_the_planner_comes_to_is_doubted_like_what_somebody_wrote() -> None:
    """Nodes of one small GPU: eight ranks exchange every layer over the network."""
    nodes = [a_node(memory=16 * GIB, gpus=1)]
    planned = a_deployment_spec(dtype=None, buildConfig=None, autoParallel=True)

    assert [caution.rule for caution in review(planned, some_defaults(), mixtral(), nodes).cautions] == ["PAR-8"]
    assert review(planned, some_defaults(), smollm2_facts(), nodes).cautions == ()
