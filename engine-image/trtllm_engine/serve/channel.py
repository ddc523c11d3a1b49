"""Messages between two ranks over one connection, each noticing when the other is gone.

This connection carries what the ranks decide, not what they compute. So it may be idle for days, and a rank that died
is noticed although nobody computes.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

Message = Mapping[str, Any]

BEAT_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 8.0
"""A node that vanished closes no connection; without a beat for so long it counts as dead. Below the 10 s in which a
group must end, above what a busy process may sleep."""


class Channel:
    """JSON objects, one per line. `receive` and `lost` are called by a thread of the channel's own.

    `lost` is called once at most, and not after `close`.
    """

    def __init__(
        self, connection: socket.socket, receive: Callable[[Message], None], lost: Callable[[str], None]
    ) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(SILENCE_SECONDS)
        self._connection = connection
        self._receive = receive
        self._lost = lost
        self._sending = threading.Lock()
        self._closed = threading.Event()

    def start(self) -> None:
        for target in (self._read, self._beat):
            threading.Thread(target=target, name="channel", daemon=True).start()

    def send(self, message: Message) -> None:
        """A message that can not be delivered is dropped: the reading side says that the other is gone."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._sending, contextlib.suppress(OSError):
            self._connection.sendall(line)

    def close(self) -> None:
        """End it knowingly; what was sent is still delivered, which closing before the other has read it would risk."""
        self._closed.set()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def _read(self) -> None:
        reason = "it closed the connection"
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    if message := json.loads(line):
                        self._receive(message)
        except TimeoutError:
            reason = f"nothing was heard of it for {SILENCE_SECONDS:g} s"
        except ConnectionResetError:
            pass  # closed with something of ours unread
        except (OSError, ValueError) as error:
            reason = str(error)
        self._connection.close()
        if not self._closed.is_set():
            self._closed.set()
            self._lost(reason)

    def _beat(self) -> None:
        while not self._closed.wait(BEAT_SECONDS):
            self.send({})
