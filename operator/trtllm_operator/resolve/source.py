"""Where a model is."""

from __future__ import annotations

import json
import posixpath
import re
from typing import Final

from trtllm_engine.contract import MODELS_MOUNT, ModelSource

from ..api import names
from ..api.conditions import Reason
from ..api.problems import Problem, Refused
from . import projection
from .defaults import Defaults
from .projection import Spec

REPOSITORY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
"""`owner/name` as the hub spells it; both become folder names."""
REVISION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,127}")


def is_path(model: str) -> bool:
    """Whether the model is a folder on `modelVolume` and no repository of the hub."""
    return model.startswith("/")


def check_source(spec: Spec) -> list[Problem]:
    """Whether `model`, `revision` and `modelVolume` name one place, inside of what the pod may see."""
    return _check_path(spec) if is_path(spec.model) else _check_repository(spec)


def model_source(spec: Spec, defaults: Defaults) -> ModelSource:
    """Where the pods find the model. Raises `Refused` if `check_source` has something to say."""
    if problems := check_source(spec):
        raise Refused(problems)
    if is_path(spec.model):
        return ModelSource(path=posixpath.normpath(spec.model))
    return ModelSource(repo=spec.model, revision=spec.revision, endpoint=defaults.hub_endpoint)


def source_hash(spec: Spec, defaults: Defaults) -> str:
    """Changes when a fetch Job could find something else: the source, its volume, the token, the image that looks, and
    whether it looks at the weights.

    The image counts because the toolchain versions that it reports do. Raises `Refused` like `model_source`.
    """
    asked = {
        "source": model_source(spec, defaults).to_dict(),
        "claim": spec.model_volume.persistent_volume_claim.claim_name if spec.model_volume else None,
        "token": spec.hub_token_secret_ref.to_json() if spec.hub_token_secret_ref else None,
        "image": projection.image(spec, defaults),
        **({"loadFormat": load_format} if (load_format := projection.load_format(spec)) else {}),
    }
    return names.digest(json.dumps(asked, sort_keys=True), 16)


def _check_path(spec: Spec) -> list[Problem]:
    problems = []
    inside = posixpath.normpath(spec.model).startswith(MODELS_MOUNT + "/") and ".." not in spec.model.split("/")
    if not inside or not spec.model.isprintable():
        problems.append(
            Problem(
                path="spec.model",
                code=Reason.INVALID_SPEC,
                message=f"{spec.model!r} is no path below {MODELS_MOUNT}/",
                hint=f"modelVolume is mounted at {MODELS_MOUNT}; name a folder in it, without '..'",
            )
        )
    if spec.model_volume is None:
        problems.append(
            Problem(
                path="spec.modelVolume",
                code=Reason.INVALID_SPEC,
                message=f"is required, because the model is the path {spec.model!r}",
                hint="name the claim that holds the model: modelVolume: {persistentVolumeClaim: {claimName: ...}}",
            )
        )
    if spec.revision is not None:
        problems.append(
            Problem(
                path="spec.revision",
                code=Reason.INVALID_SPEC,
                message=f"{spec.revision!r} has no meaning for a model on a volume",
                hint="remove it, or name a repository of the hub in spec.model",
            )
        )
    return problems


def _check_repository(spec: Spec) -> list[Problem]:
    if not REPOSITORY.fullmatch(spec.model):
        # What else is wrong depends on which of the two it was meant to be.
        return [
            Problem(
                path="spec.model",
                code=Reason.INVALID_SPEC,
                message=f"{spec.model!r} is no repository of the hub (owner/name) and no path below {MODELS_MOUNT}/",
                hint=f"for example HuggingFaceTB/SmolLM2-135M-Instruct, or {MODELS_MOUNT}/SmolLM2-135M-Instruct",
            )
        ]
    problems = []
    if spec.revision is not None and (not REVISION.fullmatch(spec.revision) or ".." in spec.revision):
        problems.append(
            Problem(
                path="spec.revision",
                code=Reason.INVALID_SPEC,
                message=f"{spec.revision!r} is no branch, tag or commit",
                hint="letters, digits, '.', '_', '-' and '/'",
            )
        )
    if spec.model_volume is not None:
        problems.append(
            Problem(
                path="spec.modelVolume",
                code=Reason.INVALID_SPEC,
                message=f"has no meaning for {spec.model!r}: models of the hub go to the namespace's cache",
                hint=f"remove it, or name a path below {MODELS_MOUNT}/ in spec.model",
            )
        )
    return problems
