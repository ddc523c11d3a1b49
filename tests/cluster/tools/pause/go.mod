module trtllm-operator.dev/tests/cluster/tools/pause

go 1.25.0
