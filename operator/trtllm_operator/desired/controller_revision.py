"""The record of a revision: what was resolved for a spec, immutable."""

from __future__ import annotations

from ..api import names
from ..api.deployment import LLMDeployment
from ..resolve.defaults import Defaults
from ..resolve.resolution import Resolution
from ..resolve.revision import Frozen, refresh_of, revision_of
from .metadata import Manifest, owned
from .statefulset import pod_template, serving_image


def freeze(deployment: LLMDeployment, resolution: Resolution, defaults: Defaults) -> Frozen:
    """Render the revision of the deployment's spec once; what comes later is made from this record alone."""
    spec = deployment.valid_spec
    return Frozen(
        hash=revision_of(deployment),
        spec=spec.to_json(),
        resolution=resolution,
        serving_image=serving_image(deployment, resolution, defaults),
        template=pod_template(deployment, resolution, defaults),
        refreshed=refresh_of(deployment),
    )


def controller_revision(deployment: LLMDeployment, frozen: Frozen) -> Manifest:
    """The hash is in the name. `revision` grows with the generation, for tools that sort by it."""
    key = names.key_label(frozen.resolution.engine_key)
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": owned(
            deployment,
            names.revision(deployment.meta.name, frozen.hash),
            {names.REVISION_LABEL: frozen.hash, names.KEY_LABEL: key},
        ),
        "revision": max(deployment.meta.generation, 1),
        "data": frozen.to_data(),
    }
