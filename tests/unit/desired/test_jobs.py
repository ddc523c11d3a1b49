"""Jobs try again where that can help, and give up at once where it cannot."""

from tests.builders import a_deployment, a_resolution, an_engine, an_engine_spec, some_defaults
from trtllm_engine.contract import DUMMY, FetchRequest
from trtllm_operator.api import names
from trtllm_operator.desired.build_job import build_job
from trtllm_operator.desired.fetch_job import fetch_job
from trtllm_operator.desired.metadata import Manifest


def a_build_job(name: str = "smollm2-rtx-ada") -> Manifest:
    return build_job(an_engine(name), a_resolution(an_engine_spec()), some_defaults())


def test_a_namespace_has_one_build_job_per_key() -> None:
    """I1 by construction: whoever asks, the name is the key's."""
    one, other = a_build_job(), a_build_job("another")

    assert (
        one["metadata"]["name"]
        == other["metadata"]["name"]
        == names.build_job(a_resolution(an_engine_spec()).engine_key)
    )


def test_a_disrupted_pod_is_ignored_before_its_exit_code_counts() -> None:
    ignore, fail = a_build_job()["spec"]["podFailurePolicy"]["rules"]

    assert ignore == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert fail["action"] == "FailJob"
    assert fail["onExitCodes"] == {"containerName": "engine", "operator": "In", "values": [2, 3, 4, 5, 6, 7, 137]}


def test_a_build_has_one_index_per_rank_and_runs_them_one_after_another() -> None:
    spec = a_build_job()["spec"]

    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 1, 1)
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (2, 0)
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_a_deadline_is_the_specs_or_the_operators() -> None:
    written = build_job(an_engine(deadlineSeconds=600), a_resolution(an_engine_spec()), some_defaults())

    assert written["spec"]["activeDeadlineSeconds"] == 600
    assert a_build_job()["spec"]["activeDeadlineSeconds"] == 21600


def test_a_fetch_is_told_not_to_look_at_weights_that_will_be_made_up() -> None:
    plain, dummy = (fetch_job(a_deployment(loadFormat=kind), some_defaults()) for kind in (None, "dummy"))

    (asked,), (told,) = (job["spec"]["template"]["metadata"]["annotations"].values() for job in (plain, dummy))
    assert (FetchRequest.from_json(asked).load_format, FetchRequest.from_json(told).load_format) == (None, DUMMY)
    assert plain["metadata"]["name"] != dummy["metadata"]["name"]


def test_another_source_is_another_fetch_job() -> None:
    jobs = [fetch_job(a_deployment(model=f"/models/{name}"), some_defaults()) for name in ("a", "b", "a")]

    first, second, third = (job["metadata"]["name"] for job in jobs)
    assert first == third != second


def test_a_proxy_reaches_only_the_pods_that_fetch() -> None:
    defaults = some_defaults(fetch_environment={"HTTPS_PROXY": "http://proxy:3128"})
    job = fetch_job(a_deployment(), defaults)

    assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in job["spec"]["template"]["spec"]["containers"][0][
        "env"
    ]


def memory(parameters: int, *, world_size: int = 1, **defaults: str) -> object:
    """That a build pod of a bfloat16 model of this size asks for."""
    spec = an_engine_spec(model="/models/x", toolchain="torch", target=None, tensorParallelSize=world_size)
    resolution = a_resolution(spec, parameters=parameters, num_attention_heads=8, num_key_value_heads=8)
    job = build_job(an_engine(), resolution, some_defaults(**defaults))
    resources = job["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert "limits" not in resources, "an estimate that is too low ends no build"
    return resources["requests"]["memory"]


def test_a_build_asks_for_the_memory_that_its_ranks_share_of_the_weights_needs() -> None:
    assert memory(10**8) == "2Gi", "no less than the default"
    assert memory(8 * 10**9) == "28Gi", "1.8 times 16e9 bytes, and 1e9"
    assert memory(8 * 10**9, world_size=2) == "15Gi"
    assert memory(8 * 10**9, build_memory="4Gi") == "4Gi", "what the administrator says stays"


def test_a_rebuild_is_the_same_work_under_another_number() -> None:
    first, again = a_build_job(), build_job(an_engine(), a_resolution(an_engine_spec()), some_defaults(), 1)

    assert again["metadata"].pop("annotations") == {names.REBUILD_ANNOTATION: "1"}
    assert again == first
