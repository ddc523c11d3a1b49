"""A revision: what serves, as one hash and as the frozen record that a ControllerRevision holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from trtllm_engine.contract import ContractError

from ..api import names
from ..api.deployment import LLMDeployment, LLMDeploymentSpec
from .resolution import Resolution

UNSEEN: Final[Mapping[str, Any]] = {
    "replicas": None,
    "suspend": None,
    "strategy": None,
    "hubTokenSecretRef": None,
    "engine": {"storage": None, "retention": None, "resources": None, "deadlineSeconds": None},
}
"""Fields that no serving pod sees and no engine's content depends on: changing one replaces no pod."""


def revision_hash(spec: LLMDeploymentSpec, refreshed: str | None = None) -> str:
    """10 hexadecimal digits over what serving pods come from; never over the generation.

    A field that a newer operator adds does not change it as long as nobody writes the field. `refreshed`: when
    somebody last asked to have the spec resolved anew.
    """
    return names.digest(json.dumps(_without(spec.to_json(), UNSEEN), sort_keys=True) + (refreshed or ""))


def revision_of(deployment: LLMDeployment) -> str:
    """The revision that a deployment asks for now. Raises `Refused` if its spec does not parse."""
    return revision_hash(deployment.valid_spec, refresh_of(deployment))


def refresh_of(deployment: LLMDeployment) -> str | None:
    """When somebody last asked to have the spec resolved anew; None: never."""
    return deployment.meta.annotations.get(names.REFRESH_ANNOTATION) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """Everything that was resolved for a revision. Applied again as it is, also by a newer operator."""

    hash: str
    """`revision_of` the deployment."""
    spec: Mapping[str, Any]
    """The spec as it was written, for going back to it."""
    resolution: Resolution
    serving_image: str
    template: Mapping[str, Any]
    """Pod template of the replica groups, without the ordinal's label."""
    refreshed: str | None = None
    """`refresh_of` the deployment: going back to this revision goes back to it too."""

    @property
    def port(self) -> int:
        """Of the server, as its pods have it."""
        return int(self.template["spec"]["containers"][0]["ports"][0]["containerPort"])

    def to_data(self) -> dict[str, Any]:
        """As a ControllerRevision's `data`."""
        return {
            "revision": self.hash,
            "spec": self.spec,
            "resolution": self.resolution.to_dict(),
            "servingImage": self.serving_image,
            "template": self.template,
            **({"refreshed": self.refreshed} if self.refreshed else {}),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Raises `ContractError` on anything that `to_data` of this version did not write."""
        try:
            return cls(
                hash=data["revision"],
                spec=data["spec"],
                resolution=Resolution.from_dict(data["resolution"], "resolution"),
                serving_image=data["servingImage"],
                template=data["template"],
                refreshed=data.get("refreshed"),
            )
        except (KeyError, TypeError) as error:
            raise ContractError(f"no frozen revision: {error!r}") from error


def _without(written: Mapping[str, Any], unseen: Mapping[str, Any]) -> dict[str, Any]:
    seen = {}
    for name, value in written.items():
        if name not in unseen:
            seen[name] = value
        elif unseen[name] is not None and (rest := _without(value, unseen[name])):
            seen[name] = rest
    return seen
