module trtllm-operator.dev/tests/cluster/tools/kwok

go 1.25.0
