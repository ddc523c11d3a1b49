"""`trtllm-serve` and `trtllm-build`: which flag is which field of a spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..api.llm_args import BuildConfig, LoraConfig, PluginConfig
from ..api.spellings import MOVED, NO_PLACE
from .failure import BadInput
from .notes import Level
from .options import Origin, SpecBuilder, field_at
from .shell import VARIABLE, Command

SERVE: Final = "trtllm-serve"
BUILD: Final = "trtllm-build"
PROGRAMS: Final = (SERVE, BUILD)
SIZES: Final = ("max_batch_size", "max_num_tokens", "max_seq_len", "max_input_len", "max_beam_width")

_SAME_NAME: Final = ("backend", "enable_chunked_prefill", "gpus_per_node", "revision", "tokenizer", "trust_remote_code")
_OTHER_NAME: Final = (
    "tp_size",
    "pp_size",
    "cp_size",
    "ep_size",
    "kv_cache_free_gpu_memory_fraction",
    "port",
    "served_model_name",
)
SERVE_FLAGS: Final[Mapping[str, str]] = {
    **{name: name for name in _SAME_NAME},
    **{name: MOVED[name] for name in _OTHER_NAME},
    "free_gpu_memory_fraction": "kv_cache_config.free_gpu_memory_fraction",
    "kv_cache_dtype": "pytorch_backend_config.kv_cache_dtype",
}
BUILD_FLAGS: Final[Mapping[str, str]] = {
    **{name: f"build_config.{name}" for name in BuildConfig.model_fields},
    **{name: f"build_config.plugin_config.{name}" for name in PluginConfig.model_fields},
    **{name: f"build_config.lora_config.{name}" for name in LoraConfig.model_fields},
    "fast_build": "fast_build",
    "strip_plan": "build_config.use_strip_plan",
    "max_multimodal_len": "build_config.max_prompt_embedding_table_size",
    "gpus_per_node": "gpus_per_node",
    "multi_block_mode": "extended_runtime_perf_knob_config.multi_block_mode",
}
OPTION_FILES: Final = ("extra_llm_api_options", "config", "build_config")
"""Flags that name another file."""


ReadOptions = Callable[[str, SpecBuilder, str], None]
"""Reads the file that a flag names into a builder, below a section; empty: at the top level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One option of a command line, or an argument without one (`name` empty)."""

    name: str
    values: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return " ".join((f"--{self.name}", *self.values)) if self.name else " ".join(self.values)

    @property
    def value(self) -> Any:
        """A switch without a value is true."""
        return True if not self.values else self.values[0] if len(self.values) == 1 else list(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A command line, taken apart."""

    program: str
    flags: tuple[Flag, ...]
    before: tuple[str, ...] = field(default=())
    """Words before the program."""

    def value(self, *names: str) -> str | None:
        """Of the last flag with one of the names."""
        return next((f.values[0] for f in reversed(self.flags) if f.name in names and f.values), None)

    @property
    def arguments(self) -> tuple[str, ...]:
        return tuple(word for f in self.flags if not f.name for word in f.values)


def parse_command(command: Command) -> Parsed:
    """Take a command line apart. A flag takes the words up to the next one only where it can have a list."""
    index = command.find(PROGRAMS)
    assert index is not None
    program = command.words[index].rsplit("/", 1)[-1]
    words = [command.expanded(word) for word in command.words[index + 1 :]]
    known = SERVE_FLAGS if program == SERVE else BUILD_FLAGS
    return Parsed(program=program, flags=tuple(_flags(words, known)), before=command.words[:index])


def import_command(command: Command, builder: SpecBuilder, read_options: ReadOptions) -> None:
    """Everything on a command line. `read_options` reads a file that the command names, into a section."""
    parsed = parse_command(command)
    _tell_before(parsed, builder)
    for flag in parsed.flags:
        if (
            match := next((VARIABLE.search(value) for value in flag.values if VARIABLE.search(value)), None)
        ) is not None:
            builder.note(Level.WARNING, flag.text, f"{match[0]} is not set in the script; replace it")
    if parsed.program == SERVE:
        _import_serve(parsed, builder, read_options)
    else:
        _import_build(parsed, builder, read_options)


def _import_serve(parsed: Parsed, builder: SpecBuilder, read_options: ReadOptions) -> None:
    arguments = [word for word in parsed.arguments if word != "serve"]
    if arguments[:1] in (["disaggregated"], ["disaggregated_mpi_worker"]):
        raise BadInput(f"{SERVE} {arguments[0]}: prefill and decode on different pods are not in this version")
    for number, word in enumerate(arguments):
        if number == 0:
            builder.put("model", word, Origin(what=word))
        else:
            builder.note(Level.NO_PLACE, word, "a second argument has no meaning")
    backend = parsed.value("backend")
    engine = backend in (None, "trt", "tensorrt", "cpp")
    if backend is None:
        builder.note(
            Level.WARNING,
            SERVE,
            "without --backend releases before 1.0 build a TensorRT engine, and that is written; later ones run "
            "PyTorch: add backend: pytorch if you mean that",
        )
    sizes = {name: f"build_config.{name}" if engine else name for name in SIZES}
    _put_flags(parsed, {**SERVE_FLAGS, **sizes}, builder)
    if (options := parsed.value("extra_llm_api_options", "config")) is not None:
        read_options(options, builder, "")


