"""The OpenAI-compatible server over one engine: continuous batching, streaming, health, metrics, draining."""
