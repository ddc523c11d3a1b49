"""The known ways in which a pod's work fails."""

from __future__ import annotations

from trtllm_engine.contract import ExitCode, Result, Step


class Failure(Exception):
    """A failure with a reason that a user can act on; it becomes the pod's exit code and result.

    `field` names what is at fault: a field of the request (`model`, `args.dtype`), or a file of the model or the
    engine. `log` is the first failing line of a library, where one said more than the message.
    """

    def __init__(self, code: ExitCode, message: str, *, field: str | None = None, log: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.log = log

    def result(self, step: Step | None) -> Result:
        """The result of a pod that failed with this while doing `step`."""
        return Result(
            ok=False, code=int(self.code), step=step, field=self.field, message=self.message, log=self.log
        ).cut()
