"""Every name, label and annotation that we put on an object, in one place.

Derived names are short, stable and never meet: an LLMDeployment's own name is at most `NAME_LIMIT`
characters and no derived name of one kind can equal one of another owner, because the suffixes that
follow a user's name are fixed words or hashes.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

GROUP: Final = "inference.trtllm-operator.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
MANAGER: Final = "trtllm-operator"
"""Field manager, `app.kubernetes.io/managed-by` and the prefix of the user agent."""

NAME_LIMIT: Final = 40
"""Characters of an LLMDeployment's name: StatefulSets break above 52 (the controller-revision-hash label)."""

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
DEPLOYMENT_LABEL: Final = f"{GROUP}/deployment"
ENGINE_LABEL: Final = f"{GROUP}/engine"
KEY_LABEL: Final = f"{GROUP}/engine-key"
REVISION_LABEL: Final = f"{GROUP}/revision"
ORDINAL_LABEL: Final = f"{GROUP}/ordinal"
POD_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
"""Set by the StatefulSet controller; "0" is the leader of a group."""
ROLE_LABEL: Final = f"{GROUP}/role"
"""`fetch`, `build` or `server`."""
REQUEST_ANNOTATION: Final = f"{GROUP}/request"
"""On pod templates: the request of `trtllm_engine.contract`, mounted as a file by the downward API."""
RETRY_ANNOTATION: Final = f"{GROUP}/retry"
"""On an LLMDeployment: a moment (RFC 3339). What was given up before it is tried once more."""
REFRESH_ANNOTATION: Final = f"{GROUP}/refresh"
"""On an LLMDeployment: a moment (RFC 3339). What was frozen before it is resolved anew."""
REBUILD_ANNOTATION: Final = f"{GROUP}/rebuild"
"""On a build Job: the number of the rebuild of corrupt files; the first build has none."""
RETENTION_ANNOTATION: Final = f"{GROUP}/retention"
"""On an engine's claim: the retention that its LLMEngine asked for, which may be gone by then."""
UNREFERENCED_ANNOTATION: Final = f"{GROUP}/unreferenced-since"
"""On an engine's claim without an LLMEngine: since when nobody needs it (RFC 3339); empty: somebody does again."""
INDEX_ANNOTATION: Final = "batch.kubernetes.io/job-completion-index"
SELECTOR: Final = f"{MANAGED_BY}={MANAGER}"
"""Selects our children at the API server."""


def short(key: str) -> str:
    """The part of an engine key (64 hex digits) that people see."""
    return key[:12]


def key_label(key: str) -> str:
    """Value of KEY_LABEL: a label holds 63 characters, the key has 64. The same digits as in the claim's name."""
    return key[:16]


def owner_label(owner: str) -> str:
    """Value of ENGINE_LABEL: an LLMEngine's name may have 253 characters, a label 63."""
    return _stem(owner, 63)


def digest(text: str, length: int = 10) -> str:
    """A short stable hash for names; hexadecimal, so a legal label."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def fetch_job(owner: str, source_hash: str) -> str:
    """Job that fetches or inspects the model of an LLMDeployment or LLMEngine. `owner` may have 253 characters."""
    return f"{_stem(owner, 40)}-fetch-{source_hash[:8]}"


def engine_claim(key: str) -> str:
    """Claim that holds the engine with this key; shared by all who ask for the key in the namespace."""
    return f"engine-{key[:16]}"


def build_job(key: str) -> str:
    """I1 by construction: the name holds the key, so a namespace has one build Job per key."""
    return f"build-{key[:16]}"


def cache_claim() -> str:
    """The namespace's cache of hub models."""
    return "trtllm-model-cache"


def engine(model: str, key: str) -> str:
    """Name of an LLMEngine that the operator makes: the model's last path segment and twelve digits of the key."""
    stem = re.sub(r"[^a-z0-9]+", "-", model.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-")
    return f"{_stem(stem or 'model', 40)}-{short(key)}"


def group(deployment: str, ordinal: int) -> str:
    """StatefulSet of one model replica."""
    return f"{deployment}-{ordinal}"


def headless_service(deployment: str) -> str:
    """Publishes the address of every rank's pod, ready or not."""
    return f"{deployment}-ranks"


def service(deployment: str) -> str:
    """What clients talk to: the leaders of ready groups."""
    return deployment


def disruption_budget(deployment: str) -> str:
    """PodDisruptionBudget of a deployment's servers."""
    return deployment


def revision(deployment: str, revision_hash: str) -> str:
    """ControllerRevision that freezes what was resolved for a spec."""
    return f"{deployment}-{revision_hash}"


def _stem(name: str, limit: int) -> str:
    """The name itself, or its beginning and a hash of it all, in at most `limit` characters."""
    if len(name) <= limit and "." not in name:
        return name
    return f"{name[: limit - 9].replace('.', '-').rstrip('-')}-{digest(name, 8)}"
