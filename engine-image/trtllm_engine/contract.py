"""What the operator and the pods say to each other.

Standard library only: the operator imports this module and nothing else of the package, and the same
file can be injected into a foreign image. Everything travels as JSON with camelCase keys:

- the *request* is a file mounted into the pod (`REQUEST_FILE`),
- *progress* is one JSON object per log line (standard error carries everything else),
- the *result* is the pod's termination message, at most `RESULT_LIMIT` bytes by construction; the whole
  result is also a file on the volume,
- the *exit code* says whether trying again can help.

Change the meaning of a field only together with `CONTRACT`; both sides refuse another number.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import posixpath
import re
import types
import typing
from dataclasses import dataclass, field
from typing import Any, Final, Self

CONTRACT: Final = 1

REQUEST_FILE: Final = "/etc/trtllm-engine/request.json"
RESULT_FILE: Final = "/dev/termination-log"
RESULT_LIMIT: Final = 3500
"""Bytes. The kubelet cuts at 4096, and cut JSON would read as a failure."""

MODELS_MOUNT: Final = "/models"
"""The user's `modelVolume`, read-only; `spec.model` is a path below it."""
CACHE_MOUNT: Final = "/cache"
"""The namespace's cache of hub models; `model_folder` is relative to it."""
STORE_MOUNT: Final = "/store"
"""The claim that holds engines; `engine_folder` is relative to it."""


REASON_LIMIT: Final = 400
"""Bytes of a reason among the facts of a model."""

DUMMY: Final = "dummy"
"""The `load_format` of engines with random weights, for trying out sizes and speeds."""


class ExitCode(enum.IntEnum):
    """How a pod ended. 2 to 7 can not be mended by trying again."""

    DONE = 0
    BAD_REQUEST = 2
    UNSUPPORTED = 3
    MODEL_UNAVAILABLE = 4
    NO_SPACE = 5
    CORRUPT_INPUT = 6
    BUILDER_ERROR = 7
    TRY_AGAIN = 75


class Step(enum.StrEnum):
    """What a pod is doing, in the order in which it happens."""

    FETCH = "fetch"
    INSPECT = "inspect"
    CALIBRATE = "calibrate"
    WEIGHTS = "weights"
    NETWORK = "network"
    BUILD = "build"
    WRITE = "write"
    VERIFY = "verify"


class Toolchain(enum.StrEnum):
    """What turns a checkpoint into an engine."""

    TENSORRT = "tensorrt"
    TENSORRT_RTX = "tensorrt_rtx"
    TORCH = "torch"
    TENSORRT_LLM = "tensorrt_llm"


class QuantAlgo(enum.StrEnum):
    """How an engine keeps the matrices of the layers; spelled as in `quantConfig.quantAlgo`."""

    W8A16 = "W8A16"
    """8-bit integers, one scale for each row."""
    W4A16 = "W4A16"
    """4-bit integers, one scale for each group of columns of a row."""
    FP8 = "FP8"
    """8-bit floating numbers (E4M3), one scale for each row; what is multiplied by them becomes such numbers too."""
    W8A8_SQ_PER_CHANNEL = "W8A8_SQ_PER_CHANNEL"
    """The same with 8-bit integers."""


