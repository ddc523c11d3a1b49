"""Rules of the reference that are no checks here: kept by the schema, by construction, by the pod, or void."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .rule import Entry, Outcome, Stage


def _schema(id: str, says: str, *fields: str) -> Entry:
    return Entry(id=id, stage=Stage.SCHEMA, outcome=Outcome.REFUSES, says=says, fields=fields)


SCHEMA: Final = (
    _schema("MDL-1", "A model is named.", "model"),
    _schema("MDL-2", "A model is text.", "model"),
    _schema("EMB-1", "The embedding mode is one of three (Q1).", "embeddingParallelMode"),
    _schema("SET-2", "The build cache is a section (true is an empty one).", "enableBuildCache"),
    _schema("SET-3", "A draft model is not the empty text.", "speculativeConfig.speculativeModel"),
    _schema(
        "SPEC-3",
        "Sizes of Lookahead are at least 1.",
        "speculativeConfig.maxWindowSize",
        "speculativeConfig.maxNgramSize",
        "speculativeConfig.maxVerificationSetSize",
    ),
    _schema("SPEC-10", "Speculation is a section with a type.", "speculativeConfig"),
    _schema(
        "SPEC-11",
        "The type is MTP, Medusa, Eagle or Lookahead, and the section has its fields only.",
        "speculativeConfig.decodingType",
    ),
    _schema("PLG-1", "Every plugin option has a value of its own list (Q17).", "buildConfig.pluginConfig"),
    _schema(
        "CXX-1",
        "Tokens, windows and sinks of the cache are at least 1; fractions lie strictly between 0 and 1 (Q23).",
        "kvCacheConfig.maxTokens",
        "kvCacheConfig.maxAttentionWindow",
        "kvCacheConfig.sinkTokenLength",
        "kvCacheConfig.freeGpuMemoryFraction",
        "kvCacheConfig.crossKvCacheFraction",
    ),
    _schema(
        "CXX-2",
        "Beam width is at least 1, limits of statistics at least 0.",
        "maxBeamWidth",
        "iterStatsMaxIterations",
        "requestStatsMaxIterations",
    ),
    _schema(
        "CXX-4",
        "The threshold of typical acceptance is at least 0 and below 1.",
        "speculativeConfig.posteriorThreshold",
    ),
    _schema("Q21", "Sizes are positive, types and backends are of their lists.", "tensorParallelSize", "dtype"),
    _schema("Q22", "Unknown keys are refused at every depth."),
)
"""Enforced by the API server from the models' types and ranges, and by every other reader of a spec."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Why there is no check."""

    where: str
    why: str


POD: Final = "pod"
"""Only the pod that has the files or the GPU can know."""
BUILT_IN: Final = "by construction"
"""The code has no way to break it."""
IMPORT: Final = "llmd import"
"""About files and command lines of the reference, which become specs there."""
VOID: Final = "void"
"""About the reference's own code; there is nothing here for it to be about."""

