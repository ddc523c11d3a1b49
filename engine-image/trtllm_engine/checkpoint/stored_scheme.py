"""What a checkpoint says about its quantised weights, and which tensors it has in place of each matrix.

Read are 4-bit and 8-bit integers without zero points, as GPTQ and compressed-tensors pack them into 32-bit words. Does
without torch, like inspection.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trtllm_engine.checkpoint.folder import CONFIG
from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import ConfigReader, JsonObject
from trtllm_engine.network.families import Place
from trtllm_engine.network.parameters import Shape
from trtllm_engine.network.scheme import GROUPS, Number, Scheme

SECTION: Final = "quantization_config"
MODELOPT: Final = "hf_quant_config.json"
WORD_BITS: Final = 32
WORDS: Final = ("I32",)
FLOATS: Final = ("F16", "BF16", "F32")


class Packing(enum.Enum):
    """Where the values of a matrix [out, in] are, each word holding `WORD_BITS / bits` of them, the lowest bits first.

    - `GPTQ`: `qweight` [in / n, out], a word holding n rows of its transpose; `scales` [groups, out]. `qzeros` say that
      there are no zero points, and `g_idx` that groups are of neighbours.
    - `COMPRESSED`: `weight_packed` [out, in / n], `weight_scale` [out, groups].

    Values are stored with half of their range added, so that none is negative.
    """

    GPTQ = "gptq"
    COMPRESSED = "compressed-tensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredScheme:
    """How the matrices of the layers are stored; all of them are."""

    packing: Packing
    scheme: Scheme
    zero: int = 0
    """GPTQ: what `qzeros` hold where there is no zero point."""

    @property
    def per_word(self) -> int:
        return WORD_BITS // self.scheme.bits

    def tensors(self, place: Place) -> dict[str, tuple[Shape, tuple[str, ...]]]:
        """What must be there in place of a matrix: shape and allowed types by name; the first holds the values."""
        rows, columns = place.shape
        words = columns // self.per_word
        groups = columns // self.scheme.group_of(columns)
        prefix = prefix_of(place)
        if self.packing is Packing.COMPRESSED:
            return {
                f"{prefix}.weight_packed": ((rows, words), WORDS),
                f"{prefix}.weight_scale": ((rows, groups), FLOATS),
            }
        return {
            f"{prefix}.qweight": ((words, rows), WORDS),
            f"{prefix}.qzeros": ((groups, rows // self.per_word), WORDS),
            f"{prefix}.scales": ((groups, rows), FLOATS),
        }


def prefix_of(place: Place) -> str:
    """The module whose matrix it is."""
    return place.tensor.removesuffix(".weight")


def method_of(raw: JsonObject, folder: Path) -> str | None:
    """The name of the method by which a checkpoint is quantised, understood here or not; None: it is not."""
    if isinstance(section := raw.get(SECTION), dict):
        return str(section.get("quant_method", "unknown"))
    return "modelopt" if (folder / MODELOPT).is_file() else None


def read_stored_scheme(raw: JsonObject, folder: Path) -> StoredScheme | None:
    """None: the weights are not quantised. Raises UNSUPPORTED with the reason for what cannot be read."""
    method = method_of(raw, folder)
    if method is None:
        return None
    section = ConfigReader(raw).section(SECTION)
    if method == Packing.GPTQ.value:
        return _gptq(section)
    if method == Packing.COMPRESSED.value:
        return _compressed(section)
    raise _unsupported(f"weights quantised by {method!r} are not read; read are {', '.join(p.value for p in Packing)}")


def _gptq(section: ConfigReader) -> StoredScheme:
    if not section.flag("sym", False):
        raise _unsupported("sym is false: the values have zero points, for which engines have no place")
    if section.flag("desc_act", False):
        raise _unsupported("desc_act is true: the columns of a group are not neighbours")
    if section.flag("lm_head", False):
        raise _unsupported("lm_head is true: only the matrices of the layers are read quantised")
    form = section.text("checkpoint_format", "gptq")
    if form not in ("gptq", "gptq_v2"):
        raise _unsupported(f"checkpoint_format {form!r} is not read; read are gptq, gptq_v2")
    group, *_ = section.integers("group_size") or (128,)
    scheme = _scheme(section.integer("bits"), None if group == -1 else group)
    # The first format stores one less than what is to be subtracted.
    zero = 2 ** (scheme.bits - 1) - (1 if form == "gptq" else 0)
    return StoredScheme(packing=Packing.GPTQ, scheme=scheme, zero=zero)


def _compressed(section: ConfigReader) -> StoredScheme:
    if (form := section.text("format", "unknown")) != "pack-quantized":
        raise _unsupported(f"format {form!r} is not read; read is pack-quantized")
    for key in ("kv_cache_scheme", "sparsity_config", "transform_config"):
        if section.keys(key):
            raise _unsupported(f"{key} is not read; only weights are")
    groups = section.section("config_groups")
    names = section.keys("config_groups")
    if len(names) != 1:
        raise _unsupported(f"config_groups has {len(names)} groups; read is one for all matrices")
    group = groups.section(names[0])
    if "Linear" not in group.texts("targets"):
        raise _unsupported(f"targets are {', '.join(group.texts('targets'))}; read is Linear")
    if "input_activations" in group or "output_activations" in group:
        raise _unsupported("activations are quantised too; read are weights only")
    weights = group.section("weights")
    if (kind := weights.text("type", "int")) != "int":
        raise _unsupported(f"weights are of type {kind}; read is int")
    if not weights.flag("symmetric", True):
        raise _unsupported("symmetric is false: the values have zero points, for which engines have no place")
    if "actorder" in weights and (order := weights.text("actorder")) not in ("static", "weight"):
        raise _unsupported(f"actorder is {order}: the columns of a group are not neighbours")
    if (strategy := weights.text("strategy", "group")) not in ("group", "channel"):
        raise _unsupported(f"strategy {strategy} is not read; read are group, channel")
    size = None if strategy == "channel" else weights.integer("group_size")
    return StoredScheme(packing=Packing.COMPRESSED, scheme=_scheme(weights.integer("num_bits"), size))


def _scheme(bits: int, group: int | None) -> Scheme:
    numbers = {number.bits: number for number in Number}
    if bits not in numbers:
        raise _unsupported(f"weights of {bits} bits are not read; read are {' and '.join(map(str, sorted(numbers)))}")
    if group is not None and group not in GROUPS:
        raise _unsupported(f"groups of {group} are not read; read are {', '.join(map(str, GROUPS))}, and whole rows")
    return Scheme(number=numbers[bits], group=group)


def _unsupported(message: str) -> Failure:
    return Failure(
        ExitCode.UNSUPPORTED,
        f"{CONFIG}: {SECTION}: {message}; "
        "give the model in bfloat16, float16 or float32: the build can quantise it (W8A16, W4A16)",
        field="model",
    )
