"""The operator with a real scheduler over nodes that are faked by kwok: GPUs, groups of several nodes, many objects."""