ELSEWHERE: Final[Mapping[str, Elsewhere]] = {
    "MDL-4": Elsewhere(POD, "the fetch looks for the folder and says what is not there"),
    "PAR-1": Elsewhere(BUILT_IN, "the number of ranks is the product of the degrees"),
    "PAR-3": Elsewhere(VOID, "there is no counter beside the product (Q2)"),
    "PAR-4": Elsewhere(VOID, "nobody sets the number of ranks; autoParallelWorldSize is its own field"),
    "PAR-5": Elsewhere(BUILT_IN, "devices of a pod are those that it requests: as many as its ranks"),
    "PAR-7": Elsewhere(BUILT_IN, "ranks get the mapping and their number from the pod's place"),
    "INIT-5": Elsewhere(BUILT_IN, "an expert degree that is not written is derived (Q4)"),
    "INIT-6": Elsewhere(BUILT_IN, "cpConfig that is not written is not passed"),
    "INIT-8": Elsewhere(BUILT_IN, "nothing here looks for a GPU (Q28)"),
    "INIT-9": Elsewhere(BUILT_IN, "a section that is not written is empty"),
    "INIT-10": Elsewhere(BUILT_IN, "arbitration is always on (Q7)"),
    "CON-1": Elsewhere(VOID, "the guard never fires (Q27)"),
    "CON-3": Elsewhere(BUILT_IN, "there is one way to read a spec"),
    "SET-1": Elsewhere(VOID, "the same as MDL-2"),
    "SET-4": Elsewhere(POD, "inspection tells the format by config.json alone, for every toolchain"),
    "SET-5": Elsewhere(BUILT_IN, "a section that is not written is empty"),
    "SET-9": Elsewhere(POD, "the builder turns communication off for one rank, by the real number of ranks (Q16)"),
    "SET-12": Elsewhere(BUILT_IN, "arbitration is always on (Q7)"),
    "SET-13": Elsewhere(POD, "the draft model's format is looked at where it is read"),
    "SPEC-2": Elsewhere(BUILT_IN, "SPEC-1 raises the draft length and never lowers it"),
    "SPEC-9": Elsewhere(VOID, "decodingConfig is not in a spec (Q18)"),
    "FMT-1": Elsewhere(POD, "inspection: a folder without config.json is refused there"),
    "FMT-3": Elsewhere(BUILT_IN, "a fact of inspection; FMT-2 judges it"),
    "FMT-5": Elsewhere(POD, "inspection: what cannot be read is refused with the kind that it seemed to be"),
    "ENG-1": Elsewhere(POD, "the ranks of an engine are not among the facts; the format is refused by this version"),
    "ENG-4": Elsewhere(POD, "the engine's own runtime defaults are filled in where the engine is read (Q10)"),
    "ENG-5": Elsewhere(POD, "the format is refused by this version, so nothing is lost (Q11, Q12)"),
    "CKPT-1": Elsewhere(
        POD, "the ranks of a checkpoint are not among the facts; the format is refused by this version"
    ),
    "CKPT-2": Elsewhere(POD, "the format is refused by this version (Q30)"),
    "CKPT-3": Elsewhere(POD, "the format is refused by this version, so nothing is lost (Q11)"),
    "ARB-1": Elsewhere(VOID, "maxNumTokens has a default and cannot be empty"),
    "ARB-8": Elsewhere(POD, "the format is refused by this version; what an engine is comes in as facts of the claims"),
    "ARB-9": Elsewhere(BUILT_IN, "what was settled is the effective spec"),
    "ARB-10": Elsewhere(BUILT_IN, "options have one name, so facts and claims meet"),
    "ARB-11": Elsewhere(BUILT_IN, "the effective spec is checked like a written one"),
    "CORE-1": Elsewhere(
        BUILT_IN, "resolve/arbitrator.py: a fact that contradicts a written value or a fact is refused"
    ),
    "CORE-2": Elsewhere(BUILT_IN, "resolve/arbitrator.py: functions in order; a contradiction names both sides"),
    "CORE-3": Elsewhere(BUILT_IN, "resolve/arbitrator.py: then performance; what is lost goes whole (Q5, Q6)"),
    "CORE-4": Elsewhere(BUILT_IN, "a test compares the names of all claims with the fields"),
    "XTR-1": Elsewhere(IMPORT, "sections become sections (Q26)"),
    "XTR-2": Elsewhere(IMPORT, "nothing to warn about"),
    "XTR-3": Elsewhere(IMPORT, "sections are merged, with a warning where the reference would drop a flag"),
    "XTR-4": Elsewhere(IMPORT, "unknown keys are named, all at once (Q26)"),
    "PYB-1": Elsewhere(VOID, "there are no bindings; a test compares the fields with the reference's"),
    "PYB-2": Elsewhere(VOID, "there are no bindings; a test compares the values with the reference's"),
    "MAP-3": Elsewhere(BUILT_IN, "the number of ranks is the product of the degrees"),
    "MAP-4": Elsewhere(BUILT_IN, "PAR-2 refuses all degrees beside autoParallel, context parallelism included"),
    "MAP-6": Elsewhere(BUILT_IN, "ranks are numbered by the pod's place"),
    "PLG-2": Elsewhere(IMPORT, "words of the command line become values; disable stays a word"),
    "PLG-4": Elsewhere(BUILT_IN, "disable is a value, so BLD-9 sees that it was written"),
    "TOK-2": Elsewhere(POD, "the builder: an unset limit is batch x sequence"),
    "TOK-3": Elsewhere(POD, "the builder: an unset optNumTokens follows from batch and beams"),
    "BLD-3": Elsewhere(BUILT_IN, "part of ARB-3"),
    "BLD-10": Elsewhere(POD, "the builder reads its timing cache, or makes a new one"),
    "PRE-1": Elsewhere(POD, "mixed precision reads a file of the checkpoint"),
    "CXX-3": Elsewhere(BUILT_IN, "SPEC-3 and SPEC-4 leave only what the executor takes"),
    "LLM-1": Elsewhere(BUILT_IN, "a pod requests as many GPUs as it has ranks"),
    "LLM-2": Elsewhere(BUILT_IN, "SET-6 and CON-2 leave one value for build and runtime"),
    "LLM-5": Elsewhere(POD, "about single requests: the server refuses them"),
}

QUIRKS: Final[Mapping[str, str]] = {
    "Q1": "EMB-1 lists the three modes",
    "Q2": "the number of ranks is computed, PAR-1",
    "Q3": "PAR-6 refuses what does not divide and names the nearest that does",
    "Q4": "expert degrees are derived, MAP-2",
    "Q5": "CORE-3: a lost feature leaves nothing behind",
    "Q6": "CORE-3: all fallbacks of a lost feature are taken",
    "Q7": "arbitration is always on",
    "Q8": "ARB-5 and FMHA-4 depend on the cache's type",
    "Q9": "schemes are compared by their spelling, ARB-5",
    "Q10": "ENG-4: the format is refused by this version",
    "Q11": "ENG-5: the format is refused by this version",
    "Q12": "ENG-5: the format is refused by this version",
    "Q13": "CON-2 compares only what is written",
    "Q14": "SIZE-2, SIZE-3, SIZE-4: a size at the top counts for the build, all of them",
    "Q15": "SET-6 refuses a runtime limit above the build's",
    "Q16": "SET-9: by the real number of ranks",
    "Q17": "SPEC-5, MAP-2, PLG-1 are refusals with a path",
    "Q18": "decodingConfig is not in a spec",
    "Q19": "a spec is never changed; judging the effective spec again says nothing new",
    "Q20": "a spec is never changed",
    "Q21": "enforced by the schema",
    "Q22": "enforced by the schema at every depth",
    "Q23": "CXX-1 is enforced by the schema",
    "Q24": "MDL-3: a path is never taken for a repository",
    "Q25": "CAP-5: the table of toolchains and features; SPEC-8",
    "Q26": "llmd import parses nested sections",
    "Q27": "void",
    "Q28": "decided from the target and the nodes' labels: INIT-3, SM-1",
    "Q29": "CAP-6 says that they have no effect",
    "Q30": "messages are this project's own, and tested",
    "Q31": "nothing is pickled",
}
"""Faults of the reference, and what happens here instead."""