class ContractError(ValueError):
    """A message that does not follow the contract; the text names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A JSON object with camelCase keys; `None` is left out, unknown keys are refused."""

    def to_dict(self) -> dict[str, Any]:
        return {_camel(f.name): _plain(v) for f in dataclasses.fields(self) if (v := getattr(self, f.name)) is not None}

    def to_json(self) -> str:
        """One line, keys sorted: equal messages are equal bytes."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: Any, where: str = "") -> Self:
        """Parse, strictly. Raises `ContractError` naming the first field that is unknown, missing or ill-typed."""
        if not isinstance(data, dict):
            raise ContractError(f"{where or cls.__name__}: expected an object, got {type(data).__name__}")
        hints: dict[str, Any] = _hints(cls)  # type: ignore[arg-type]  # classes are hashable
        fields = {_camel(f.name): f for f in dataclasses.fields(cls)}
        prefix = where + "." if where else ""
        if unknown := sorted(set(data) - set(fields)):
            raise ContractError(f"{prefix}{unknown[0]}: unknown field; known are {', '.join(sorted(fields))}")
        values: dict[str, Any] = {}
        for key, spec in fields.items():
            if key in data:
                values[spec.name] = _parse(hints[spec.name], data[key], prefix + key)
            elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
                raise ContractError(f"{prefix}{key}: required field is missing")
        return cls(**values)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Raises `ContractError` on anything that is not such an object."""
        try:
            data = json.loads(text)
        except ValueError as error:
            raise ContractError(f"not JSON: {error}") from error
        return cls.from_dict(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping(Message):
    """How a model is spread over ranks; rank order: tp fastest, then cp, then pp.

    The ranks of a tensor group share the experts of a mixture as well: `moe_ep` groups of them hold different experts,
    and the `moe_tp` ranks of a group hold a slice of each. Absent: derived, see `expert_sizes`.
    """

    tp: int = 1
    pp: int = 1
    cp: int = 1
    moe_tp: int | None = None
    moe_ep: int | None = None

    @property
    def expert_sizes(self) -> tuple[int, int]:
        """(moe_tp, moe_ep), whose product is tp: what is absent follows from the other, and moe_ep is 1 by default."""
        if self.moe_tp is None:
            ep = self.moe_ep or 1
            return self.tp // ep, ep
        return self.moe_tp, self.tp // self.moe_tp if self.moe_ep is None else self.moe_ep

    @property
    def world_size(self) -> int:
        return self.tp * self.pp * self.cp


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource(Message):
    """Where the model is: `path` (absolute, inside the pod) or `repo` of a hub with its `revision`."""

    path: str | None = None
    repo: str | None = None
    revision: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantFacts(Message):
    """How a checkpoint keeps the matrices of the layers."""

    algo: QuantAlgo
    group_size: int | None = None
    """Columns that share a scale; absent: all of a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts(Message):
    """What a checkpoint says about itself: a closed set, used by validation, memory fit and the engine key."""

    format: str
    """`hf`, `trtllm_checkpoint` or `trtllm_engine`."""
    architecture: str
    family: str | None = None
    """Which of our network definitions builds it; absent: none does."""
    dtype: str
    """As stored: float32, float16, bfloat16."""
    quantization: str | None = None
    """The method that quantised the stored weights; absent: none did."""
    quant: QuantFacts | None = None
    """What that method made, if engines can keep it."""
    quant_unread: str | None = None
    """Why they cannot; at most `REASON_LIMIT` bytes."""
    hidden_size: int
    num_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    tied_embeddings: bool
    experts: int = 0
    """Experts of each layer that has any; 0: every layer is dense."""
    experts_per_token: int = 0
    expert_intermediate_size: int = 0
    expert_parameters: int = 0
    """Those of `parameters` that are inside experts."""
    sliding_window: int | None = None
    """Positions that a windowed layer sees; absent: every layer sees all."""
    windowed_layers: int = 0
    parameters: int
    weight_bytes: int
    commit: str | None = None
    """The resolved hub commit; absent for a model on a volume."""
    digest: str
    """sha256 over names, sizes, small files, and of safetensors the headers and a sample of each tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest(Message):
    """To `trtllm-engine fetch`: bring a hub model into the cache, or only inspect one that is on a volume."""

    contract: int = CONTRACT
    model: ModelSource
    load_format: str | None = None
    """`DUMMY`: the weights are not looked at, and need not be there; the facts are what config.json makes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantArgs(Message):
    """How the build quantises a checkpoint that is not quantised."""

    algo: QuantAlgo
    group_size: int | None = None
    """Columns that share a scale with W4A16: 128, 64 or 32; absent with the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibArgs(Message):
    """The texts that the build looks at to find scales of activations."""

    dataset: str | None = None
    """A file below MODELS_MOUNT: `.jsonl` with `text` in each line, or paragraphs of text; absent: a few short texts
    that the image has."""
    batches: int
    batch_size: int
    max_seq_length: int
    """Tokens that are looked at of each text."""
    seed: int
    """Which texts are chosen, where there are more than batches times batch size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildArgs(Message):
    """The resolved build arguments: no field is unset any more, sizes are what arbitration chose."""

    dtype: str
    max_batch_size: int
    max_input_len: int
    max_seq_len: int
    load_format: str | None = None
    """`DUMMY`: random weights of the shapes that config.json says; absent: the checkpoint's."""
    quant: QuantArgs | None = None
    """Absent: the weights are kept as the checkpoint has them."""
    calib: CalibArgs | None = None
    """With FP8, whose activations are quantised too; absent with the others, and with random weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Message):
    """The GPU that an engine is for; absent capability: any (toolchain `torch`)."""

    compute_capability: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest(Message):
    """To `trtllm-engine build`, one pod per rank; the rank comes from JOB_COMPLETION_INDEX."""

    contract: int = CONTRACT
    engine_key: str
    model: ModelSource
    model_digest: str
    """The build recomputes it from what it reads and fails with CORRUPT_INPUT if it differs."""
    args: BuildArgs
    mapping: Mapping
    toolchain: Toolchain
    toolchain_version: str
    """`toolchain_version()` of the image that will build; another one is BAD_REQUEST."""
    target: Target
    output: str
    """`engine_folder(engine_key)`, relative to STORE_MOUNT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest(Message):
    """To `trtllm-engine serve`, mounted into every pod of a replica group."""

    contract: int = CONTRACT
    engine_key: str
    engine: str
    """Folder of the engine, relative to STORE_MOUNT."""
    model_name: str
    """What clients call the model, and what `/v1/models` lists."""
    device: str = "auto"
    """`auto` (CUDA if the pod sees a GPU, else CPU), `cuda` or `cpu`."""
    port: int = 8000
    drain_seconds: int = 10
    mapping: Mapping = field(default_factory=Mapping)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Message):
    """One log line of a running pod."""

    ts: str
    """RFC 3339, UTC."""
    rank: int = 0
    step: Step
    percent: float
    """0 to 100 over the whole pod, never falling."""
    eta_seconds: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Message):
    """How a pod ended. `to_json()` fits RESULT_LIMIT because `cut()` was applied on the way out."""

    ok: bool
    code: int = 0
    step: Step | None = None
    field: str | None = None
    """The request's or the model's field or file that is at fault."""
    message: str | None = None
    log: str | None = None
    """The first failing log line."""
    files: int | None = None
    bytes: int | None = None
    digest: str | None = None
    """Of the published rank: sha256 of its engine file."""
    seconds: dict[str, float] | None = None
    """Wall seconds per step."""
    peak_bytes: int | None = None
    """Peak resident memory of the process."""
    facts: ModelFacts | None = None
    versions: dict[str, str] | None = None
    """`toolchain_version()` by toolchain, of the toolchains that this image can run."""

    def cut(self) -> Self:
        """The same result with its texts shortened until it fits RESULT_LIMIT bytes."""
        result = self
        for limit in (1200, 600, 300, 120):
            if len(result.to_json().encode()) <= RESULT_LIMIT:
                return result
            result = dataclasses.replace(
                result,
                message=_shorten(self.message, limit),
                log=_shorten(self.log, limit),
                field=_shorten(self.field, limit),
            )
        return result


