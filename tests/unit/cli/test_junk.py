"""Whatever a file holds, a command answers; it never breaks."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders import some_defaults
from trtllm_operator.api.deployment import LLMDeploymentSpec
from trtllm_operator.api.names import API_VERSION
from trtllm_operator.cli.comments import read_comments, write_comments
from trtllm_operator.cli.documents import parse_documents
from trtllm_operator.cli.failure import BadInput
from trtllm_operator.cli.objects import sort_out
from trtllm_operator.cli.options import Origin, SpecBuilder
from trtllm_operator.cli.output import to_yaml
from trtllm_operator.cli.shell import read_script
from trtllm_operator.cli.validate import judge, report

from .harness import llmd

WORDS = st.sampled_from(["a", "name", "labels", "spec", "model", "owner/name", "/models/x", "..", "8.9", "", "disable"])
LEAVES = st.none() | st.booleans() | st.integers(-1, 300) | st.floats(-1, 2) | WORDS
FIELDS = WORDS | st.sampled_from([f.alias or n for n, f in LLMDeploymentSpec.model_fields.items()])
JUNK = st.recursive(LEAVES, lambda x: st.lists(x, max_size=3) | st.dictionaries(FIELDS, x, max_size=4), max_leaves=12)
SLOW = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(metadata=JUNK, spec=JUNK, status=JUNK, more=st.dictionaries(WORDS, JUNK, max_size=1))
def test_every_object_gets_a_verdict_and_every_error_a_position(
    metadata: Any, spec: Any, status: Any, more: dict[str, Any]
) -> None:
    obj = {"kind": "LLMDeployment", "apiVersion": API_VERSION, "metadata": metadata, "spec": spec, "status": status}
    (document,) = parse_documents(to_yaml({**more, **obj}), "f")
    (found,), _ = sort_out([document])
    verdict = report(found, judge(found, some_defaults(), found.knowledge, None))
    assert verdict["valid"] == (not verdict["errors"])
    assert all(error["line"] >= 1 for error in verdict["errors"])


@SLOW
@given(st.dictionaries(FIELDS | st.sampled_from(["kv_cache_config", "cuda_graph_config", "tp_size"]), JUNK))
def test_no_key_of_an_options_file_is_lost_without_a_note(options: dict[str, Any]) -> None:
    builder = SpecBuilder()
    builder.options(options, lambda path: Origin(what="f", path=".".join(path)))
    told = len(builder.notes) + len(builder.origins)
    assert told or not options


@settings(SLOW, max_examples=4)
@given(st.text(st.sampled_from("ab #:'\"\\\n-$<>|&E"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for command in ("validate", "export", "render", "plan", "import"):
        assert llmd(command, "-", stdin=text).exit_code in (1, 2)


@SLOW
@given(st.text(st.sampled_from("ab #'\n:-"), max_size=30))
def test_comments_change_no_value(text: str) -> None:
    try:
        documents = parse_documents(text, "f")
    except BadInput:
        return
    if len(documents) != 1 or not isinstance(documents[0].data, dict):
        return
    clean = to_yaml(documents[0].data)
    (target,) = parse_documents(clean, "f")
    again = write_comments(clean, target, read_comments(text, documents[0]))
    assert parse_documents(again, "f")[0].data == documents[0].data


@pytest.mark.parametrize("text", ["a <<EOF\nb", "a 'b' <<'E'\nE\n", "X=$(a b) c", "a \\", "((a", "a >"])
def test_odd_scripts_are_read(text: str) -> None:
    assert read_script(text, "f").commands


def test_a_large_file_of_nodes_is_no_bomb() -> None:
    labels = "".join(f"      l{number}: x\n" for number in range(20))
    items = "".join(f"- kind: Node\n  metadata:\n    name: n{number}\n    labels:\n{labels}" for number in range(600))
    (document,) = parse_documents(f"kind: List\nitems:\n{items}", "f")
    assert len(list(document.items())) == 600
