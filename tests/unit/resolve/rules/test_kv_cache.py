"""The pool of cached keys and values."""

from typing import Any

from tests.unit.resolve.cases import for_engine, found, refused, silent, warned

STREAMING = {"pluginConfig": {"streamingllm": True}}


def cache(build: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    return for_engine(kvCacheConfig=options or None, buildConfig=build)


def test_arb_4_streaming_needs_its_window_and_its_sinks() -> None:
    alone = found(cache(STREAMING))

    assert [p.path for p in alone.problems if p.rule == "ARB-4"] == [
        "spec.kvCacheConfig.maxAttentionWindow",
        "spec.kvCacheConfig.sinkTokenLength",
    ]
    assert silent("ARB-4", found(cache(STREAMING, maxAttentionWindow=[2048], sinkTokenLength=4)))
    assert silent("ARB-4", found(cache()))


def test_kvc_1_sinks_fit_into_the_window() -> None:
    assert refused("KVC-1", found(cache(maxAttentionWindow=[64, 4], sinkTokenLength=4))).hint == "use at most 3"
    assert silent("KVC-1", found(cache(maxAttentionWindow=[64, 5], sinkTokenLength=4)))


def test_kvc_2_partial_reuse_needs_reuse() -> None:
    spec = cache(enableBlockReuse=False, enablePartialReuse=True)

    assert warned("KVC-2", found(spec)).path == "spec.kvCacheConfig.enablePartialReuse"
    assert silent("KVC-2", found(cache(enablePartialReuse=True)))
