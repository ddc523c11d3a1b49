"""What a checkpoint says about its quantised weights, and which tensors it has in place of each matrix.

Read are 4-bit and 8-bit integers as GPTQ, AWQ and compressed-tensors pack them into 32-bit words, and 8-bit numbers as
they are, of compressed-tensors and ModelOpt, with the scales of activations. Does without torch, like inspection.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trtllm_engine.checkpoint.folder import CONFIG, read_json
from trtllm_engine.contract import ExitCode
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import ConfigReader, JsonObject
from trtllm_engine.network.families import Place
from trtllm_engine.network.parameters import Shape
from trtllm_engine.network.scheme import GROUPS, Number, Scheme

SECTION: Final = "quantization_config"
MODELOPT: Final = "hf_quant_config.json"
MODELOPT_METHOD: Final = "modelopt"
WORD_BITS: Final = 32
METHODS: Final = ("gptq", "awq", "compressed-tensors", "modelopt")
WORDS: Final = ("I32",)
FLOATS: Final = ("F16", "BF16", "F32")
INTEGERS: Final = {number.bits: number for number in (Number.INT4, Number.INT8)}
PLAIN_FORMATS: Final = {"float-quantized": Number.FP8, "int-quantized": Number.INT8}
"""Those of compressed-tensors that do not pack."""


class Packing(enum.Enum):
    """Where the values of a matrix [out, in] are; words hold n = `WORD_BITS / bits` of them, the lowest bits first.

    - `GPTQ`: `qweight` [in / n, out], a word holding n rows of its transpose; `scales` [groups, out]. `qzeros` [groups,
      out / n] are the zero points, and `g_idx` says that groups are of neighbours.
    - `AWQ`: `qweight` [in, out / n], `qzeros` and `scales` as before; in a word the even ones come before the odd ones.
    - `COMPRESSED`: `weight_packed` [out, in / n], `weight_scale` [out, groups].
    - `PLAIN`: `weight` [out, in], not packed; `weight_scale` one number, or [out, 1]; `input_scale` one number.

    Packed values are stored with half of their range added, so that none is negative.
    """

    GPTQ = "gptq"
    AWQ = "awq"
    COMPRESSED = "compressed"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredScheme:
    """How the matrices of the layers are stored; all of them are."""

    method: str
    """As the checkpoint calls it."""
    packing: Packing
    bits: int
    scheme: Scheme
    """How an engine keeps them. Less their zero points, 4-bit values need 5 bits: such are kept in 8."""
    zero: int = 0
    """GPTQ and AWQ: what `qzeros` hold where there is no zero point."""
    zero_points: bool = False
    """GPTQ and AWQ: whether there may be others."""
    one_scale: bool = False
    """PLAIN: a matrix has one scale, not one for each row."""

    @property
    def per_word(self) -> int:
        return WORD_BITS // self.bits

    def tensors(self, place: Place) -> dict[str, tuple[Shape, tuple[str, ...]]]:
        """What must be there in place of a matrix: shape and allowed types by name; the first holds the values."""
        rows, columns = place.shape
        words = columns // self.per_word
        groups = columns // self.scheme.group_of(columns)
        prefix = prefix_of(place)
        if self.packing is Packing.PLAIN:
            kind = "F8_E4M3" if self.scheme.number is Number.FP8 else "I8"
            found: dict[str, tuple[Shape, tuple[str, ...]]] = {
                f"{prefix}.weight": ((rows, columns), (kind,)),
                f"{prefix}.weight_scale": ((1,) if self.one_scale else (rows, 1), FLOATS),
            }
            return found | {f"{prefix}.input_scale": ((1,), FLOATS)} if self.scheme.activations else found
        if self.packing is Packing.COMPRESSED:
            return {
                f"{prefix}.weight_packed": ((rows, words), WORDS),
                f"{prefix}.weight_scale": ((rows, groups), FLOATS),
            }
        packed = (words, rows) if self.packing is Packing.GPTQ else (columns, rows // self.per_word)
        return {
            f"{prefix}.qweight": (packed, WORDS),
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
    return MODELOPT_METHOD if (folder / MODELOPT).is_file() else None


def read_stored_scheme(raw: JsonObject, folder: Path) -> StoredScheme | None:
    """None: the weights are not quantised. Raises UNSUPPORTED with the reason for what cannot be read."""
    method = method_of(raw, folder)
    if method is None:
        return None
    section = ConfigReader(raw).section(SECTION)
    match method:
        case "gptq":
            return _gptq(section)
        case "awq":
            return _awq(section)
        case "compressed-tensors":
            return _compressed(section)
        case "modelopt":
            if (file := folder / MODELOPT).is_file():
                section = ConfigReader(read_json(file), MODELOPT).section("quantization")
            return _modelopt(section)
    raise _unsupported(f"weights quantised by {method!r} are not read; read are {', '.join(METHODS)}")


def _gptq(section: ConfigReader) -> StoredScheme:
    if section.flag("desc_act", False):
        raise _unsupported("desc_act is true: the columns of a group are not neighbours")
    if section.flag("lm_head", False):
        raise _unsupported("lm_head is true: only the matrices of the layers are read quantised")
    form = section.text("checkpoint_format", "gptq")
    if form not in ("gptq", "gptq_v2"):
        raise _unsupported(f"checkpoint_format {form!r} is not read; read are gptq, gptq_v2")
    bits, zero_points = section.integer("bits"), not section.flag("sym", False)
    return StoredScheme(
        method="gptq",
        packing=Packing.GPTQ,
        bits=bits,
        scheme=_packed_scheme(bits, _group(section), "sym is false", zero_points=zero_points),
        # The first format stores one less than what is to be subtracted.
        zero=2 ** (bits - 1) - (1 if form == "gptq" else 0),
        zero_points=zero_points,
    )


def _awq(section: ConfigReader) -> StoredScheme:
    if (version := section.text("version", "gemm").lower()) != "gemm":
        raise _unsupported(f"version {version!r} is not read; read is gemm")
    if (bits := section.integer("bits", 4)) != 4:
        raise _unsupported(f"AWQ weights of {bits} bits are not read; read are 4")
    zero_points = section.flag("zero_point", True)
    return StoredScheme(
        method="awq",
        packing=Packing.AWQ,
        bits=bits,
        scheme=_packed_scheme(bits, _group(section), "zero_point is true", zero_points=zero_points),
        zero=2 ** (bits - 1),
        zero_points=zero_points,
    )


def _group(section: ConfigReader) -> int | None:
    group, *_ = section.integers("group_size") or (128,)
    return None if group == -1 else group


def _compressed(section: ConfigReader) -> StoredScheme:
    if (form := section.text("format", "unknown")) not in ("pack-quantized", *PLAIN_FORMATS):
        raise _unsupported(f"format {form!r} is not read; read are pack-quantized, {', '.join(PLAIN_FORMATS)}")
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
    weights = group.section("weights")
    if "output_activations" in group:
        raise _unsupported("output_activations are quantised; read are weights and input_activations")
    if form in PLAIN_FORMATS:
        return _compressed_plain(group, weights, PLAIN_FORMATS[form])
    if "input_activations" in group:
        raise _unsupported(f"activations are quantised too; with {form} read are weights only")
    if (kind := weights.text("type", "int")) != "int":
        raise _unsupported(f"weights are of type {kind}; read is int")
    if not weights.flag("symmetric", True):
        raise _unsupported("symmetric is false: the values have zero points, for which engines have no place")
    if "actorder" in weights and (order := weights.text("actorder")) not in ("static", "weight"):
        raise _unsupported(f"actorder is {order}: the columns of a group are not neighbours")
    if (strategy := weights.text("strategy", "group")) not in ("group", "channel"):
        raise _unsupported(f"strategy {strategy} is not read; read are group, channel")
    size = None if strategy == "channel" else weights.integer("group_size")
    bits = weights.integer("num_bits")
    scheme = _packed_scheme(bits, size)
    return StoredScheme(method="compressed-tensors", packing=Packing.COMPRESSED, bits=bits, scheme=scheme)


def _compressed_plain(group: ConfigReader, weights: ConfigReader, number: Number) -> StoredScheme:
    activations = "input_activations" in group
    parts = {"weights": weights}
    if activations:
        parts["input_activations"] = group.section("input_activations")
    for name, part in parts.items():
        kind, bits = part.text("type", "int"), part.integer("num_bits")
        if (kind, bits) != ("float" if number is Number.FP8 else "int", 8):
            raise _unsupported(f"{name} are of type {kind} with {bits} bits; with this format read is {number.value}")
        if not part.flag("symmetric", True):
            raise _unsupported(f"symmetric is false: {name} have zero points, for which engines have no place")
        if part.flag("dynamic", False):
            raise _unsupported(f"{name} are dynamic: their scales would be found at run time; read are static ones")
    if activations and (strategy := parts["input_activations"].text("strategy", "tensor")) != "tensor":
        raise _unsupported(f"strategy {strategy} of input_activations is not read; read is tensor")
    if (strategy := weights.text("strategy", "tensor")) not in ("tensor", "channel"):
        raise _unsupported(f"strategy {strategy} of weights is not read; with this format read are tensor, channel")
    return _plain("compressed-tensors", number, activations=activations, one_scale=strategy == "tensor")


def _modelopt(section: ConfigReader) -> StoredScheme:
    if (algo := section.text("quant_algo", "none")) != "FP8":
        raise _unsupported(f"quant_algo {algo} is not read; read is FP8")
    if "kv_cache_quant_algo" in section or "kv_cache_scheme" in section:
        raise _unsupported(
            "kv_cache_quant_algo is set, but engines keep the cache as floating numbers; "
            f"take it out of {MODELOPT} (and kv_cache_scheme out of {CONFIG}) to have it so"
        )
    return _plain(MODELOPT_METHOD, Number.FP8, activations=True, one_scale=True)


def _plain(method: str, number: Number, *, activations: bool, one_scale: bool) -> StoredScheme:
    if number is Number.FP8 and not activations:
        raise _unsupported("weights are floating numbers of 8 bits, and activations are not quantised; read are both")
    scheme = Scheme(number=number, activations=activations)
    return StoredScheme(method=method, packing=Packing.PLAIN, bits=number.bits, scheme=scheme, one_scale=one_scale)


def _packed_scheme(bits: int, group: int | None, why: str = "", *, zero_points: bool = False) -> Scheme:
    """`why`: what says that there are zero points."""
    if bits not in INTEGERS:
        raise _unsupported(f"weights of {bits} bits are not read; read are {' and '.join(map(str, INTEGERS))}")
    if group is not None and group not in GROUPS:
        raise _unsupported(f"groups of {group} are not read; read are {', '.join(map(str, GROUPS))}, and whole rows")
    if not zero_points:
        return Scheme(number=INTEGERS[bits], group=group)
    if bits == Number.INT8.bits:
        raise _unsupported(f"{why}: the values have zero points, and less them they need more than 8 bits")
    return Scheme(number=Number.INT8, group=group)


def _unsupported(message: str) -> Failure:
    return Failure(
        ExitCode.UNSUPPORTED,
        f"{CONFIG}: {SECTION}: {message}; "
        "give the model in bfloat16, float16 or float32: the build can quantise it (W8A16, W4A16, FP8)",
        field="model",
    )
