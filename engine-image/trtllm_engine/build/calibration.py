"""Finding scales of activations: the largest number that each matrix multiplies when the model reads some texts.

The whole model is run, on the CPU, by every rank's build: ranks of one engine find the same scales without talking.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from tokenizers import Tokenizer
from torch import Tensor

from trtllm_engine.build.engine_folder import CalibrationRecord
from trtllm_engine.build.sample_texts import SAMPLE_TEXTS
from trtllm_engine.checkpoint.folder import TOKENIZER
from trtllm_engine.checkpoint.weights import load_weights
from trtllm_engine.contract import MODELS_MOUNT, CalibArgs, ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.scheme import Scheme
from trtllm_engine.network.torch_decoder import TorchDecoder
from trtllm_engine.progress import Reporter

FIELD: Final = "args.calib.dataset"


@dataclass(frozen=True, slots=True)
class Calibration:
    """What was found, and what it was found with."""

    scales: Mapping[str, float]
    """Of what each matrix multiplies, by the matrix' name."""
    record: CalibrationRecord


def calibrate(
    model: Path,
    config: DecoderConfig,
    dtype_name: str,
    scheme: Scheme,
    calib: CalibArgs,
    models: Path,
    progress: Reporter,
) -> Calibration:
    """Run the model over the samples that the seed chooses; `models` is where `MODELS_MOUNT` is.

    Rows of a batch do not see each other, so samples are run one by one: their number is batches times batch size.
    Raises BAD_REQUEST for a data set outside of the mount or without text, MODEL_UNAVAILABLE for a missing one.
    """
    samples = _samples(model, config, calib, models)
    largest: dict[str, float] = {}

    def observe(weight: str, x: Tensor) -> None:
        largest[weight] = max(largest.get(weight, 0.0), x.abs().max().item())

    dtype: torch.dtype = getattr(torch, dtype_name)
    longest = max(map(len, samples))
    weights = dict(load_weights(model, config, dtype))
    decoder = TorchDecoder(config, weights, dtype, "cpu", max_batch_size=1, max_seq_len=longest, observe=observe)
    zero = torch.zeros(1, dtype=torch.long)
    for done, tokens in enumerate(samples):
        progress.at(done / len(samples), f"sample {done}/{len(samples)}")
        decoder.forward(torch.tensor([tokens]), torch.arange(len(tokens))[None], zero, zero)
    record = CalibrationRecord(
        samples=len(samples),
        tokens=sum(map(len, samples)),
        sha256=hashlib.sha256(json.dumps(samples).encode()).hexdigest(),
    )
    return Calibration({name: found / scheme.largest or 1.0 for name, found in largest.items()}, record)


def _samples(model: Path, config: DecoderConfig, calib: CalibArgs, models: Path) -> list[list[int]]:
    """Tokens of the texts, cut, in the order that the seed makes; no more than there are."""
    tokenizer = Tokenizer.from_file(str(model / TOKENIZER))
    texts = list(SAMPLE_TEXTS) if calib.dataset is None else list(_texts(calib.dataset, models))
    luck = torch.Generator().manual_seed(calib.seed)
    order = torch.randperm(len(texts), generator=luck).tolist()[: calib.batches * calib.batch_size]
    limit = min(calib.max_seq_length, config.max_positions)
    samples = [tokens for index in order if (tokens := tokenizer.encode(texts[index]).ids[:limit])]
    if not samples:
        raise Failure(ExitCode.BAD_REQUEST, f"{FIELD}: {calib.dataset} holds no text", field=FIELD)
    return samples


def _texts(dataset: str, models: Path) -> Iterator[str]:
    """Of a .jsonl file the `text` of each line; of any other the paragraphs, which empty lines divide."""
    path = Path(dataset)
    file = models / path.relative_to(MODELS_MOUNT) if path.is_relative_to(MODELS_MOUNT) else None
    if file is None or not file.resolve().is_relative_to(models.resolve()):
        raise Failure(ExitCode.BAD_REQUEST, f"{FIELD}: {dataset!r} is no file below {MODELS_MOUNT}", field=FIELD)
    if not file.is_file():
        raise Failure(ExitCode.MODEL_UNAVAILABLE, f"{FIELD}: {dataset} does not exist, or is no file", field=FIELD)
    try:
        content = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Failure(ExitCode.BAD_REQUEST, f"{FIELD}: {dataset} is no text in UTF-8: {error}", field=FIELD) from error
    if file.suffix != ".jsonl":
        yield from (part.strip() for part in content.split("\n\n") if part.strip())
        return
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError:
            entry = None
        text = entry.get("text") if isinstance(entry, dict) else None
        if not isinstance(text, str):
            raise Failure(
                ExitCode.BAD_REQUEST,
                f"{FIELD}: {dataset}, line {number}: expected an object with a string under 'text'",
                field=FIELD,
            )
        yield text