def engine_folder(key: str) -> str:
    """Where the engine with this key lives, relative to STORE_MOUNT."""
    return f"engines/{_plain_name(key)}"


def model_folder(repo: str, commit: str) -> str:
    """Where a hub model lives, relative to CACHE_MOUNT. Raises `ContractError` on a name that would leave it."""
    owner_and_name = [_plain_name(part) for part in repo.split("/")]
    return posixpath.join("models", *owner_and_name, _plain_name(commit))


def rank_file(rank: int) -> str:
    """The engine of one rank; it exists only if `rank_record` of it is there and valid."""
    return f"rank{rank:04d}.engine"


def rank_record(rank: int) -> str:
    """The JSON beside a rank's engine, written last: sha256, size, versions, plan facts."""
    return f"rank{rank:04d}.json"


def _plain_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name):
        raise ContractError(f"{name!r} is no plain file name (letters, digits, '.', '_', '-')")
    return name


@functools.cache
def _hints(message: type[Message]) -> dict[str, Any]:
    """Evaluating annotations costs more than all the rest of parsing."""
    return typing.get_type_hints(message)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_dict()
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _shorten(text: str | None, limit: int) -> str | None:
    return (
        text
        if text is None or len(text.encode()) <= limit
        else text.encode()[: limit - 3].decode(errors="ignore") + "..."
    )


def _parse(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (option for option in typing.get_args(hint) if option is not type(None))
        return None if value is None else _parse(inner, value, where)
    if origin is dict:
        if not isinstance(value, dict):
            raise ContractError(f"{where}: expected an object, got {type(value).__name__}")
        _, item = typing.get_args(hint)
        return {str(k): _parse(item, v, f"{where}.{k}") for k, v in value.items()}
    if origin is tuple:
        if not isinstance(value, list):
            raise ContractError(f"{where}: expected a list, got {type(value).__name__}")
        item, _ = typing.get_args(hint)
        return tuple(_parse(item, v, f"{where}[{i}]") for i, v in enumerate(value))
    if issubclass(hint, Message):
        return hint.from_dict(value, where)
    if issubclass(hint, enum.Enum):
        try:
            return hint(value)
        except ValueError:
            raise ContractError(f"{where}: {value!r} is not one of {', '.join(str(m.value) for m in hint)}") from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ContractError(f"{where}: expected {hint.__name__}, got {value!r}")
    return value
