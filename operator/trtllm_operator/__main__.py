"""`python -m trtllm_operator`."""

import sys

from .main import run

sys.exit(run())
