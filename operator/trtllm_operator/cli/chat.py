"""`llmd chat`: talk to a deployment through a port-forward of kubectl's, which may go where HTTP from here may not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, TextIO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from ..api.deployment import LLMDeployment
from ..api.names import service
from .cluster import UserClient, namespace_of, with_cluster
from .failure import BadInput
from .output import Screen, Style
from .picture import deployment_object

FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
ANSWER_TIMEOUT: Final = 600
"""Seconds between two pieces of an answer."""
DATA: Final = b"data: "
DONE: Final = "[DONE]"

Message = dict[str, str]


def chat(name: str, *, system: str | None, namespace: str | None, kubeconfig: str | None) -> int:
    """Until the input ends. Raises `BadInput`."""
    where = namespace_of(namespace, kubeconfig)

    async def read(client: UserClient) -> LLMDeployment:
        return LLMDeployment.of(await deployment_object(client, where, name))

    status = with_cluster(kubeconfig, read).status
    port = urlsplit(status.url or "").port
    if not status.ready_replicas or port is None:
        raise BadInput(f"no replica of {name} is ready; see: llmd status {name}")
    with forwarded(name, port, where, kubeconfig) as local:
        server = f"http://127.0.0.1:{local}/v1"
        messages = [{"role": "system", "content": system}] if system else []
        talk(server, served(server), messages, sys.stdin, sys.stdout)
    return 0


@contextmanager
def forwarded(name: str, port: int, namespace: str, kubeconfig: str | None) -> Iterator[int]:
    """A port of this machine that leads to the deployment's Service. Raises `BadInput`."""
    if shutil.which("kubectl") is None:
        raise BadInput("kubectl is not in PATH: it forwards the port")
    command = ["kubectl", *(["--kubeconfig", kubeconfig] if kubeconfig else []), "--namespace", namespace]
    command += ["port-forward", "--address", "127.0.0.1", f"service/{service(name)}", f":{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            said = FORWARDING.search(process.stdout.readline())
            if said is None:
                process.terminate()
                raise BadInput(f"kubectl port-forward: {process.stderr.read().strip() or 'ended without a word'}")
            yield int(said[1])
        finally:
            process.terminate()


def served(server: str) -> str:
    """What the server calls its model: the spec may be ahead of what serves. Raises `BadInput`."""
    with _asked(f"{server}/models") as response:
        name: str = json.loads(response.read())["data"][0]["id"]
    return name


def talk(server: str, model: str, messages: list[Message], said: TextIO, stream: TextIO) -> None:
    """A line of `said` is a turn; the answer appears as it is made. Raises `BadInput`."""
    screen = Screen(stream)
    prompt = screen.style("> ", Style.STRONG) if screen.terminal else ""
    while True:
        stream.write(prompt)
        stream.flush()
        line = said.readline()
        if not line:
            return
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line.strip()})
        answer = ""
        for piece in answered(server, {"model": model, "messages": messages, "stream": True}):
            answer += piece
            stream.write(piece)
            stream.flush()
        stream.write("\n")
        messages.append({"role": "assistant", "content": answer})


def answered(server: str, body: dict[str, Any]) -> Iterator[str]:
    """The pieces of a streamed answer. Raises `BadInput`."""
    with _asked(f"{server}/chat/completions", body) as response:
        yield from pieces(response)


@contextmanager
def _asked(url: str, body: dict[str, Any] | None = None) -> Iterator[IO[bytes]]:
    """The server's answer. Raises `BadInput` with its own words if it is none."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=ANSWER_TIMEOUT) as response:
            yield response
    except HTTPError as error:
        raise BadInput(f"the server answers {error.code}: {error.read(2000).decode(errors='replace')}") from error
    except OSError as error:
        raise BadInput(f"the server does not answer: {error}; see: llmd logs") from error


def pieces(lines: Iterable[bytes]) -> Iterator[str]:
    """What is new in each event of the stream."""
    for line in lines:
        if not line.startswith(DATA):
            continue
        text = line.removeprefix(DATA).decode().strip()
        if text == DONE:
            return
        event = json.loads(text)
        if "error" in event:
            raise BadInput(f"the server gave up: {event['error'].get('message', event['error'])}")
        for choice in event.get("choices") or ():
            yield choice.get("delta", {}).get("content") or ""
