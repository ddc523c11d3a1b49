"""Stop strings in a stream: text that may still become one is held back until that is decided."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Cuts a stream of text before the stop string that is completed first.

    The outcome does not depend on how the text was chunked: of several stop strings the one whose last
    character comes first wins, and among those that end together the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that is now known to be part of the answer; empty once `stopped`."""
        if self.stopped:
            return ""
        self._held += text
        if matches := [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]:
            _, cut = min(matches)
            self.stopped = True
        else:
            cut = len(self._held) - self._open_tail()
        shown, self._held = self._held[:cut], "" if self.stopped else self._held[cut:]
        return shown

    def flush(self) -> str:
        """What was held back, at the end of the stream: it became no stop string."""
        shown, self._held = self._held, ""
        return shown

    def _open_tail(self) -> int:
        """Length of the longest end of the held text that begins some stop string."""
        longest = min(len(self._held), max((len(stop) - 1 for stop in self._stops), default=0))
        return next(
            (n for n in range(longest, 0, -1) if any(stop.startswith(self._held[-n:]) for stop in self._stops)), 0
        )
