"""Jobs try again where that can help, and give up at once where it cannot."""

from tests.builders import a_deployment, a_resolution, an_engine, an_engine_spec, some_defaults
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
