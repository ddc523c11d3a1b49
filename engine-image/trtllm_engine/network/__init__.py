"""The decoder, defined once over a thin layer of operations.

`decoder.py` is the only definition of the model. It runs over `Ops`: `torch_ops.py` computes at once with torch,
`tensorrt_ops.py` adds layers to a TensorRT network. `families/` says how a checkpoint's config and tensor names map
to it.
"""
