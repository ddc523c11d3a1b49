"""What is exported and imported again is what it was."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from trtllm_operator.api.llm_args import LlmArgs
from trtllm_operator.api.schema import parse_spec
from trtllm_operator.cli.documents import parse_documents
from trtllm_operator.cli.notes import Level
from trtllm_operator.cli.options import Origin, SpecBuilder, to_options
from trtllm_operator.cli.output import to_yaml

from .harness import lines, llmd, manifest, written
from .strategies import llm_args


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(llm_args())
def test_import_of_an_export_is_the_same(args: LlmArgs) -> None:
    written = args.to_json()
    (document,) = parse_documents(to_yaml(to_options(written) or {"enable_tqdm": None}), "f")
    builder = SpecBuilder()
    builder.options(document.data, lambda path: Origin(what="f", path=".".join(path)))
    assert builder.spec | {"model": args.model} == written
    assert not {note.level for note in builder.notes} & {Level.WARNING, Level.NO_PLACE, Level.ERROR}
    again, problems = parse_spec(LlmArgs, builder.spec | {"model": args.model})
    assert (again, problems) == (args, ())


def test_the_commands_agree_with_each_other_and_comments_survive(tmp_path: Path) -> None:
    spec: dict[str, Any] = {
        "model": "a/b",
        "modelVolume": None,
        "dtype": None,
        "engine": None,
        "kvCacheConfig": {"freeGpuMemoryFraction": 0.8},
        "speculativeConfig": {"decodingType": "Eagle", "dynamicTreeMaxTopK": 4},
        "enableBuildCache": {},
    }
    path = manifest(tmp_path, name="b", spec=spec)
    path.write_text(path.read_text().replace("  kvCacheConfig:", "  # for graphs\n  kvCacheConfig:"))
    exported = llmd("export", path)
    assert exported.exit_code == 0
    assert lines(exported.stdout)[0] == "# trtllm-serve a/b --extra_llm_api_options FILE"
    assert "# for graphs\nkv_cache_config:" in exported.stdout
    assert yaml.safe_load(exported.stdout) == {
        "build_config": {"max_batch_size": 8, "max_input_len": 1024, "max_seq_len": 2048},
        "speculative_config": {"decoding_type": "Eagle", "dynamic_tree_max_topK": 4},
        "enable_build_cache": True,
        "kv_cache_config": {"free_gpu_memory_fraction": 0.8},
    }
    imported = llmd("import", written(tmp_path / "options.yaml", exported.stdout), "--model", "a/b")
    assert yaml.safe_load(imported.stdout) == yaml.safe_load(path.read_text())


def test_export_names_what_is_no_option(tmp_path: Path) -> None:
    result = llmd("export", manifest(tmp_path, spec={"replicas": 2, "serving": {"port": 9000}}))
    assert [line.split(": ")[1] for line in lines(result.stderr)] == [
        "spec.model",
        "spec.replicas",
        "spec.modelVolume",
        "spec.engine",
        "spec.serving",
    ]


def test_a_spec_that_is_refused_is_not_exported(tmp_path: Path) -> None:
    result = llmd("export", manifest(tmp_path, spec={"replicas": -1}))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "spec.replicas" in result.stderr


@pytest.mark.parametrize("model", ["a/b\nfoo: bar", "/models/a\nfoo: bar", "a/b\x1b[31m"])
def test_a_model_that_would_leave_its_comment_is_not_exported(tmp_path: Path, model: str) -> None:
    result = llmd("export", manifest(tmp_path, spec={"model": model}))
    assert (result.exit_code, result.stdout) == (1, "")
    assert "spec.model" in result.stderr
    assert "\x1b" not in result.stderr
