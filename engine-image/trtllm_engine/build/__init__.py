"""Building engines: toolchains, and their publication on a volume."""
