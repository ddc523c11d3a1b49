"""`llmd export`: the options file that `trtllm-serve` reads, out of an LLMDeployment."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..api.deployment import LLMDeployment, LLMDeploymentSpec
from ..api.llm_args import LlmArgs
from ..resolve.review import Review
from ..resolve.source import check_source
from .comments import Comment, read_comments, write_comments
from .documents import parse_documents, read_text
from .flags import SERVE
from .notes import Level, Note, show_notes
from .objects import sort_out, the_only
from .options import options_path, to_options
from .output import Screen, to_yaml
from .validate import show


def export(source: str) -> int:
    """Print the options, and on standard error what is not part of them. Raises `BadInput`."""
    text = read_text(source)
    documents = parse_documents(text, source)
    found, _ = sort_out(documents)
    one = the_only(found, source, LLMDeployment.KIND)
    screen = Screen(sys.stderr)
    if one.spec is None or one.problems:
        show(screen, one, Review(problems=one.problems))
        return 1
    assert isinstance(one.spec, LLMDeploymentSpec)
    # Only what the file itself would carry on: what this version's toolchains lack, trtllm-serve may have.
    if wrong := [problem for problem in check_source(one.spec) if problem.path == "spec.model"]:
        show(screen, one, Review(problems=tuple(wrong)))
        return 1
    options = to_options(LlmArgs.of(one.spec).to_json())
    alone = len(documents) == 1 and not one.document.prefix
    sys.stdout.write(_file(options, one.spec.model, read_comments(text, one.document) if alone else ()))
    show_notes(screen, _left(one.spec))
    return 0


def _file(options: dict[str, Any], model: str, comments: Sequence[Comment]) -> str:
    usage = f"# {SERVE} {shlex.quote(model)} --extra_llm_api_options FILE\n"
    if not options:
        return f"{usage}{{}}\n"
    text = to_yaml(options)
    moved = (replace(comment, path=options_path(comment.path) or "-") for comment in comments if comment.path)
    return usage + write_comments(text, parse_documents(text, "the result")[0], moved)


def _left(spec: LLMDeploymentSpec) -> Iterator[Note]:
    """What trtllm-serve takes elsewhere, or knows nothing of."""
    yield Note(level=Level.NO_PLACE, what="spec.model", text=f"the argument of {SERVE}: {spec.model}")
    for key, value in spec.to_json().items():
        field = next(name for name, f in LLMDeploymentSpec.model_fields.items() if f.alias == key)
        if field not in LlmArgs.model_fields and value != {}:
            yield Note(level=Level.NO_PLACE, what=f"spec.{key}", text="steers the deployment, not TensorRT-LLM")
