"""What runs inside the pods: fetch, inspect, build, verify and serve an LLM on TensorRT."""

__version__ = "0.1.0"
