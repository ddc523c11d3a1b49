"""A document is what kubectl reads, and every field of it can be found again in the file."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtllm_operator.cli.documents import Position, parse_documents, read_documents
from trtllm_operator.cli.failure import BadInput
from trtllm_operator.cli.output import to_yaml

SPEC = """\
kind: LLMDeployment
spec:
  model: a/b
  tolerations:
    - key: gpu
      effect: NoSchedule
  labels: {team/name: x}
"""

LEVELS = zip("abcde", "bcdef", strict=True)
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{above}: &{above} [{', '.join([f'*{below}'] * 10)}]\n" for below, above in LEVELS
)
"""A million values in six lines."""


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("off", False),
        ("~", None),
        ("0x10", 16),
        ("010", 8),
        ("1_000", 1000),
        ("1e-4", 0.0001),
        ("1.5", 1.5),
        ("2024-01-01", "2024-01-01"),
        ("1:30", "1:30"),
        ('"8.9"', "8.9"),
        ("9f", "9f"),
    ],
)
def test_a_scalar_means_what_it_means_to_kubectl(text: str, value: object) -> None:
    (document,) = parse_documents(f"a: {text}\n", "f")
    assert document.data == {"a": value}


@pytest.mark.parametrize(
    ("path", "position"),
    [
        ("spec.model", Position(3, 3)),
        ("spec.tolerations[0]", Position(5, 7)),
        ("spec.tolerations[0].effect", Position(6, 7)),
        ("spec.labels[team/name]", Position(7, 12)),
        ("spec.buildConfig.maxSeqLen", Position(2, 1)),
        ("metadata.name", Position(1, 1)),
    ],
)
def test_a_field_has_its_position_and_a_missing_one_that_of_what_is_around_it(path: str, position: Position) -> None:
    (document,) = parse_documents(SPEC, "f")
    assert document.position(path) == position


def test_json_is_yaml() -> None:
    (document,) = parse_documents('{\n\t"a": [1, true, null, "x\\u00e9\\n\\/"],\n\t"b": {"c": 1e3}\n}\n', "f")
    assert document.data == {"a": [1, True, None, "xé\n/"], "b": {"c": 1000.0}}
    assert document.position("b.c") == Position(3, 8)


def test_items_of_a_list_are_found_within_the_list() -> None:
    (whole,) = parse_documents("kind: List\nitems:\n- kind: A\n- kind: B\n  spec: {x: 1, x: 2}\n", "f")
    first, second = whole.items()
    assert (first.data, second.data) == ({"kind": "A"}, {"kind": "B", "spec": {"x": 2}})
    assert second.at("spec.x") == "f:5:16"
    assert [p.path for p in second.problems] == ["spec.x"]
    assert first.problems == ()


def test_a_key_that_is_written_twice_is_told_with_the_line_of_the_first() -> None:
    (document,) = parse_documents("a: 1\nb: 2\na: 3\n", "f")
    (problem,) = document.problems
    assert (problem.path, problem.message) == ("a", "is written twice; the first is in line 1")


def test_aliases_and_merge_keys_are_written_out() -> None:
    (document,) = parse_documents("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  y: 3\nc: *a\n", "f")
    assert document.data == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1\nb: 2\n", "f:2:2: is no YAML"),
        ("a:\n\tb: 1\n", "indent with spaces, not with tabs"),
        ("a: &a [*a]\n", "f:1:4: is part of itself"),
        ("a: !thing x\n", "the tag !thing stands for no plain value"),
        ("? [a]\n: 1\n", "f:1:3: a key must be a word"),
        (BOMB, "stand for more than 10000 values"),
        ("a: \x07\n", "is no YAML"),
    ],
)
def test_what_is_no_plain_yaml_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        parse_documents(text, "f")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("content", "said"), [(None, "no such file or directory"), (b"\xff\xfe", "is no text (byte 0 is not UTF-8)")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "a.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput) as refused:
        read_documents(str(path))
    assert str(refused.value) == f"{path}: {said}"


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=10,
)


@settings(max_examples=40, deadline=None)
@given(PLAIN)
def test_what_we_write_we_read_again(value: object) -> None:
    (document,) = parse_documents(to_yaml({"a": value}), "f")
    assert document.data == {"a": value}
