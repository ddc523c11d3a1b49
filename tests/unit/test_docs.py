"""What the documents tell people to write, type and look at is there, and the examples do what their comments say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml

from tests.builders import VERSIONS, smollm2_facts
from tests.unit.resolve.cases import a_node, llama_8b
from trtllm_engine.contract import ModelFacts
from trtllm_operator.api import names
from trtllm_operator.api.crd import structural
from trtllm_operator.api.deployment import LLMDeployment, LLMDeploymentSpec, LLMDeploymentStatus
from trtllm_operator.api.engine import LLMEngine, LLMEngineSpec, LLMEngineStatus
from trtllm_operator.api.guidance import GUIDE, Actor
from trtllm_operator.cli.main import app
from trtllm_operator.resolve.defaults import Defaults
from trtllm_operator.resolve.resolution import resolve
from trtllm_operator.resolve.review import Review, review

Json = Mapping[str, Any]

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted(DOCS.rglob("*.md"))
READ: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES]
EXAMPLES: Final = sorted((ROOT / "examples").glob("*.yaml"))
KINDS: Final[Mapping[str, type[LLMDeployment] | type[LLMEngine]]] = {
    LLMDeployment.KIND: LLMDeployment,
    LLMEngine.KIND: LLMEngine,
}

SMALL: Final = "SmolLM2-135M-Instruct"
LLAMA_405B: Final[Json] = {
    "hidden_size": 16384,
    "num_layers": 126,
    "num_attention_heads": 128,
    "intermediate_size": 53248,
    "parameters": 405_853_388_800,
    "weight_bytes": 811_706_777_600,
}
"""Where it differs in shape from Llama 3.1 8B."""

BLOCK: Final = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
COMMAND: Final = r"(?:^|`|\$ |\| |&& )(?:[A-Z_]+=\S+ )*"
"""Where a command begins: on a line of its own, in a code span, or after a prompt or another command."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: the words after the fence, and what is in it."""

    page: Path
    line: int
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, tuple(found[2].split()), found[3])


MANIFESTS: Final = [block for page in READ for block in blocks(page) if block.words[:1] == ("yaml",)]


def name(thing: Path | Block) -> str:
    return str(thing.relative_to(ROOT)) if isinstance(thing, Path) else str(thing)


def facts_of(obj: Json) -> ModelFacts | None:
    """Of the models whose shape is known here; of others, only what needs no facts is judged."""
    model = obj["spec"].get("model", "")
    if SMALL in model:
        return smollm2_facts()
    return llama_8b(**LLAMA_405B) if "405B" in model else None


def said_of(obj: Json) -> Review:
    """What the operator, as it is installed, says about an object on a cluster with two nodes of eight GPUs."""
    parsed = KINDS[obj["kind"]].of(obj)
    if parsed.spec is None:
        return Review(problems=parsed.problems)
    return review(parsed.spec, Defaults(), facts_of(obj), [a_node("gpu-a"), a_node("gpu-b")])


# ---- manifests


@pytest.mark.parametrize("block", MANIFESTS, ids=name)
def test_a_manifest_is_valid_or_refused_as_its_fence_says(block: Block) -> None:
    """A fence says `yaml`, or `yaml refused REASON FIELD`, or `yaml values` for settings of the chart."""
    documents = [document for document in yaml.safe_load_all(block.text) if document]
    assert documents
    ours = [document for document in documents if document.get("apiVersion") == names.API_VERSION]
    match block.words[1:]:
        case ():
            for obj in ours:
                assert [str(finding) for finding in (*said_of(obj).problems, *said_of(obj).cautions)] == []
            assert not [d for d in documents if d not in ours and "apiVersion" not in d], "what kind of manifest is it?"
        case ("refused", reason, field):
            assert [(p.code, p.path) for obj in ours for p in said_of(obj).problems] == [(reason, field)]
        case ("values",):
            (values,) = documents
            assert unknown(values, chart_values()) == []
        case other:
            pytest.fail(f"a fence says nothing like {other}")


def chart_values() -> Json:
    values: Json = yaml.safe_load((ROOT / "charts/trtllm-operator/values.yaml").read_text())
    return values


def unknown(written: Json, known: Json, where: str = "") -> list[str]:
    """Settings that the chart does not have."""
    wrong = [f"{where}{key}" for key in written if key not in known]
    for key, value in written.items():
        inner = known.get(key)
        if isinstance(value, Mapping) and isinstance(inner, Mapping) and inner:
            wrong += unknown(value, inner, f"{where}{key}.")
    return wrong


