"""What runs TensorRT-LLM today becomes an LLMDeployment that means the same; nothing is dropped without a word."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from trtllm_operator.api.spellings import IMPLIED, MOVED, SPELLINGS
from trtllm_operator.cli.flags import BUILD_FLAGS, SERVE_FLAGS
from trtllm_operator.cli.options import find_field

from .harness import lines, llmd, written

MODEL = ("--model", "meta-llama/Llama-3.1-8B-Instruct")


def imported(folder: Path, text: str, *more: str) -> Result:
    return llmd("import", written(folder / "in", text), *more)


def spec(result: Result) -> Any:
    return yaml.safe_load(result.stdout)["spec"]


def notes(result: Result, level: str) -> list[str]:
    return [line.removeprefix(f"{level}: ") for line in lines(result.stderr) if line.startswith(f"{level}: ")]


def test_options_become_a_whole_object(tmp_path: Path) -> None:
    result = imported(tmp_path, "tensor_parallel_size: 2\n", *MODEL)
    assert result.exit_code == 0
    assert yaml.safe_load(result.stdout) == {
        "apiVersion": "inference.trtllm-operator.dev/v1alpha1",
        "kind": "LLMDeployment",
        "metadata": {"name": "llama-3-1-8b-instruct"},
        "spec": {"model": "meta-llama/Llama-3.1-8B-Instruct", "tensorParallelSize": 2},
    }
    assert result.stderr == ""


def test_the_name_can_be_given(tmp_path: Path) -> None:
    result = imported(tmp_path, "{}\n", *MODEL, "--name", "prod")
    assert yaml.safe_load(result.stdout)["metadata"] == {"name": "prod"}


@pytest.mark.parametrize(
    ("options", "expected", "told"),
    [
        ("tp_size: 2", {"tensorParallelSize": 2}, "tp_size: is tensorParallelSize in a spec"),
        (
            "kv_cache_free_gpu_memory_fraction: 0.8",
            {"kvCacheConfig": {"freeGpuMemoryFraction": 0.8}},
            "is kvCacheConfig.freeGpuMemoryFraction in a spec",
        ),
        ("engine_args: {dtype: float16}", {"dtype": "float16"}, "engine_args: what is in it counts as options"),
        ("quant_config: {quant_algo: fp8}", {"quantConfig": {"quantAlgo": "FP8"}}, "fp8 is written as FP8"),
        ("quant_config: {quant_algo: int4_awq}", {"quantConfig": {"quantAlgo": "W4A16_AWQ"}}, "as W4A16_AWQ"),
        ("dtype: bf16", {"dtype": "bfloat16"}, "bf16 is written as bfloat16"),
        ("backend: _autodeploy", {"backend": "autodeploy"}, "_autodeploy is written as autodeploy"),
        ("backend: tensorrt", {}, "tensorrt is what an unset backend means"),
        (
            "build_config: {kv_cache_type: paged}",
            {"buildConfig": {"kvCacheType": "PAGED"}},
            "paged is written as PAGED",
        ),
        (
            "build_config: {plugin_config: {gemm_plugin: null}}",
            {"buildConfig": {"pluginConfig": {"gemmPlugin": "disable"}}},
            "null is written as disable",
        ),
        ("max_batch_size: null", {}, "null is what an unset maxBatchSize means"),
        (
            "cuda_graph_config: {enable_padding: true}",
            {"pytorchBackendConfig": {"useCudaGraph": True, "cudaGraphPaddingEnabled": True}},
            "cuda_graph_config.enable_padding: is pytorchBackendConfig.cudaGraphPaddingEnabled",
        ),
        (
            "cuda_graph_config: null",
            {"pytorchBackendConfig": {"useCudaGraph": False}},
            "is pytorchBackendConfig.useCudaGraph",
        ),
        (
            "moe_config: {backend: CUTLASS}",
            {"pytorchBackendConfig": {"moeBackend": "CUTLASS"}},
            "moe_config.backend: is pytorchBackendConfig.moeBackend",
        ),
        (
            "lora_config: {max_lora_rank: 8, max_loras: 2}",
            {"enableLora": True, "maxLoras": 2, "buildConfig": {"loraConfig": {"maxLoraRank": 8}}},
            "lora_config: is enableLora",
        ),
    ],
)
def test_another_name_is_translated_and_listed(
    tmp_path: Path, options: str, expected: dict[str, Any], told: str
) -> None:
    result = imported(tmp_path, options + "\n", *MODEL)
    assert result.exit_code == 0
    assert {k: v for k, v in spec(result).items() if k != "model"} == expected
    assert any(told in note for note in notes(result, "translated"))
    assert imported(tmp_path, options + "\n", *MODEL, "--strict").exit_code == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("reasoning_parser: x", "in:1: reasoning_parser: the operator runs the server"),
        ("decoding_config: {}", "in:1: decoding_config: the reference overwrites or discards it"),
        ("max_batchsize: 3", "in:1: max_batchsize: is unknown; did you mean max_batch_size?"),
        ("zzz: 3", "in:1: zzz: is no option of the reference"),
        ("kv_cache_config: {zzz: 3}", "in:1: kv_cache_config.zzz: is no option of the reference"),
        ("cuda_graph_config: {zzz: 3}", "in:1: cuda_graph_config.zzz: is not known in this section"),
    ],
)
def test_what_has_no_place_is_named_with_the_reason(tmp_path: Path, options: str, told: str) -> None:
    result = imported(tmp_path, options + "\n", *MODEL)
    assert result.exit_code == 0
    assert any(told in note for note in notes(result, "left out"))
    assert imported(tmp_path, options + "\n", *MODEL, "--strict").exit_code == 1


def test_lost_indentation_is_mended_with_a_warning(tmp_path: Path) -> None:
    result = imported(tmp_path, "kv_cache_config:\nenable_partial_reuse: false\nuse_cuda_graph: true\n", *MODEL)
    assert spec(result)["kvCacheConfig"] == {"enablePartialReuse": False}
    assert spec(result)["pytorchBackendConfig"] == {"useCudaGraph": True}
    assert len(notes(result, "warning")) == 2
    assert imported(tmp_path, "use_cuda_graph: true\n", *MODEL, "--strict").exit_code == 1


def test_a_value_in_place_of_a_section_is_told(tmp_path: Path) -> None:
    result = imported(tmp_path, "kv_cache_config: 3\nkv_cache_free_gpu_memory_fraction: 0.8\n", *MODEL)
    assert result.exit_code == 1
    assert "cannot be put into kvCacheConfig, which is no section in the input" in result.stderr
    assert "in:1: kv_cache_config" in result.stderr


def test_what_the_schema_refuses_is_an_error_at_the_place_in_the_input(tmp_path: Path) -> None:
    result = imported(tmp_path, "dtype: auto\nkv_cache_config:\n  free_gpu_memory_fraction: 1.2\n", *MODEL)
    assert result.exit_code == 1
    (error,) = notes(result, "error")
    assert "in:3: kv_cache_config.free_gpu_memory_fraction: spec.kvCacheConfig.freeGpuMemoryFraction: 1.2" in error
    assert spec(result)["kvCacheConfig"] == {"freeGpuMemoryFraction": 1.2}


def test_comments_stay_with_what_they_are_about(tmp_path: Path) -> None:
    text = (
        "# our nodes have four\n"
        "tp_size: 4  # NVLink\n"
        "kv_cache_config:\n"
        "  # room for graphs\n"
        "  free_gpu_memory_fraction: 0.8\n"
        "  max_attention_window:\n"
        "    - 10  # local\n"
        '    - "# no comment"\n'
        "# the end\n"
    )
    assert imported(tmp_path, text, *MODEL).stdout.split("spec:\n")[1] == (
        "  model: meta-llama/Llama-3.1-8B-Instruct\n"
        "  # our nodes have four\n"
        "  tensorParallelSize: 4  # NVLink\n"
        "  kvCacheConfig:\n"
        "    # room for graphs\n"
        "    freeGpuMemoryFraction: 0.8\n"
        "    maxAttentionWindow:\n"
        "      - 10  # local\n"
        "      - '# no comment'\n"
        "# the end\n"
    )


def test_serve_flags_become_fields(tmp_path: Path) -> None:
    command = (
        "# production\n"
        "PORT=8001\n"
        "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 2 --ep_size=2 --max_batch_size 64 --port $PORT \\\n"
        "  --kv_cache_free_gpu_memory_fraction 0.8 --trust_remote_code --backend trt --host 0.0.0.0 --frobnicate 3\n"
    )
    result = imported(tmp_path, command)
    assert spec(result) == {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "trustRemoteCode": True,
        "tensorParallelSize": 2,
        "moeExpertParallelSize": 2,
        "buildConfig": {"maxBatchSize": 64},
        "kvCacheConfig": {"freeGpuMemoryFraction": 0.8},
        "serving": {"port": 8001},
    }
    assert [note.split(":")[0] for note in notes(result, "left out")] == ["--host 0.0.0.0", "--frobnicate 3"]


def test_sizes_of_a_server_without_an_engine_are_run_time_limits() -> None:
    result = llmd("import", "--", "trtllm-serve", "a/b", "--backend", "pytorch", "--max_batch_size", "64")
    assert spec(result) == {"model": "a/b", "backend": "pytorch", "maxBatchSize": 64}


def test_without_a_backend_the_release_decides_and_that_is_said() -> None:
    result = llmd("import", "--", "trtllm-serve", "a/b")
    (warning,) = notes(result, "warning")
    assert "without --backend" in warning


def test_a_section_of_the_file_keeps_the_flag_that_the_reference_would_drop(tmp_path: Path) -> None:
    written(tmp_path / "extra.yml", "kv_cache_config: {enable_block_reuse: false}\n")
    result = imported(
        tmp_path,
        "trtllm-serve a/b --backend pytorch --kv_cache_free_gpu_memory_fraction 0.8 \\\n"
        "  --extra_llm_api_options extra.yml\n",
    )
    assert spec(result)["kvCacheConfig"] == {"freeGpuMemoryFraction": 0.8, "enableBlockReuse": False}
    (warning,) = notes(result, "warning")
    assert warning.startswith("--kv_cache_free_gpu_memory_fraction 0.8: kept")
    assert "[XTR-3]" in warning


def test_where_flag_and_file_differ_the_file_wins_as_in_the_reference(tmp_path: Path) -> None:
    written(tmp_path / "extra.yml", "tensor_parallel_size: 4\nkv_cache_config: {free_gpu_memory_fraction: 0.5}\n")
    result = imported(
        tmp_path,
        "trtllm-serve a/b --backend pytorch --tp_size 2 --kv_cache_free_gpu_memory_fraction 0.8 --config extra.yml\n",
    )
    assert spec(result)["tensorParallelSize"] == 4
    assert spec(result)["kvCacheConfig"] == {"freeGpuMemoryFraction": 0.5}
    assert [("--tp_size 2 says 2" in w, "0.5 is taken" in w) for w in notes(result, "warning")] == [
        (True, False),
        (False, True),
    ]


def test_an_options_file_that_the_script_itself_writes_is_read(tmp_path: Path) -> None:
    script = (
        "cat > ./extra.yml <<EOF\nkv_cache_config:\n  enable_block_reuse: false\nEOF\n"
        "trtllm-serve a/b --backend pytorch --extra_llm_api_options extra.yml\n"
    )
    assert spec(imported(tmp_path, script))["kvCacheConfig"] == {"enableBlockReuse": False}


def test_an_options_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    result = imported(tmp_path, "trtllm-serve a/b --backend pytorch --extra_llm_api_options nope.yml\n")
    assert result.exit_code == 1
    assert "nope.yml: no such file or directory" in result.stderr


def test_build_flags_become_fields(tmp_path: Path) -> None:
    command = (
        "mpirun -n 2 trtllm-build --checkpoint_dir ckpt/llama --output_dir engines --gemm_plugin auto --workers 2 \\\n"
        "  --max_batch_size 16 --max_input_len 2000 --max_output_len 1000 --use_paged_context_fmha enable \\\n"
        "  --reduce_fusion disable --lora_dir a b --kv_cache_type paged --strip_plan --gather_all_token_logits\n"
    )
    result = imported(tmp_path, command)
    assert spec(result)["model"] == "/models/llama"
    assert spec(result)["modelVolume"] == {"persistentVolumeClaim": {"claimName": "models"}}
    assert spec(result)["buildConfig"] == {
        "pluginConfig": {"gemmPlugin": "auto", "usePagedContextFmha": True, "reduceFusion": False},
        "maxBatchSize": 16,
        "maxInputLen": 2000,
        "maxSeqLen": 3000,
        "loraConfig": {"loraDir": ["a", "b"]},
        "kvCacheType": "PAGED",
        "useStripPlan": True,
        "gatherContextLogits": True,
        "gatherGenerationLogits": True,
    }
    left = [note.split(":")[0] for note in notes(result, "left out")]
    assert left == ["mpirun -n 2", "--output_dir engines", "--workers 2"]


def test_a_build_config_file_is_a_section(tmp_path: Path) -> None:
    written(tmp_path / "build.json", '{"max_batch_size": 4, "plugin_config": {"paged_kv_cache": true}}')
    result = imported(tmp_path, "trtllm-build --checkpoint_dir /models/x --build_config build.json --max_seq_len 9\n")
    assert spec(result)["buildConfig"] == {
        "maxSeqLen": 9,
        "maxBatchSize": 4,
        "pluginConfig": {"pagedKvCache": True},
    }


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["{}"], 2, "does not say what to serve; add --model"),
        (["trtllm-serve a/b\ntrtllm-serve c/d"], 1, "holds 2 commands: line 1 (trtllm-serve), line 2 (trtllm-serve)"),
        (["kind: LLMDeployment", *MODEL], 1, "is a LLMDeployment already"),
        (["- a", *MODEL], 1, "neither options of TensorRT-LLM"),
        (["", *MODEL], 1, "is empty"),
        (["trtllm-serve disaggregated -c x"], 1, "prefill and decode on different pods"),
    ],
)
def test_what_cannot_be_imported_says_why(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    result = imported(tmp_path, arguments[0] + "\n", *arguments[1:])
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr


def test_two_files_are_a_wrong_command_line() -> None:
    assert llmd("import", "a", "b").exit_code == 2


def test_a_variable_that_the_script_does_not_set_is_told(tmp_path: Path) -> None:
    result = imported(tmp_path, "trtllm-serve $MODEL --backend pytorch\n")
    assert "$MODEL: $MODEL is not set in the script; replace it" in notes(result, "warning")


def test_every_name_in_the_tables_leads_to_a_field() -> None:
    paths = {**MOVED, **{name: path for name, (path, _) in IMPLIED.items()}, **SERVE_FLAGS, **BUILD_FLAGS}
    assert {name for name, path in paths.items() if find_field(path.split(".")) is None} == set()
    assert {path for path in SPELLINGS if find_field(path.split(".")) is None} == set()


def test_an_options_file_beside_a_command_is_not_dropped(tmp_path: Path) -> None:
    options = written(tmp_path / "opts.yaml", "max_batch_size: 8\n")
    result = llmd("import", options, "--", "trtllm-serve", "a/b")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"--extra_llm_api_options {options}" in " ".join(result.stderr.split())
    merged = llmd("import", "--", "trtllm-serve", "a/b", "--extra_llm_api_options", options)
    assert "maxBatchSize: 8" in merged.stdout


def test_what_this_version_refuses_of_the_result_is_told_and_is_no_failure(tmp_path: Path) -> None:
    """The conversion is right, and what is made of it waits for another version: both are said."""
    result = imported(tmp_path, "dtype: float16\nenable_lora: true\n", *MODEL)
    assert result.exit_code == 0
    assert spec(result)["enableLora"] is True
    (note,) = notes(result, "refused")
    assert f"{tmp_path}/in:2: enable_lora: by this version: spec.enableLora: true is not possible" in note
    assert imported(tmp_path, "dtype: float16\n", *MODEL).stderr == ""


def test_what_is_no_spec_is_an_error_and_not_refused_a_second_time(tmp_path: Path) -> None:
    result = imported(tmp_path, "dtype: float8\nenable_lora: true\n", *MODEL)
    assert result.exit_code == 1
    assert ["spec.dtype" in note for note in notes(result, "error")] == [True]
    assert ["spec.enableLora" in note for note in notes(result, "refused")] == [True]


def test_a_note_never_writes_on_the_screen(tmp_path: Path) -> None:
    result = imported(tmp_path, '"tp\\e[2J": 2\n', *MODEL)
    assert "\x1b" not in result.stderr
    assert "tp\\x1b[2J" in result.stderr
