"""Writes the page of rules: `python -m trtllm_operator.resolve.rules DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

from .reference import FILE, page

if __name__ == "__main__":
    (Path(sys.argv[1]) / FILE).write_text(page())
