"""What the API server answers when it does not do what it was asked."""

from __future__ import annotations

import json
from dataclasses import dataclass


class ClusterError(Exception):
    """The API server did not do it; trying again later may help."""


class Unreachable(ClusterError):
    """No answer: refused, cut or too late. The request may have been carried out all the same."""


class NotLeading(ClusterError):
    """A write was stopped because another operator may hold the lease by now."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of a Status' `details.causes`."""

    reason: str
    field: str
    message: str


class ApiError(ClusterError):
    """An answer with an error status."""

    def __init__(self, request: str, status: int, reason: str, message: str, causes: tuple[Cause, ...] = ()) -> None:
        super().__init__(f"{request}: {status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes


class NotFound(ApiError):
    """404."""


class Forbidden(ApiError):
    """403: a missing right, a quota, or an admission plugin."""


class Conflict(ApiError):
    """409: another version, another UID, or a field of another manager."""


class Gone(ApiError):
    """410: the resource version or the continue token is too old."""


_BY_STATUS = {403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone}


def error_of(request: str, status: int, body: bytes) -> ApiError:
    """The exception for an answer; `request` says what was asked, for the reader."""
    try:
        answer = json.loads(body)
        details = answer.get("details") or {}
        causes = tuple(
            Cause(c.get("reason", ""), c.get("field", ""), c.get("message", "")) for c in details.get("causes") or ()
        )
        reason, message = answer.get("reason", ""), answer.get("message", "")
    except (ValueError, AttributeError):
        # A proxy in between answers in its own words.
        causes, reason, message = (), "", body[:200].decode(errors="replace")
    return _BY_STATUS.get(status, ApiError)(request, status, reason, message, causes)
