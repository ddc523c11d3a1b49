"""How to reach the API server: from inside the cluster, or by a kubeconfig."""

from __future__ import annotations

import os
from typing import Final

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import load_incluster_config, load_kube_config

from .. import __version__
from ..api.names import MANAGER

USER_AGENT: Final = f"{MANAGER}/{__version__}"
REQUEST_TIMEOUT: Final = 30.0
"""Seconds for a whole request, watches apart."""
CONNECT_TIMEOUT: Final = 5.0
"""Seconds until a connection stands."""


async def configure(kubeconfig: str | None = None) -> Configuration:
    """Address and credentials.

    A kubeconfig that is named, here or by KUBECONFIG, wins; then the service account of the pod; then the
    kubeconfig of the home folder. Raises `kubernetes.aio.config.ConfigException` if there is none.
    """
    configuration = Configuration()
    chosen = kubeconfig or os.environ.get("KUBECONFIG")
    if chosen is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    else:
        await load_kube_config(config_file=chosen, client_configuration=configuration)  # type: ignore[no-untyped-call]
    return configuration


def api_client(configuration: Configuration) -> ApiClient:
    """A client whose requests say who sends them."""
    client = ApiClient(configuration)
    client.user_agent = USER_AGENT
    return client


class Authorization:
    """Puts a fresh token on every request of an `aiohttp.ClientSession`: a projected token rotates every hour."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        token = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token is not None:
            request.headers["Authorization"] = token
        return await handler(request)