def _import_build(parsed: Parsed, builder: SpecBuilder, read_options: ReadOptions) -> None:
    for word in parsed.arguments:
        builder.note(Level.NO_PLACE, word, f"{BUILD} takes no arguments without a flag")
    if (folder := parsed.value("checkpoint_dir")) is not None:
        # A relative path looks like a repository of the hub.
        path = folder if folder.startswith(("/", ".", "~")) else f"./{folder}"
        builder.put("model", path, Origin(what=f"--checkpoint_dir {folder}"))
    handled = {"checkpoint_dir", "max_output_len", "gather_all_token_logits", "auto_parallel"}
    _put_flags(parsed, BUILD_FLAGS, builder, handled)
    _old_flags(parsed, builder)
    if (options := parsed.value("build_config")) is not None:
        read_options(options, builder, "build_config")


def _old_flags(parsed: Parsed, builder: SpecBuilder) -> None:
    """Flags of trtllm-build that stand for several fields."""
    if (output := parsed.value("max_output_len")) is not None:
        prompt = parsed.value("max_input_len") or "1024"
        origin = Origin(what=f"--max_output_len {output}")
        if not (output.isdigit() and prompt.isdigit()):
            builder.note(Level.NO_PLACE, origin.what, "is no number")
        else:
            total = int(prompt) + int(output)
            builder.note(Level.TRANSLATED, origin.what, f"with prompts of {prompt} a sequence has {total} tokens")
            builder.put("build_config.max_seq_len", total, origin)
    for flag in parsed.flags:
        origin = Origin(what=flag.text)
        if flag.name == "gather_all_token_logits":
            builder.put("build_config.gather_context_logits", True, origin)
            builder.put("build_config.gather_generation_logits", True, origin)
        if flag.name == "auto_parallel" and flag.values and flag.values[0] != "1":
            builder.put("auto_parallel", True, origin)
            builder.put("auto_parallel_world_size", flag.value, origin)


def _put_flags(
    parsed: Parsed, fields: Mapping[str, str], builder: SpecBuilder, handled: set[str] | frozenset[str] = frozenset()
) -> None:
    for flag in parsed.flags:
        if not flag.name or flag.name in handled or flag.name in OPTION_FILES:
            continue
        origin = Origin(what=flag.text)
        if (path := fields.get(flag.name)) is not None:
            _tell_renamed(flag, path, builder)
            builder.put(path, flag.value, origin)
        elif flag.name in NO_PLACE:
            builder.note(Level.NO_PLACE, flag.text, NO_PLACE[flag.name])
        else:
            builder.note(Level.NO_PLACE, flag.text, f"is no flag of {parsed.program} that a spec has a field for")


def _tell_renamed(flag: Flag, path: str, builder: SpecBuilder) -> None:
    field = field_at(path)
    if field.names[-1] != flag.name:
        builder.note(Level.TRANSLATED, flag.text, f"is {field.text} in a spec")


def _tell_before(parsed: Parsed, builder: SpecBuilder) -> None:
    """What was set up around the program."""
    launcher = [word for word in parsed.before if "=" not in word or word.startswith("-")]
    for word in parsed.before:
        if word not in launcher:
            builder.note(Level.NO_PLACE, word, "a spec has no environment variables for pods")
    if launcher:
        text = (
            "the operator starts the ranks" if launcher[0] in ("mpirun", "srun") else "the operator starts the program"
        )
        builder.note(Level.NO_PLACE, " ".join(launcher), text)


def _flags(words: Sequence[str], known: Mapping[str, str]) -> Iterator[Flag]:
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("--") or word == "--":
            if word != "--":
                yield Flag(name="", values=(word,))
            continue
        name, equals, given = word[2:].partition("=")
        name = name.replace("-", "_")
        values = [given] if equals else []
        most = 0 if equals else _most_values(name, known)
        while len(values) < most and position < len(words) and not _is_flag(words[position]):
            values.append(words[position])
            position += 1
        yield Flag(name=name, values=tuple(values))


def _most_values(name: str, known: Mapping[str, str]) -> int:
    """How many words may follow a flag."""
    if name in ("trust_remote_code", "enable_chunked_prefill", "gather_all_token_logits"):
        return 0
    if name not in known:
        return 1
    kinds = field_at(known[name]).kinds
    if tuple in kinds:
        return 1_000
    # The plugins' switches take enable or disable, all others nothing.
    is_switch = kinds == {bool} and name not in PluginConfig.model_fields and name != "multi_block_mode"
    return 0 if is_switch else 1


def _is_flag(word: str) -> bool:
    return word.startswith("--")
