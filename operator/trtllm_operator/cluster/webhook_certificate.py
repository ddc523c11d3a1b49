"""Keeps the webhook's certificate: one Secret that leader and standbys load, made and renewed by the leader.

The leader also writes the certificate into the webhook's configuration, by which the API server knows us. Around a
renewal that bundle holds the old certificate too, because a standby loads the new one only at its next look.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import tempfile
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from ..reconcile.store import Object
from .certificate import Certificate
from .client import Client
from .errors import ClusterError

logger = logging.getLogger(__name__)

SOON: Final = 1.0
"""Seconds until the next look while there is no certificate yet."""
LATER: Final = 300.0
"""Seconds between two looks at rest; far less than a certificate's last third."""
PREVIOUS: Final = "previous.crt"
"""Key of the Secret that holds the certificate before this one."""


class WebhookCertificate:
    """Certificate for the Service `service` of `namespace`; `configuration` names the webhook that trusts it."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        service: str,
        now: Callable[[], datetime],
        is_leader: Callable[[], bool],
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = service
        # localhost is for whoever looks from the pod itself, or through a port-forward.
        self._dns = (f"{service}.{namespace}.svc", "localhost")
        self._now = now
        self._is_leader = is_leader
        self._loaded: bytes | None = None
        self.context: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2

    @property
    def is_loaded(self) -> bool:
        """Whether connections can be answered."""
        return self._loaded is not None

    async def keep(self) -> None:
        """Look again and again; a failed look is told and tried again. Never returns."""
        while True:
            try:
                await self.look()
            except ClusterError as error:
                logger.warning("the admission webhook's certificate: %s", error)
            await asyncio.sleep(LATER if self.is_loaded else SOON)

    async def look(self) -> None:
        """Load what the Secret holds; as leader, first make what is missing and tell the API server."""
        secret = await self._client.get("Secret", self._namespace, self._name)
        found = _read(secret) if secret else None
        if self._is_leader():
            fault = "there is none" if found is None else found.fault(self._dns, self._now())
            if fault is not None:
                logger.info("making a certificate for the admission webhook: %s", fault)
                found, secret = await self._make(secret, found)
            await self._introduce(found, secret)
        if found is not None and found.certificate != self._loaded and found.is_usable:
            self._load(found)

    async def _make(
        self, secret: Object | None, before: Certificate | None
    ) -> tuple[Certificate | None, Object | None]:
        """A new certificate in the Secret; if somebody else was faster, theirs is read at the next look."""
        made = Certificate.make(self._dns, self._now())
        data = {"tls.crt": made.certificate, "tls.key": made.key, PREVIOUS: before.certificate if before else b""}
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": self._namespace, "name": self._name},
            "type": "kubernetes.io/tls",
            "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
        }
        if secret is None:
            written = await self._client.create(manifest)
        else:
            written = await self._client.update({**secret, "data": manifest["data"]})
        return (made, written) if written is not None else (before, secret)

    async def _introduce(self, found: Certificate | None, secret: Object | None) -> None:
        """Put the certificate into the webhook's configuration, if the webhook is installed and does not have it."""
        installed = await self._client.get("ValidatingWebhookConfiguration", "", self._name)
        if installed is None or found is None or secret is None:
            return
        previous = base64.b64decode(secret["data"].get(PREVIOUS, ""))
        bundle = base64.b64encode(found.certificate + previous).decode()
        if all(_bundle(webhook) == bundle for webhook in installed.get("webhooks", ())):
            return
        webhooks = [
            {**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}} for hook in installed["webhooks"]
        ]
        await self._client.update({**installed, "webhooks": webhooks})

    def _load(self, found: Certificate) -> None:
        # The ssl module reads files only; these are ours alone and gone again at once.
        with tempfile.NamedTemporaryFile() as certificate, tempfile.NamedTemporaryFile() as key:
            for file, content in ((certificate, found.certificate), (key, found.key)):
                file.write(content)
                file.flush()
            self.context.load_cert_chain(certificate.name, key.name)
        self._loaded = found.certificate


def _read(secret: Object) -> Certificate | None:
    data = secret.get("data") or {}
    try:
        return Certificate(certificate=base64.b64decode(data["tls.crt"]), key=base64.b64decode(data["tls.key"]))
    except (KeyError, ValueError):
        return None


def _bundle(webhook: dict[str, Any]) -> str | None:
    bundle: str | None = webhook["clientConfig"].get("caBundle")
    return bundle
