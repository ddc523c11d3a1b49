"""What the files beside a checkpoint's weights say about their quantisation, as the engine image reads it.

The tensors themselves are looked at by the inspection alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trtllm_engine.contract import QuantAlgo, QuantFacts

from ..resolve.quantisation import OWN_GROUPS

Json = Mapping[str, Any]

INTEGERS: Final[Mapping[int, QuantAlgo]] = {4: QuantAlgo.W4A16, 8: QuantAlgo.W8A16}
GROUPS: Final = OWN_GROUPS[QuantAlgo.W4A16]
METHOD: Final = "quant_method"
MODELOPT: Final = "modelopt"


class _Unread(Exception):
    """Engines cannot keep it; the text says why."""


def method_of(config: Json, modelopt: Json | None) -> str | None:
    """The name of the method; None: there is none. `modelopt`: what hf_quant_config.json holds, if it is there."""
    section = config.get("quantization_config")
    if isinstance(section, dict):
        return str(section.get(METHOD, "unknown"))
    return None if modelopt is None else MODELOPT


def stored_quant(config: Json, modelopt: Json | None) -> tuple[QuantFacts | None, str | None]:
    """What the method made, or why engines cannot keep it; neither where nothing is quantised."""
    method, section = method_of(config, modelopt), _section(config, "quantization_config")
    try:
        match method:
            case None:
                return None, None
            case "gptq":
                return _gptq(section), None
            case "awq":
                return _awq(section), None
            case "compressed-tensors":
                return _compressed(section), None
            case "modelopt":
                return _modelopt(section if modelopt is None else _section(modelopt, "quantization")), None
        raise _Unread(f"weights quantised by {method!r} are not read")
    except _Unread as reason:
        return None, str(reason)


def _gptq(section: Json) -> QuantFacts:
    if section.get("desc_act"):
        raise _Unread("desc_act is true")
    if section.get("lm_head"):
        raise _Unread("lm_head is true")
    _one_of(section, "checkpoint_format", ("gptq", "gptq_v2"), "gptq")
    return _packed(section.get("bits"), _group(section), zero_points=not section.get("sym", False))


def _awq(section: Json) -> QuantFacts:
    _one_of(section, "version", ("gemm", "GEMM"), "gemm")
    if section.get("bits", 4) != 4:
        raise _Unread(f"AWQ weights of {section.get('bits')} bits are not read")
    return _packed(4, _group(section), zero_points=bool(section.get("zero_point", True)))


def _compressed(section: Json) -> QuantFacts:
    form = _one_of(section, "format", ("pack-quantized", "float-quantized", "int-quantized"))
    for key in ("kv_cache_scheme", "sparsity_config", "transform_config"):
        if section.get(key):
            raise _Unread(f"{key} is not read")
    groups = _section(section, "config_groups")
    group = _section(groups, next(iter(groups), ""))
    if len(groups) != 1 or "Linear" not in group.get("targets", ()):
        raise _Unread("config_groups is not one group for all Linear")
    weights = _section(group, "weights")
    if group.get("output_activations"):
        raise _Unread("output_activations are quantised")
    inputs = _section(group, "input_activations")
    for part in filter(None, (weights, inputs)):
        if not part.get("symmetric", True):
            raise _Unread("symmetric is false")
    if form == "pack-quantized":
        if inputs:
            raise _Unread("activations are quantised too")
        _one_of(weights, "type", ("int",), "int")
        _one_of(weights, "actorder", (None, "static", "weight"))
        strategy = _one_of(weights, "strategy", ("group", "channel"), "group")
        size = None if strategy == "channel" else weights.get("group_size")
        return _packed(weights.get("num_bits"), size, zero_points=False)
    kind = "float" if form == "float-quantized" else "int"
    for part in filter(None, (weights, inputs)):
        if (part.get("type", "int"), part.get("num_bits"), part.get("dynamic", False)) != (kind, 8, False):
            raise _Unread(f"{form} that is not {kind} of 8 bits with static scales is not read")
    _one_of(weights, "strategy", ("tensor", "channel"), "tensor")
    if inputs:
        _one_of(inputs, "strategy", ("tensor",), "tensor")
    elif kind == "float":
        raise _Unread("weights are floating numbers of 8 bits, and activations are not quantised")
    if kind == "float":
        return QuantFacts(algo=QuantAlgo.FP8)
    return QuantFacts(algo=QuantAlgo.W8A8_SQ_PER_CHANNEL if inputs else QuantAlgo.W8A16)


def _modelopt(section: Json) -> QuantFacts:
    _one_of(section, "quant_algo", ("FP8",))
    if section.get("kv_cache_quant_algo") is not None or section.get("kv_cache_scheme") is not None:
        raise _Unread("kv_cache_quant_algo is set, but engines keep the cache as floating numbers")
    return QuantFacts(algo=QuantAlgo.FP8)


def _packed(bits: Any, group: Any, *, zero_points: bool) -> QuantFacts:
    """Values less their zero points need a bit more: those of 4 bits are kept in 8."""
    if bits not in INTEGERS:
        raise _Unread(f"weights of {bits} bits are not read")
    if group is not None and group not in GROUPS:
        raise _Unread(f"groups of {group} are not read")
    if not zero_points:
        return QuantFacts(algo=INTEGERS[bits], group_size=group)
    if bits == 8:
        raise _Unread("the values have zero points")
    return QuantFacts(algo=QuantAlgo.W8A16, group_size=group)


def _group(section: Json) -> Any:
    size = section.get("group_size", 128)
    return None if size == -1 else size


def _one_of(section: Json, key: str, allowed: tuple[str | None, ...], default: str | None = None) -> Any:
    if (value := section.get(key, default)) not in allowed:
        raise _Unread(f"{key} {value!r} is not read")
    return value


def _section(config: Json, key: str) -> Json:
    found = config.get(key)
    return found if isinstance(found, dict) else {}
