"""Runs `llmd` in this process, and stands in for a terminal."""

import io
import json
from pathlib import Path
from typing import Any, Final

import yaml
from typer.testing import CliRunner, Result

from tests.builders import DEPLOYMENT_SPEC, a_deployment_object, merged
from trtllm_operator.cli.main import app

Json = dict[str, Any]


class FakeTerminal(io.StringIO):
    """A stream that says that a person looks at it."""

    def isatty(self) -> bool:
        return True


def llmd(*arguments: str | Path, stdin: str | None = None) -> Result:
    """Run a command; what it raises is raised."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin, catch_exceptions=False)


def answer(result: Result) -> Any:
    """What a command with `-o json` printed."""
    return json.loads(result.stdout)


def manifest(folder: Path, *, spec: Json | None = None, name: str = "smollm2", file: str = "llmd.yaml") -> Path:
    """A file with the small model's LLMDeployment as a person writes it; `spec` is merged into it."""
    obj = {
        "apiVersion": a_deployment_object()["apiVersion"],
        "kind": "LLMDeployment",
        "metadata": {"name": name},
        "spec": merged(DEPLOYMENT_SPEC, spec or {}),
    }
    return written(folder / file, yaml.safe_dump(obj, sort_keys=False))


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def lines(text: str) -> list[str]:
    return text.splitlines()


CONFIG: Final = json.dumps(
    {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
    }
)
"""The small model's config.json."""


def a_node(name: str, *, memory: int = 81559, gpus: int = 1) -> Json:
    """A Node with the labels of GPU feature discovery; `memory` in MiB."""
    labels = {"nvidia.com/gpu.product": "Some-GPU", "nvidia.com/gpu.memory": str(memory)}
    status = {"allocatable": {"nvidia.com/gpu": str(gpus)}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
