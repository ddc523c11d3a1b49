"""Derived names fit, and never meet."""

from hypothesis import given
from hypothesis import strategies as st

from trtllm_operator.api import names

DEPLOYMENT = st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True).filter(
    lambda n: not n.endswith("-ranks")
)
OBJECT = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?", fullmatch=True)


@given(DEPLOYMENT, DEPLOYMENT)
def test_the_services_of_two_deployments_never_meet(one: str, other: str) -> None:
    services = {names.service(one), names.headless_service(one)}

    assert one == other or not services & {names.service(other), names.headless_service(other)}


@given(DEPLOYMENT, st.integers(0, 999))
def test_a_group_leaves_room_for_the_hash_in_its_pods_label(deployment: str, ordinal: int) -> None:
    assert len(names.group(deployment, ordinal)) <= 52


@given(OBJECT)
def test_names_made_from_any_owner_are_legal(owner: str) -> None:
    assert len(names.owner_label(owner)) <= 63
    assert len(names.fetch_job(owner, "0123456789abcdef")) <= 63


def test_an_engine_is_named_for_its_model_and_key() -> None:
    key = "9f3c1ab04d7e" + "0" * 52

    assert names.engine("/models/SmolLM2-135M-Instruct", key) == "smollm2-135m-instruct-9f3c1ab04d7e"
    assert names.engine("org/Llama-3.3_70B", key) == "llama-3-3-70b-9f3c1ab04d7e"
