"""How the matrices of a quantised decoder are kept, and which ranks can share them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from trtllm_engine.contract import ExitCode, Mapping, QuantAlgo, QuantArgs
from trtllm_engine.failure import Failure
from trtllm_engine.network.config import DecoderConfig
from trtllm_engine.network.parameters import MATRICES, Parameter, Shape, rank_parameters
from trtllm_engine.network.rank import Rank, check_mapping

GROUPS: Final = (128, 64, 32)
"""Sizes of groups that are made here."""


class Number(enum.Enum):
    """What the values of a matrix are."""

    INT8 = "int8"
    INT4 = "int4"
    FP8 = "fp8"
    """E4M3: four bits of exponent, three of mantissa, no infinity."""

    @property
    def bits(self) -> int:
        return 4 if self is Number.INT4 else 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """A matrix is its values times scales; symmetric: there is no zero point."""

    number: Number
    group: int | None = None
    """Columns of a row that share a scale; None: all of them."""
    activations: bool = False
    """What a matrix multiplies becomes such numbers as well, times one scale that is known beforehand."""

    @property
    def algo(self) -> QuantAlgo:
        if self.number is Number.FP8:
            return QuantAlgo.FP8
        if self.number is Number.INT8:
            return QuantAlgo.W8A8_SQ_PER_CHANNEL if self.activations else QuantAlgo.W8A16
        return QuantAlgo.W4A16

    @property
    def bits(self) -> int:
        return self.number.bits

    @property
    def largest(self) -> int:
        """The largest value; the smallest integer is one below its negative."""
        return 448 if self.number is Number.FP8 else int(2 ** (self.bits - 1) - 1)

    def values_shape(self, matrix: Shape) -> Shape:
        """Of what is kept for a matrix [..., out, in]: two 4-bit values share a byte."""
        *rows, columns = matrix
        return (*rows, columns // 2 if self.number is Number.INT4 else columns)

    def scales_shape(self, matrix: Shape) -> Shape:
        """[..., out, groups]."""
        *rows, columns = matrix
        return (*rows, columns // self.group_of(columns))

    def group_of(self, columns: int) -> int:
        return columns if self.group is None else self.group


WHOLE_ROWS: Final = {
    QuantAlgo.W8A16: Scheme(number=Number.INT8),
    QuantAlgo.FP8: Scheme(number=Number.FP8, activations=True),
}
"""What the build makes with one scale for each row."""


def scheme_of(quant: QuantArgs | None) -> Scheme | None:
    """Raises BAD_REQUEST for a group size that the algorithm does not have, UNSUPPORTED for one that is only read."""
    if quant is None:
        return None
    if quant.algo is QuantAlgo.W8A8_SQ_PER_CHANNEL:
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"args.quant.algo: {quant.algo.value} smooths activations, which the build does not do; "
            "give a checkpoint that is quantised so, or use FP8, W8A16 or W4A16",
            field="args.quant.algo",
        )
    if quant.algo is not QuantAlgo.W4A16:
        if quant.group_size is not None:
            raise _bad(f"{quant.algo.value} has one scale for each row; leave groupSize {quant.group_size} out")
        return WHOLE_ROWS[quant.algo]
    if quant.group_size not in GROUPS:
        allowed = ", ".join(map(str, GROUPS))
        raise _bad(f"{quant.group_size} is not a group size of {quant.algo.value}; allowed are {allowed}")
    return Scheme(number=Number.INT4, group=quant.group_size)


def check_scheme(config: DecoderConfig, mapping: Mapping, scheme: Scheme | None, *, chosen: bool = True) -> None:
    """Raise UNSUPPORTED where a rank's columns are no whole groups, naming the groups and the mappings that work.

    `chosen`: by the request, which can ask for other groups; those of a checkpoint are what they are. UNSUPPORTED are
    also mixtures whose activations are quantised: each of a layer's experts would have a scale of its own.
    """
    if scheme is not None and scheme.activations and config.experts:
        raise Failure(
            ExitCode.UNSUPPORTED,
            f"{scheme.algo.value}: activations of mixtures of experts are not quantised; "
            "use W8A16 or W4A16, or a checkpoint whose weights only are quantised",
            field="args.quant.algo" if chosen else "model",
        )
    if scheme is None or (odd := _odd(config, mapping, scheme)) is None:
        return
    others = GROUPS if chosen else ()
    groups = [size for size in others if _odd(config, mapping, dataclasses.replace(scheme, group=size)) is None]
    ranks = [tp for tp in range(1, mapping.tp) if _fits(config, dataclasses.replace(mapping, tp=tp), scheme)]
    ways = [f"{name} {', '.join(map(str, sizes))}" for name, sizes in (("groupSize", groups), ("tp", ranks)) if sizes]
    where = "args.quant.groupSize" if chosen else "mapping"
    none = "nothing works: use W8A16" if chosen else "nothing works: use the checkpoint that is not quantised"
    raise Failure(
        ExitCode.UNSUPPORTED,
        f"{where}: a rank of tp {mapping.tp} has {odd.shape[-1]} columns of the matrix {odd.role.value!r}, "
        f"which do not divide into groups of {scheme.group}; "
        f"{'what works: ' + ', or '.join(ways) if ways else none}",
        field=where,
    )


def _odd(config: DecoderConfig, mapping: Mapping, scheme: Scheme) -> Parameter | None:
    """The first matrix whose columns are no whole groups; the ranks of a tensor group have equally many."""
    matrices = (
        parameter
        for stage in range(mapping.pp)
        for parameter in rank_matrices(config, Rank(mapping=mapping, index=stage * mapping.tp))
    )
    return next((matrix for matrix in matrices if matrix.shape[-1] % scheme.group_of(matrix.shape[-1])), None)


def _fits(config: DecoderConfig, mapping: Mapping, scheme: Scheme) -> bool:
    mapping = dataclasses.replace(mapping, moe_tp=None, moe_ep=None)
    try:
        check_mapping(config, mapping)
    except Failure:
        return False
    return _odd(config, mapping, scheme) is None


def rank_matrices(config: DecoderConfig, rank: Rank) -> Iterator[Parameter]:
    """What of a rank is quantised."""
    return (parameter for parameter in rank_parameters(config, rank) if parameter.role in MATRICES)


def _bad(message: str) -> Failure:
    return Failure(ExitCode.BAD_REQUEST, f"args.quant.groupSize: {message}", field="args.quant.groupSize")
