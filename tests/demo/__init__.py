"""The demonstration: from a plain machine to a model's answer, `python -m tests.demo`."""
