"""A Kubernetes operator that builds TensorRT engines and rolls out LLM servers."""

__version__ = "0.1.0"
