"""What a person does about each reason: how conditions show it, who must act, what to look at, what to do.

Commands are for the object's namespace. What stands in capitals is to be filled in: NAME is the LLMDeployment, ENGINE
an LLMEngine; the condition's message says the other names.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from . import names
from .conditions import Reason


class Situation(enum.Enum):
    """Kinds of situations, in the order in which an object meets them when all goes well."""

    DONE = "Done"
    WORKING = "Work goes on"
    WAITING = "It waits for something that is missing"
    REFUSED = "It is refused"
    FAILED = "It was tried, and failed"


class Shown(enum.Enum):
    """The conditions that carry a reason."""

    VALID = "SpecValid=True"
    SETTLED = "Ready=True"
    MOVING = "Ready=False, Reconciling=True"
    STALLED = "Ready=False, Stalled=True"


class Actor(enum.Enum):
    """Who must do something before it goes on."""

    NOBODY = "nobody"
    AUTHOR = "whoever writes the spec"
    ADMINISTRATOR = "whoever runs the cluster"
    EITHER = "whoever writes the spec, or runs the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guidance:
    """What there is to know about one reason beyond its meaning."""

    situation: Situation
    shown: tuple[Shown, ...]
    actor: Actor
    look: tuple[str, ...]
    """Commands; two are enough to get from the reason to the cause."""
    remedy: str


DESCRIBE: Final = "kubectl describe llmd NAME"
DESCRIBE_ENGINE: Final = "kubectl describe llme ENGINE"
PODS: Final = f"kubectl get pods -l {names.DEPLOYMENT_LABEL}=NAME -o wide"
PODS_IN_FULL: Final = f"kubectl describe pods -l {names.DEPLOYMENT_LABEL}=NAME"
BUILD_LOG: Final = "kubectl logs job/JOB"


def _done(remedy: str, *shown: Shown, actor: Actor = Actor.NOBODY) -> Guidance:
    return Guidance(situation=Situation.DONE, shown=shown, actor=actor, look=(DESCRIBE,), remedy=remedy)


def _working(look: tuple[str, ...], remedy: str, actor: Actor = Actor.NOBODY) -> Guidance:
    return Guidance(situation=Situation.WORKING, shown=(Shown.MOVING,), actor=actor, look=look, remedy=remedy)


def _waiting(actor: Actor, look: tuple[str, ...], remedy: str) -> Guidance:
    return Guidance(situation=Situation.WAITING, shown=(Shown.MOVING,), actor=actor, look=look, remedy=remedy)


def _refused(look: tuple[str, ...], remedy: str, actor: Actor = Actor.AUTHOR) -> Guidance:
    return Guidance(situation=Situation.REFUSED, shown=(Shown.STALLED,), actor=actor, look=look, remedy=remedy)


def _failed(actor: Actor, look: tuple[str, ...], remedy: str) -> Guidance:
    return Guidance(situation=Situation.FAILED, shown=(Shown.STALLED,), actor=actor, look=look, remedy=remedy)


_AGAIN: Final = "Then `kubectl delete llmengine ENGINE`: a deployment that needs it asks for it anew."

GUIDE: Final[Mapping[Reason, Guidance]] = {
    Reason.AS_EXPECTED: _done("Nothing.", Shown.SETTLED),
    Reason.ACCEPTED: _done("Nothing. Whether it runs is what `Ready` says.", Shown.VALID),
    Reason.SCALED_TO_ZERO: _done(
        "Nothing. `kubectl scale llmd/NAME --replicas=1` starts a replica from the engine that is there.",
        Shown.SETTLED,
    ),
    Reason.SUSPENDED: _done(
        "Nothing; set `spec.suspend` to false to serve again. `Reconciling` only while pods are going.",
        Shown.SETTLED,
        Shown.MOVING,
    ),
    Reason.FETCHING_MODEL: _working(
        (DESCRIBE, f"kubectl logs -f -l {names.ROLE_LABEL}=fetch,{names.DEPLOYMENT_LABEL}=NAME"),
        "Wait: the message shows the percentage. No GPU is held meanwhile.",
    ),
    Reason.BUILDING_ENGINE: _working(
        (DESCRIBE_ENGINE, "kubectl logs -f job/JOB"),
        "Wait: the column `ENGINE` shows the percentage. What served before goes on serving.",
    ),
    Reason.ROLLING_OUT: _working(
        (DESCRIBE, PODS),
        "Wait: a replica counts when its engine is loaded. The message says why it goes one by one, if it does.",
    ),
    Reason.PAUSED: _working(
        (DESCRIBE,),
        "Set `spec.strategy.paused` to false. Until then what serves is kept running and can be scaled.",
        Actor.AUTHOR,
    ),
    Reason.DELETING: _working(
        (DESCRIBE, "kubectl get namespace NAMESPACE"),
        "Wait until what is being deleted is gone: the namespace, or an object of a deleted owner of the same name.",
    ),
    Reason.WAITING_FOR_VOLUME: _waiting(
        Actor.EITHER,
        ("kubectl get pvc", "kubectl describe pvc CLAIM"),
        "Make the claim that `spec.modelVolume` names, or name another. A claim that stays Pending wants a storage "
        "class or space. A ReadWriteOnce volume serves on one node: for several, use ReadWriteMany in "
        "`spec.engine.storage`.",
    ),
    Reason.WAITING_FOR_GPUS: _waiting(
        Actor.EITHER,
        (DESCRIBE, "kubectl get nodes -o wide"),
        "Free GPUs, add nodes, or ask for fewer: the message says how many are needed, how many are free and who holds "
        "them. It goes on by itself as soon as there are enough; no deadline runs.",
    ),
    Reason.WAITING_FOR_NODE: _waiting(
        Actor.EITHER,
        (DESCRIBE, "kubectl describe nodes"),
        "The message carries the scheduler's words. Mend `spec.scheduling` (selector, tolerations) or the requests in "
        "`spec.serving.resources` and `spec.engine.resources`, or add nodes.",
    ),
    Reason.WAITING_FOR_SECRET: _waiting(
        Actor.AUTHOR,
        (DESCRIBE, "kubectl get secrets"),
        "Create the Secret with the key that the message names, or mend `spec.hubTokenSecretRef`.",
    ),
    Reason.WAITING_FOR_QUOTA: _waiting(
        Actor.ADMINISTRATOR,
        ("kubectl describe resourcequota", PODS),
        "Raise the quota, or free some of it. A scheduling gate is lifted by whoever set it: for Kueue, look at the "
        "namespace's LocalQueue.",
    ),
    Reason.WAITING_FOR_BUILD_SLOT: _waiting(
        Actor.NOBODY,
        (DESCRIBE_ENGINE, f"kubectl get jobs -A -l {names.ROLE_LABEL}=build"),
        "Wait: the message shows the place in the queue, first come, first served. An administrator can allow more "
        "builds at the same time (`defaults.buildsPerNamespace` and `defaults.buildsPerCluster` of the chart).",
    ),
    Reason.IMAGE_PULL_FAILING: _waiting(
        Actor.EITHER,
        (DESCRIBE, PODS_IN_FULL),
        "Mend the image's name, or give the pods the right to pull it: `spec.podTemplate.imagePullSecrets`, or "
        "`imagePullSecrets` of the chart. The kubelet tries again by itself.",
    ),
    Reason.INVALID_SPEC: _refused(
        (DESCRIBE, "llmd validate FILE"),
        "Change the field that the message names; it says what is allowed. What served before goes on serving.",
    ),
    Reason.UNSUPPORTED_BY_TOOLCHAIN: _refused(
        (DESCRIBE, "llmd validate FILE"),
        "Remove the field, or choose the toolchain that the message names. The table of toolchains and fields is in "
        "the [rules](rules.md).",
    ),
    Reason.AMBIGUOUS_GPU: _refused(
        (DESCRIBE, "kubectl get nodes -L nvidia.com/gpu.product"),
        'Write `target.computeCapability`, in quotes ("8.9"): the engine is for one kind of GPU.',
    ),
    Reason.MODEL_MISMATCH: _refused(
        (DESCRIBE, "llmd validate FILE --model-config FOLDER"),
        "Change the field that the message names to a value that the model allows, or use another model.",
    ),
    Reason.DOES_NOT_FIT_MEMORY: _refused(
        (DESCRIBE, "llmd plan FILE --model-config FOLDER --nodes NODES"),
        "The message has the arithmetic and what would fit: more ranks, a smaller batch, shorter sequences. Sizes that "
        "you do not write are chosen so that they fit. An administrator can make the refusal a warning "
        "(`defaults.memoryFit` of the chart).",
    ),
    Reason.NAME_CONFLICT: _refused(
        (DESCRIBE,),
        "Rename this object, or the other one: what the operator did not make is never touched.",
    ),
    Reason.FORBIDDEN: _refused(
        (DESCRIBE, "kubectl auth can-i --list --as=system:serviceaccount:trtllm-operator-system:trtllm-operator"),
        "Grant the right, or change the policy that the message quotes. It is tried again every few seconds.",
        Actor.ADMINISTRATOR,
    ),
    Reason.MODEL_NOT_FOUND: _failed(
        Actor.AUTHOR,
        (DESCRIBE, BUILD_LOG),
        "Mend `spec.model` or `spec.revision`, or put the folder on the claim. Then `kubectl delete job JOB`, if the "
        "spec stays as it is.",
    ),
    Reason.MODEL_FORBIDDEN: _failed(
        Actor.AUTHOR,
        (DESCRIBE, "kubectl get secrets"),
        "Name a token in `spec.hubTokenSecretRef` that may read the repository (a gated model must be accepted on the "
        "hub first). Then `kubectl delete job JOB`.",
    ),
    Reason.FETCH_FAILED: _failed(
        Actor.EITHER,
        (DESCRIBE, BUILD_LOG),
        "Mend what the message says (network, mirror, proxy, files of the model). Then `kubectl delete job JOB`: it "
        "goes on where it ended. How long a fetch may take is `defaults.fetchDeadlineSeconds` of the chart.",
    ),
    Reason.BUILD_FAILED: _failed(
        Actor.AUTHOR,
        (DESCRIBE_ENGINE, BUILD_LOG),
        f"The message carries the first failing line. Change the spec, and another engine is built; or mend the cause. "
        f"{_AGAIN}",
    ),
    Reason.BUILD_OUT_OF_MEMORY: _failed(
        Actor.AUTHOR,
        (DESCRIBE_ENGINE, "kubectl describe job JOB"),
        "Set `spec.engine.resources.limits.memory` (of an LLMEngine `spec.resources.limits.memory`) to what the "
        f"message proposes. {_AGAIN}",
    ),
    Reason.BUILD_DEADLINE_EXCEEDED: _failed(
        Actor.AUTHOR,
        (DESCRIBE_ENGINE, BUILD_LOG),
        f"Raise `spec.engine.deadlineSeconds`, or give the build more CPU in `spec.engine.resources`. {_AGAIN}",
    ),
    Reason.NO_SPACE: _failed(
        Actor.EITHER,
        (DESCRIBE, "kubectl get pvc"),
        "Enlarge the claim: `engine-KEY` of an engine (later ones: `spec.engine.storage.size`), or "
        f"`{names.cache_claim()}` of fetched models (`defaults.cacheSize` of the chart). Then delete the failed Job or "
        "engine that the message names.",
    ),
    Reason.ENGINE_CORRUPT: Guidance(
        situation=Situation.FAILED,
        shown=(Shown.MOVING, Shown.STALLED),
        actor=Actor.ADMINISTRATOR,
        look=(DESCRIBE_ENGINE, "kubectl describe pvc CLAIM"),
        remedy="While `Reconciling`, wait: the files that are bad are built anew, and what serves goes on. `Stalled`: "
        f"it happened again, so look at the storage of the claim, or delete that too for a new volume. {_AGAIN}",
    ),
    Reason.REPLICA_CRASHING: _failed(
        Actor.AUTHOR,
        (DESCRIBE, "kubectl logs POD --previous"),
        "Nothing is deleted, so that you can look into the pods. Change the spec, or mend the cause: a pod that gets "
        "ready again ends it.",
    ),
    Reason.PROGRESS_DEADLINE_EXCEEDED: _failed(
        Actor.AUTHOR,
        (DESCRIBE, PODS_IN_FULL),
        "Mend what the message names, or give it longer with `spec.strategy.progressDeadlineSeconds`. The time runs "
        "only from when the pods have nodes.",
    ),
    Reason.ROLLED_BACK: _failed(
        Actor.AUTHOR,
        (DESCRIBE, "kubectl get llmd NAME -o jsonpath='{.status.failedRevision}'"),
        "The last good revision serves. Change the spec: the failed one is not tried again by itself. If the cause "
        "lay elsewhere and is mended: `llmd retry NAME`, which sets the annotation "
        f"`{names.RETRY_ANNOTATION}` to the time.",
    ),
}
"""Of every reason that is produced."""

NOT_PRODUCED: Final[Mapping[Reason, str]] = {
    Reason.NO_MATCHING_GPU: "rule INIT-4 warns of it, and pods wait with WaitingForGPUs: such a node may still come.",
}
"""Reasons of the closed list that this version has no occasion for, and why."""