@pytest.mark.parametrize("file", EXAMPLES, ids=name)
def test_an_example_does_what_its_comment_says(file: Path) -> None:
    text, obj = file.read_text(), yaml.safe_load(file.read_text())
    announced = re.findall(r"^# Refused by this version: (\w+) at ([\w.]+)\.", text, re.MULTILINE)
    said = said_of(obj)
    assert text.startswith("# ")
    assert [(problem.code.value, problem.path) for problem in said.problems] == announced
    assert [str(caution) for caution in said.cautions] == []


def test_the_two_manifests_of_the_guide_to_prebuilding_ask_for_the_same_engine() -> None:
    objects = [yaml.safe_load(b.text) for b in MANIFESTS if b.page.name == "prebuild-engines.md"]
    pair = [obj for obj in objects if "torch" in str(obj["spec"])]
    keys = [resolve(KINDS[o["kind"]].of(o).valid_spec, smollm2_facts(), VERSIONS, Defaults()).engine_key for o in pair]
    assert [obj["kind"] for obj in pair] == [LLMEngine.KIND, LLMDeployment.KIND]
    assert keys[0] == keys[1]


# ---- links


def prose(page: Path) -> str:
    """Without blocks."""
    return BLOCK.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[tuple[Path, str]]:
    """File and anchor of every link that stays in the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]+`", "", prose(page)))
    parts = [target.partition("#") for target in found if "://" not in target]
    return [((page.parent / file).resolve() if file else page, anchor) for file, _, anchor in parts]


@pytest.mark.parametrize("page", READ, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for file, anchor in links(page):
        assert file.exists(), file
        assert not anchor or anchor in anchors(file), f"{file}#{anchor}"


def test_every_page_can_be_reached_from_the_index() -> None:
    reached, waiting = set(), [DOCS / "index.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [file for file, _ in links(page) if file.suffix == ".md" and file.is_relative_to(DOCS)]
    assert reached == set(PAGES)


# ---- commands


def code(page: Path) -> str:
    """Blocks and code spans, each beginning a line."""
    return "\n".join([*(block.text for block in blocks(page)), *re.findall(r"`([^`\n]+)`", prose(page))])


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_make_target_that_is_named_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    told = re.findall(COMMAND + r"make ([a-z][a-z-]*)", code(page), re.MULTILINE)
    assert set(told) <= targets


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_llmd_command_that_is_named_exists_with_its_options(page: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for command, rest in re.findall(COMMAND + r"(?:kubectl )?llmd ([a-z]+)([^\n|#>]*)", code(page), re.MULTILINE):
        assert command in commands
        options = {option for parameter in commands[command].params for option in parameter.opts}
        assert set(re.findall(r"(?<= )--[a-z-]+", rest.partition(" -- ")[0])) <= options, f"{command}{rest}"


# ---- fields


def paths(model: Any, where: str) -> Iterator[str]:
    """Every field of a spec or a status, as it is written; a map has any."""

    def inside(schema: Json, path: str) -> Iterator[str]:
        yield path
        for field, inner in schema.get("properties", {}).items():
            yield from inside(inner, f"{path}.{field}")
        if "additionalProperties" in schema:
            yield f"{path}.*"
        if "items" in schema:
            yield from inside(schema["items"], path)

    return inside(structural(model), where)


@pytest.fixture(scope="module")
def fields() -> set[str]:
    specs = [path for model in (LLMDeploymentSpec, LLMEngineSpec) for path in paths(model, "spec")]
    return {*specs, *(p for model in (LLMDeploymentStatus, LLMEngineStatus) for p in paths(model, "status"))}


@pytest.mark.parametrize("page", [page for page in PAGES if "design" not in page.parts], ids=name)
def test_every_field_that_is_named_exists(page: Path, fields: set[str]) -> None:
    told = re.findall(r"`((?:spec|status)\.[A-Za-z.]+[A-Za-z])`", prose(page))
    assert [path for path in told if not any(fnmatch(path, field) for field in fields)] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_setting_of_the_chart_that_is_named_exists(page: Path) -> None:
    told = re.findall(r"`defaults\.([A-Za-z]+)`", page.read_text())
    assert [setting for setting in told if setting not in chart_values()["defaults"]] == []


# ---- what goes wrong


def test_troubleshooting_leads_to_every_reason_that_somebody_must_act_on() -> None:
    linked = links(DOCS / "guides/troubleshooting.md")
    told = {anchor for file, anchor in linked if file.name == "conditions.md" and anchor}
    assert told == {reason.lower() for reason, guidance in GUIDE.items() if guidance.actor is not Actor.NOBODY}
