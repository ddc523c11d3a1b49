"""What a user of the harness can mend: printed without a traceback by the command line."""

from __future__ import annotations


class HarnessError(Exception):
    """Says where, what, and what to do."""
