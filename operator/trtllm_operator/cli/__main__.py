"""`python -m trtllm_operator.cli` is `llmd`."""

from .main import run

run()
