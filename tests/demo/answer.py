"""Ask the deployment a question, the way a client would."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from openai import OpenAI

from tests.demo.kubectl import Kubectl
from tests.demo.steps import Failure

QUESTION: Final = "What is the capital of France?"
DEVICE_HEADER: Final = "x-trtllm-device"
"""The server's response header that names the device which computed the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    question: str
    text: str
    device: str
    fingerprint: str
    tokens: int
    seconds: float


def ask(kubectl: Kubectl, namespace: str, service: str, model: str, port: int = 8000) -> Answer:
    """Ask `QUESTION` with the official client, through the Service."""
    with forwarded(kubectl, namespace, service, port) as local:
        client = OpenAI(base_url=f"http://127.0.0.1:{local}/v1", api_key="none", timeout=120, max_retries=3)
        response = client.chat.completions.with_raw_response.create(
            model=model, messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=48
        )
        completion = response.parse()
    text = (completion.choices[0].message.content or "").strip()
    if not text:
        raise Failure(f"model {model} answered nothing to {QUESTION!r}")
    return Answer(
        question=QUESTION,
        text=text,
        device=response.headers.get(DEVICE_HEADER, "unknown"),
        fingerprint=completion.system_fingerprint or "",
        tokens=completion.usage.completion_tokens if completion.usage else 0,
        seconds=round(response.elapsed.total_seconds(), 2),
    )


@contextlib.contextmanager
def forwarded(kubectl: Kubectl, namespace: str, service: str, port: int) -> Iterator[int]:
    """A port of this machine that leads to the Service's, while the context lasts."""
    process = subprocess.Popen(
        kubectl.argv("port-forward", "-n", namespace, f"service/{service}", f":{port}", "--address=127.0.0.1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    # Without this, a kubectl that says nothing would hold us for ever.
    watchdog = threading.Timer(30, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if match := re.search(r"127\.0\.0\.1:(\d+) ->", line):
                watchdog.cancel()
                yield int(match[1])
                return
        raise Failure(f"kubectl port-forward service/{service}: {''.join(said).strip() or 'ended without a word'}")
    finally:
        watchdog.cancel()
        process.terminate()
        process.wait(10)
