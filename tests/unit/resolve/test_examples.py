"""The examples are valid, and resolve for the model that they name."""

from pathlib import Path

import pytest
import yaml

from tests.builders import VERSIONS, smollm2_facts
from trtllm_operator.api.deployment import LLMDeployment
from trtllm_operator.api.engine import LLMEngine
from trtllm_operator.resolve.defaults import Defaults
from trtllm_operator.resolve.resolution import resolve

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_works_as_installed(file: Path) -> None:
    obj = yaml.safe_load(file.read_text())
    spec = LLMEngine.of(obj).valid_spec if obj["kind"] == LLMEngine.KIND else LLMDeployment.of(obj).valid_spec

    resolution = resolve(spec, smollm2_facts(), VERSIONS, Defaults())
    assert resolution.adjustments == ()
