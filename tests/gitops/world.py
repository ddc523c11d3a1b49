"""A cluster that is managed from Git by a real Argo CD, in the words of a test: push, wait, look."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml

from tests.cluster import argocd
from tests.cluster.argocd import ArgoCd
from tests.cluster.cluster import Cluster
from tests.cluster.paths import REPOSITORY
from tests.cluster.waiting import wait_until
from tests.gitops.played_node import PlayedNode
from tests.gitops.recorder import Recorder, Seen

Json = dict[str, Any]

GUIDE: Final = REPOSITORY / "docs/guides/gitops.md"
APPLICATIONS: Final = f"/apis/argoproj.io/v1alpha1/namespaces/{argocd.NAMESPACE}/applications"
NAME: Final = "smollm2"
"""Of the guide's LLMDeployment."""


def guide_blocks(language: str = "") -> list[str]:
    """The fenced blocks of the guide that people copy from."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return [text for fence, text in found if fence == language]


def guide_manifest(kind: str) -> Json:
    """The guide's own manifest of a kind."""
    manifests: Iterator[Json] = (yaml.safe_load(block) for block in guide_blocks("yaml"))
    return next(manifest for manifest in manifests if manifest["kind"] == kind)


@dataclass(frozen=True)
class Git:
    """A repository in a folder."""

    folder: Path

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    def write(self, path: str, *objects: Json) -> None:
        """Put manifests into a file, or remove it if there are none; committed with `commit`."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if objects:
            file.write_text(yaml.safe_dump_all(objects, sort_keys=False))
        else:
            file.unlink()

    def commit(self, message: str) -> str:
        """Commit everything; returns the commit."""
        self.run("add", "--all")
        self.run("commit", "--quiet", "--message", message)
        return self.run("rev-parse", "HEAD").strip()

    def run(self, *arguments: str) -> str:
        person = {f"GIT_{role}_{what}": "test@example.com" for role in ("AUTHOR", "COMMITTER") for what in _PERSON}
        argv = ["git", "-C", str(self.folder), *arguments]
        return subprocess.run(argv, env=os.environ | person, check=True, capture_output=True, text=True).stdout


_PERSON: Final = ("NAME", "EMAIL")


@dataclass(frozen=True)
class World:
    """Everything that is there while the tests run."""

    cluster: Cluster
    argocd: ArgoCd
    git: Git
    node: PlayedNode
    applications: Recorder
    deployments: Recorder

    def application(self, name: str) -> Application:
        return Application(self, name)

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:
        return self.cluster.kubectl(*arguments, input=input, check=check).stdout


@dataclass(frozen=True)
class Application:
    """One Application, whose LLMDeployment `smollm2` is in the folder and the namespace of the same name."""

    world: World
    name: str

    @property
    def namespace(self) -> str:
        return self.name

    def create(self, manifest: Json) -> None:
        self.world.kubectl("apply", "-f", "-", input=yaml.safe_dump(manifest))

    def synchronise(self) -> None:
        """As a person does who presses Sync although nothing differs; returns when that has ended."""
        before = self.get()["status"]["operationState"]["startedAt"]
        operation = {"operation": {"sync": {"syncOptions": self.get()["spec"]["syncPolicy"]["syncOptions"]}}}
        self.world.kubectl(
            *("-n", argocd.NAMESPACE, "patch", "application", self.name, "--type=merge", "-p", json.dumps(operation))
        )

        def ended(app: Json) -> bool:
            state = app["status"]["operationState"]
            return "operation" not in app and state["startedAt"] > before and state["phase"] == "Succeeded"

        self.wait(ended, "synchronised again", 60)

    def push(self, message: str, **files: Json | None) -> str:
        """Commit manifests (None: the file is removed) to the application's folder, and tell Argo CD."""
        for file, manifest in files.items():
            self.world.git.write(f"{self.name}/{file}.yaml", *([] if manifest is None else [manifest]))
        commit = self.world.git.commit(message)
        self.world.argocd.refresh(self.name)
        return commit

    def get(self) -> Json:
        return dict(
            json.loads(self.world.kubectl("-n", argocd.NAMESPACE, "get", "application", self.name, "-o", "json"))
        )

    def deployment(self, name: str = NAME) -> Json | None:
        out = self.kubectl("get", "llmd", name, "-o", "json", "--ignore-not-found")
        return json.loads(out) if out.strip() else None

    def kubectl(self, *arguments: str) -> str:
        return self.world.kubectl("-n", self.namespace, *arguments)

    def wait(self, until: Callable[[Json], bool], what: str, seconds: float = 120) -> Json:
        """The Application, as soon as it is so; fails with what Argo CD says about it."""
        last: Json = {}

        def look() -> Json | None:
            nonlocal last
            last = self.get()
            return last if until(last) else None

        try:
            return wait_until(look, f"application {self.name} to be {what}", seconds, interval=0.3)
        except Exception as error:
            error.add_note(yaml.safe_dump({k: v for k, v in last.get("status", {}).items() if k != "history"})[:6000])
            error.add_note(self.kubectl("get", "llmd,llme,jobs,pods,sts", "-o", "wide"))
            raise

    def wait_settled(self, commit: str | None = None, seconds: float = 120) -> Json:
        """Synced with a commit (any, if none is named) and Healthy, and the synchronisation has ended well."""

        def settled(app: Json) -> bool:
            done = app.get("status", {}).get("operationState", {}).get("phase") == "Succeeded"
            return done and sync(app) == "Synced" and health(app) == "Healthy" and is_of(app, commit)

        return self.wait(settled, "Synced and Healthy", seconds)

    def wait_health(self, status: str, commit: str | None = None, seconds: float = 120) -> Json:
        return self.wait(lambda app: health(app) == status and is_of(app, commit), status, seconds)

    def seen(self, since: datetime | None = None) -> list[Seen]:
        return self.world.applications.of(self.name, since)

    def shown(self, since: datetime, until: datetime) -> list[Json]:
        """What Argo CD showed in that time, first what it showed at its begin."""
        seen = self.seen()
        return [
            each.obj
            for each, after in zip(seen, [*seen[1:], None], strict=True)
            if each.at < until and (after is None or after.at > since)
        ]

    def seen_deployment(self, since: datetime | None = None) -> list[Seen]:
        found = self.world.deployments.of(NAME, since)
        return [each for each in found if each.obj["metadata"]["namespace"] == self.namespace]

    def drift(self, since: datetime) -> list[str]:
        """What was out of sync at any moment since then; meant for times when nobody changes Git."""
        return [
            f"{each.at:%X} {resource['kind']} {resource['name']}"
            for each in self.seen(since)
            if sync(each.obj) == "OutOfSync"
            for resource in each.obj["status"].get("resources", [])
            if resource.get("status") == "OutOfSync"
        ]

    def refreshes(self, since: datetime, until: datetime) -> list[str]:
        """The times at which Argo CD compared the application because an object of the cluster had changed."""
        found = []
        for line in self.world.argocd.log().read_text(errors="replace").splitlines():
            if "controller refresh requested" in line:
                said = json.loads(line)
                at = datetime.fromisoformat(said["time"])
                if said["application"] == self.name and since <= at <= until:
                    found.append(said["time"])
        return found


def sync(app: Mapping[str, Any]) -> str:
    return str(app.get("status", {}).get("sync", {}).get("status", ""))


def health(app: Mapping[str, Any]) -> str:
    return str(app.get("status", {}).get("health", {}).get("status", ""))


def resource(app: Mapping[str, Any], kind: str, name: str) -> Json:
    """What Argo CD says about one object of the application; empty if it does not know it."""
    found: list[Json] = [
        r for r in app.get("status", {}).get("resources", []) if (r["kind"], r["name"]) == (kind, name)
    ]
    return found[0] if found else {}


def changed(manifest: Json, **spec: Any) -> Json:
    """The manifest with fields of its spec replaced."""
    result = copy.deepcopy(manifest)
    result["spec"].update(spec)
    return result


def is_of(app: Json, commit: str | None) -> bool:
    """Whether Argo CD has compared the application with this commit last; with None, any."""
    said = app["status"].get("sync", {}) if commit else {}
    return commit is None or commit in (said.get("revision"), *said.get("revisions", ()))
