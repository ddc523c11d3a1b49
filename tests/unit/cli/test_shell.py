"""A command is found in a script as a shell would run it."""

import pytest

from trtllm_operator.cli.failure import BadInput
from trtllm_operator.cli.shell import Command, read_script


def only(text: str) -> Command:
    (command,) = read_script(text, "f").commands
    return command


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a --b c", ("a", "--b", "c")),
        ("a \\\n  --b \\\n  c", ("a", "--b", "c")),
        ("a 'b c' \"d\"", ("a", "b c", "d")),
        ("a --b # c", ("a", "--b")),
        ("a --b=x#y", ("a", "--b=x#y")),
        ("a '# b'", ("a", "# b")),
        ("a \\\n  # about b\n  --b", ("a", "--b")),
        ("a > out.log 2>&1 &", ("a",)),
        ("a 'b\nc'", ("a", "b\nc")),
        ("a 'b\n# c' d", ("a", "b\n# c", "d")),
        ("X=1 a", ("X=1", "a")),
    ],
)
def test_words_are_those_of_a_shell(text: str, words: tuple[str, ...]) -> None:
    assert only(text).words == words


def test_commands_are_told_apart_with_their_lines() -> None:
    commands = read_script("#!/bin/sh\nset -e\ncd x && a b; c |\nd\n", "f").commands
    assert [(c.words, c.line) for c in commands] == [
        (("set", "-e"), 2),
        (("cd", "x"), 3),
        (("a", "b"), 3),
        (("c",), 3),
        (("d",), 4),
    ]


def test_variables_of_the_script_are_filled_in_and_others_stay() -> None:
    text = "export A=x\nB=$A/y\nrun $B ${A}z ${C:-w} ${D} $D\n"
    command = only(text)
    assert [command.expanded(word) for word in command.words] == ["run", "x/y", "xz", "w", "${D}", "$D"]


def test_the_comments_right_above_and_within_a_command_are_its_own() -> None:
    assert only("# far\n\n# near\na \\\n # within\n b\n").comments == ("# near", "# within")


def test_a_quote_that_is_never_closed_is_bad_input() -> None:
    with pytest.raises(BadInput, match="f:2: no closing quotation"):
        read_script("a\nb 'c\n", "f")


def test_a_program_is_found_behind_what_starts_it() -> None:
    command = only("X=1 mpirun -n 2 /opt/bin/trtllm-serve m")
    assert command.find(["trtllm-serve"]) == 4
    assert only("echo trtllm-serve-x").find(["trtllm-serve"]) is None


def test_a_file_that_the_script_writes_is_kept() -> None:
    text = "cat > ./a.yaml <<'EOF'\nx: 1 # 'y\nEOF\ncat <<-END | tee b.yaml\n\ty: 2\n\tEND\nrun --config a.yaml\n"
    script = read_script(text, "f")
    assert script.files == {"./a.yaml": "x: 1 # 'y\n", "b.yaml": "y: 2\n"}
    assert [c.words for c in script.commands] == [("cat",), ("cat",), ("tee", "b.yaml"), ("run", "--config", "a.yaml")]
