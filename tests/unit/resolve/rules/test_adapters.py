"""LoRA and prompt adapters."""

from tests.unit.resolve.cases import adjusted, for_engine, found, refused, silent, warned

PLUGIN = "buildConfig.pluginConfig.loraPlugin"


def test_set_10_lora_turns_its_plugin_on_and_passes_its_rank_on() -> None:
    assert adjusted("SET-10", found(for_engine(enableLora=True, maxLoraRank=16))) == {
        PLUGIN: (None, "auto"),
        "buildConfig.loraConfig.maxLoraRank": ("64 (default)", "16"),
    }
    kept = for_engine(enableLora=True, buildConfig={"pluginConfig": {"loraPlugin": "float16"}})
    assert adjusted("SET-10", found(kept)) == {}


def test_set_10_lora_without_its_plugin_is_refused() -> None:
    off = for_engine(enableLora=True, buildConfig={"pluginConfig": {"loraPlugin": "disable"}})

    problem = refused("SET-10", found(off))
    assert (problem.path, problem.hint) == ("spec.enableLora", f"remove one of spec.enableLora and spec.{PLUGIN}")


def test_set_10_a_rank_without_lora_is_told() -> None:
    assert warned("SET-10", found(for_engine(maxLoraRank=16))).path == "spec.maxLoraRank"


def test_llm_3_numbers_of_adapters_give_way_to_a_cache() -> None:
    assert warned("LLM-3", found(for_engine(peftCacheConfig={"hostCacheSize": 1}, maxLoras=2))).path == "spec.maxLoras"
    assert silent("LLM-3", found(for_engine(maxLoras=2)))


def test_llm_6_a_prefetch_folder_is_told() -> None:
    spec = for_engine(peftCacheConfig={"loraPrefetchDir": "/models/lora"})
    assert warned("LLM-6", found(spec)).path == "spec.peftCacheConfig.loraPrefetchDir"


def test_llm_7_dora_needs_lora() -> None:
    dora = {"pluginConfig": {"doraPlugin": True}}

    assert warned("LLM-7", found(for_engine(buildConfig=dora))).path == "spec.buildConfig.pluginConfig.doraPlugin"
    assert silent("LLM-7", found(for_engine(buildConfig=dora, enableLora=True)))


def test_set_11_prompt_adapters_make_their_table() -> None:
    spec = for_engine(enablePromptAdapter=True, maxPromptAdapterToken=10, buildConfig={"maxBatchSize": 4})

    assert adjusted("SET-11", found(spec)) == {"buildConfig.maxPromptEmbeddingTableSize": ("0 (default)", "40")}


def test_set_11_prompt_adapters_have_tokens() -> None:
    assert refused("SET-11", found(for_engine(enablePromptAdapter=True))).path == "spec.maxPromptAdapterToken"
    assert silent("SET-11", found(for_engine(maxPromptAdapterToken=0)))
