"""What a rule is asked about: one spec, and what is known beside it."""

from __future__ import annotations

from collections.abc import Mapping as Values
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from trtllm_engine.contract import DUMMY, Mapping, ModelFacts, QuantAlgo, QuantFacts, Toolchain

from ...api.llm_args import LlmArgs
from ...api.nodes import NodeFacts
from .. import projection
from ..capability import Route, parse
from ..defaults import Defaults
from ..gpus import matching
from ..layout import Layout, lay_out
from ..legible import Legible, without
from ..options import REFERENCE, ROOT, written
from ..projection import Spec
from ..quantisation import OWN_GROUPS, whole_groups

SIZE_NAMES: Final = ("maxBatchSize", "maxInputLen", "maxSeqLen", "maxBeamWidth", "maxNumTokens")
"""The sizes that LlmArgs has twice: for the build in buildConfig, for the runtime at the top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A spec as rules read it: by the paths that the user wrote."""

    spec: Spec
    args: LlmArgs
    written: Values[str, Any]
    """Every value of LlmArgs that the user wrote, by path."""
    defaults: Defaults
    facts: ModelFacts | None
    nodes: tuple[NodeFacts, ...] | None
    """The nodes that the spec's pods may go to; None: nodes are not known."""

    @classmethod
    def of(
        cls,
        spec: Spec,
        defaults: Defaults,
        facts: ModelFacts | None = None,
        nodes: Sequence[NodeFacts] | None = None,
        unread: frozenset[str] = frozenset(),
    ) -> Self:
        """`unread`: paths of which it is not known what the user wants there. Who asks for one meets `Unread`."""
        args = projection.arguments(spec)
        known: Values[str, Any] = written(args)
        if unread:
            spec, args, known = without(spec, unread), without(args, unread), Legible(known, unread)
        return cls(
            spec=spec,
            args=args,
            written=known,
            defaults=defaults,
            facts=facts,
            nodes=None if nodes is None else matching(spec, nodes),
        )

    @property
    def route(self) -> Route:
        return projection.route_of(self.args, self.toolchain)

    @property
    def mapping(self) -> Mapping:
        """As written, before any planning."""
        return projection.mapping(self.spec)

    @property
    def model(self) -> ModelFacts:
        """For rules of a stage that has facts."""
        assert self.facts is not None, "only a rule that needs facts asks for them"
        return self.facts

    @property
    def toolchain(self) -> Toolchain:
        return projection.toolchain(self.spec, self.defaults)

    def wrote(self, field: str) -> bool:
        """Whether the user wrote the field (below `spec`)."""
        return f"{ROOT}.{field}" in self.written

    def value(self, field: str) -> Any:
        """What the user wrote, or the reference's default."""
        path = f"{ROOT}.{field}"
        return self.written.get(path, REFERENCE.get(path))

    def plugin(self, name: str) -> Any:
        return self.value(f"buildConfig.pluginConfig.{name}")

    def size(self, name: str) -> tuple[str, int | None]:
        """Where one of `SIZE_NAMES` is written and what it says: that of the build before that of the runtime."""
        build, top = f"{ROOT}.buildConfig.{name}", f"{ROOT}.{name}"
        path = top if top in self.written and build not in self.written else build
        value = self.written.get(path)
        return path, value if value is None else int(value)

    def size_or_default(self, name: str) -> int | None:
        value = self.size(name)[1]
        default = REFERENCE[f"{ROOT}.buildConfig.{name}"]
        return default if value is None else value

    @property
    def quantisation(self) -> str | None:
        """That the build applies to weights; None: it does not."""
        algo = self.written.get(f"{ROOT}.quantConfig.quantAlgo")
        return None if algo in (None, "NO_QUANT") else str(algo)

    @property
    def cache_quantisation(self) -> str | None:
        algo = self.written.get(f"{ROOT}.quantConfig.kvCacheQuantAlgo")
        return None if algo is None else str(algo)

    @property
    def random(self) -> bool:
        """Whether weights are made up: then it does not count how the checkpoint has them."""
        return bool(self.value("loadFormat") == DUMMY)

    @property
    def stored(self) -> QuantFacts | None:
        """How own toolchains keep the weights because the checkpoint has them so."""
        return None if self.facts is None or self.random else self.facts.quant

    def kept(self, mapping: Mapping) -> QuantFacts | None:
        """How own toolchains keep the weights of these ranks; None: as floating numbers."""
        algo = self.quantisation
        if self.stored is not None or algo is None:
            return self.stored
        if algo not in OWN_GROUPS:
            return QuantFacts(algo=QuantAlgo(algo))
        asked, whole = self.written.get(f"{ROOT}.quantConfig.groupSize"), whole_groups(self.model, mapping, algo)
        return QuantFacts(algo=QuantAlgo(algo), group_size=asked or next(iter(whole), OWN_GROUPS[algo][-1]))

    @property
    def group(self) -> int | None:
        """Columns of a matrix that ranks must not divide; the smallest where there is a choice."""
        if self.stored is not None or not self.route.own:
            return self.stored.group_size if self.stored else None
        asked = self.written.get(f"{ROOT}.quantConfig.groupSize")
        groups = OWN_GROUPS.get(self.quantisation or "")
        return None if groups is None else asked or groups[-1]

    @property
    def gpus_per_node(self) -> int | None:
        """That a replica may use of a node: as written, else what the largest node has; None: not known."""
        return self.spec.gpus_per_node or max((node.gpus for node in self.nodes or ()), default=None) or None

    def layout(self, world: int) -> Layout | None:
        """Pods and GPUs of a replica; ranks that the nodes cannot share evenly wait for a node that holds them all."""
        return lay_out(world, self.gpus_per_node) or lay_out(world, self.spec.gpus_per_node)

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability of the GPUs: that of the target, else the least of the nodes; None: not known."""
        if (named := projection.options(self.spec).target.compute_capability) is not None:
            return parse(named)
        return min((parse(n.compute_capability) for n in self.nodes or () if n.compute_capability), default=None)

    @property
    def draft_len(self) -> int:
        """Tokens that are guessed ahead; 0: nothing is."""
        speculation = self.args.speculative_config
        asked = speculation.max_draft_len if speculation else None
        return asked or int(self.value("buildConfig.maxDraftLen") or 0)
