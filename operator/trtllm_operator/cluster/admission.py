"""The validating webhook: a wrong spec is refused while its author is still looking at the terminal.

It shows the very list that status would show, so nothing depends on it: the chart lets a request pass when nobody
answers. Leader and standbys serve it. It never changes an object.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from trtllm_engine.contract import ModelFacts

from ..api.deployment import LLMDeployment
from ..api.engine import LLMEngine
from ..api.problems import Problem
from ..resolve.defaults import Defaults
from ..resolve.review import Review, review_object
from ..resolve.source import check_source, source_hash
from .webhook_certificate import WebhookCertificate

logger = logging.getLogger(__name__)

PATH: Final = "/validate"
KINDS: Final[Mapping[str, type[LLMDeployment] | type[LLMEngine]]] = {
    LLMDeployment.KIND: LLMDeployment,
    LLMEngine.KIND: LLMEngine,
}
LARGEST_BODY: Final = 4 * 2**20
"""Bytes; the API server stores no object above 1.5 MiB, and a review carries two."""
WARNING_LIMIT: Final = 256
"""Characters of one warning; the API server may cut longer ones."""
WARNINGS_LIMIT: Final = 4096
"""Characters of all warnings of one answer; the API server cuts what is above it."""


class Admission:
    """Answers on `address` (`host:port`) once `certificate` is loaded."""

    def __init__(self, address: str, *, certificate: WebhookCertificate, defaults: Defaults) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._certificate = certificate
        self._defaults = defaults
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_post(PATH, self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host or None, self._port, ssl_context=self._certificate.context).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self._runner is not None, "port follows start()"
        return int(self._runner.addresses[0][1])

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            asked = json.loads(await request.read())
            uid, answer = asked["request"]["uid"], answer_of(asked["request"], self._defaults)
        except (ValueError, KeyError, TypeError) as error:
            return web.Response(status=400, text=f"no AdmissionReview of admission.k8s.io/v1: {error!r}\n")
        body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": uid, **answer}}
        return web.json_response(body)


def answer_of(request: Mapping[str, Any], defaults: Defaults) -> dict[str, Any]:
    """The `response` to one admission request, without its uid.

    A change that leaves the spec as it was always passes: labels, finalizers and deletion must work on an object
    whose spec became invalid with a newer operator.
    """
    obj, old = request["object"], request.get("oldObject") or {}
    if obj.get("spec") == old.get("spec") or obj["metadata"].get("deletionTimestamp"):
        return {"allowed": True}
    said = judge(obj, old, defaults)
    if said.problems:
        return {"allowed": False, "status": refusal(obj, said.problems)}
    told = [f"{a.path}: {a.to_value} is used: {a.reason}" for a in said.adjustments]
    return {"allowed": True, "warnings": warnings([*map(str, said.cautions), *told])}


def judge(obj: Mapping[str, Any], old: Mapping[str, Any], defaults: Defaults) -> Review:
    """Review a spec with the facts that the stored object already holds about the same model."""
    parsed = KINDS[obj["kind"]].of(obj)
    return review_object(parsed, defaults, _known_facts(parsed, old, defaults))


def refusal(obj: Mapping[str, Any], problems: Sequence[Problem]) -> dict[str, Any]:
    """A `Status` as the API server itself makes it for an invalid object: kubectl prints message and causes."""
    name = obj["metadata"].get("name", "")
    causes = [{"reason": "FieldValueInvalid", "field": p.path, "message": _without_path(p)} for p in problems]
    return {
        "status": "Failure",
        "code": 422,
        "reason": "Invalid",
        "message": "; ".join(map(str, problems)),
        "details": {"name": name, "kind": obj["kind"], "causes": causes},
    }


def warnings(texts: Sequence[str]) -> list[str]:
    """As many as fit, cut where they are too long; what was left out is counted."""
    kept: list[str] = []
    room = WARNINGS_LIMIT - WARNING_LIMIT
    for number, text in enumerate(texts):
        short = text if len(text) <= WARNING_LIMIT else text[: WARNING_LIMIT - 1] + "…"
        if len(short) > room:
            return [*kept, f"{len(texts) - number} more; see status.adjustments"]
        room -= len(short)
        kept.append(short)
    return kept


def _without_path(problem: Problem) -> str:
    return problem.message + (f"; {problem.hint}" if problem.hint else "")


def _known_facts(parsed: LLMDeployment | LLMEngine, old: Mapping[str, Any], defaults: Defaults) -> ModelFacts | None:
    if not old or parsed.spec is None or check_source(parsed.spec):
        return None
    model = KINDS[old["kind"]].of(old).status.model
    return model.facts if model is not None and model.source == source_hash(parsed.spec, defaults) else None
