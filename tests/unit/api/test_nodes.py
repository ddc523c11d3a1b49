"""What is read from a Node, with and without GPU feature discovery."""

from typing import Any

from trtllm_operator.api.nodes import NodeFacts

LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": "8",
}


def a_node(labels: dict[str, str], *, allocatable: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "gpu-a", "labels": labels},
        "spec": spec,
        "status": {
            "allocatable": allocatable or {},
            "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}],
        },
    }


def test_the_labels_of_gpu_feature_discovery_are_read() -> None:
    node = NodeFacts.of(a_node(LABELS, allocatable={"nvidia.com/gpu": "6"}))

    assert (node.name, node.gpu_product, node.compute_capability) == ("gpu-a", "NVIDIA-H100-80GB-HBM3", "9.0")
    assert (node.gpu_memory_bytes, node.gpus, node.usable) == (81559 * 2**20, 6, True)


def test_the_count_label_stands_in_until_the_device_plugin_has_registered() -> None:
    assert NodeFacts.of(a_node(LABELS)).gpus == 8
    assert NodeFacts.of(a_node(LABELS), resource="example.com/gpu").gpus == 0
    assert NodeFacts.of(a_node(LABELS, allocatable={"nvidia.com/gpu": "0"})).gpus == 0


def test_another_resource_is_counted_by_its_name() -> None:
    node = a_node({}, allocatable={"example.com/gpu": "4"})
    assert NodeFacts.of(node, resource="example.com/gpu").gpus == 4


def test_a_node_that_says_nothing_is_a_node_of_which_nothing_is_known() -> None:
    node = NodeFacts.of({"metadata": {"name": "cpu"}})

    assert node == NodeFacts(name="cpu")
    assert NodeFacts.of(a_node({"nvidia.com/gpu.memory": "much"})).gpu_memory_bytes is None


def test_a_cordoned_or_unready_node_is_not_usable() -> None:
    assert not NodeFacts.of(a_node(LABELS, unschedulable=True)).usable
    broken = a_node(LABELS)
    broken["status"]["conditions"][1]["status"] = "Unknown"
    assert not NodeFacts.of(broken).usable
