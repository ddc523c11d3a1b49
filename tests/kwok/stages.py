"""A test double: what becomes of our pods on nodes that have no kubelet. No image is pulled and nothing computes.

Fetch and build pods end well with the result that a real one would report; servers run and are ready at once, except
those of the image `BROKEN`, which have crashed as often as any budget allows.
"""

from __future__ import annotations

import json
from typing import Any, Final

from tests.builders import VERSIONS, smollm2_facts
from tests.cluster.fake_nodes import stage
from trtllm_engine.contract import Result
from trtllm_operator.api.names import ROLE_LABEL

BROKEN: Final = "registry.example/cannot-start:1"
ROLE: Final = f'.metadata.labels["{ROLE_LABEL}"]'
NEW: Final = (".status.podIP", "DoesNotExist", ())
LIVING: Final = (".metadata.deletionTimestamp", "DoesNotExist", ())
IMAGE: Final = ".spec.containers.[].image"

LARGE: Final = {
    "hidden_size": 4096,
    "num_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tied_embeddings": False,
    "parameters": 8_030_261_248,
    "weight_bytes": 16_060_522_496,
}
"""A model whose heads and layers sixteen ranks can share."""

STARTED: Final = """
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ Now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ Now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state: {running: {startedAt: {{ Now | Quote }}}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}
phase: Running
startTime: {{ Now | Quote }}
"""
CRASHED: Final = """
conditions:
- {type: Ready, status: "False", lastTransitionTime: {{ Now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  restartCount: 100
  state: {waiting: {reason: CrashLoopBackOff}}
  lastState: {terminated: {exitCode: 1, reason: Error, message: no such command, finishedAt: {{ Now | Quote }}}}
{{ end }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}
phase: Running
startTime: {{ Now | Quote }}
"""


def _ended(result: Result) -> str:
    return f"""
containerStatuses:
{{{{ range .spec.containers }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  ready: false
  restartCount: 0
  state:
    terminated:
      exitCode: 0
      reason: Completed
      finishedAt: {{{{ Now | Quote }}}}
      message: {json.dumps(result.to_json())}
{{{{ end }}}}
podIP: {{{{ PodIPWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace | Quote }}}}
phase: Succeeded
startTime: {{{{ Now | Quote }}}}
"""


def stages() -> list[dict[str, Any]]:
    """For kwok."""
    fetched = Result(ok=True, facts=smollm2_facts(**LARGE), versions=VERSIONS)
    built = Result(ok=True, files=1, bytes=2**30, seconds={"weights": 1.0})
    return [
        stage("fetched", "Pod", [(ROLE, "In", ["fetch"]), NEW, LIVING], statusTemplate=_ended(fetched)),
        stage("built", "Pod", [(ROLE, "In", ["build"]), NEW, LIVING], statusTemplate=_ended(built)),
        stage(
            "serving",
            "Pod",
            [(ROLE, "In", ["server"]), (IMAGE, "NotIn", [BROKEN]), NEW, LIVING],
            statusTemplate=STARTED,
        ),
        stage(
            "crashed", "Pod", [(ROLE, "In", ["server"]), (IMAGE, "In", [BROKEN]), NEW, LIVING], statusTemplate=CRASHED
        ),
        stage("gone", "Pod", [(".metadata.deletionTimestamp", "Exists", ())], finalizers={"empty": True}, delete=True),
    ]
