"""Stand-in for a cluster's controllers. It does only the work that Helm waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from tools.install.api import MERGE, Api, Document, Refused

LOOK_EVERY_S: Final = 0.2
JOBS: Final = "/apis/batch/v1/jobs"
STATEFUL_SETS: Final = "/apis/apps/v1/statefulsets"
CLAIMS: Final = "/api/v1/persistentvolumeclaims"
BASES: Final = {
    "Job": "/apis/batch/v1",
    "StatefulSet": "/apis/apps/v1",
    "PersistentVolumeClaim": "/api/v1",
}
RELEASED: Final[Document] = {"metadata": {"finalizers": None}}
END_WITHIN_S: Final = 30


class Controllers:
    """Controllers that mark Jobs as complete once the objects that they mount exist, and release
    orphaned StatefulSets and deleted claims. No pod ever runs."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._ends = threading.Event()
        self.jobs: list[Document] = []
        """Completed Jobs, in order."""

    @contextmanager
    def at_work(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join(END_WITHIN_S)

    def _work(self) -> None:
        while not self._ends.wait(LOOK_EVERY_S):
            try:
                self._look()
            except (Refused, OSError):
                continue  # deleted since it was listed

    def _look(self) -> None:
        for job in self._api.ask("GET", JOBS)["items"]:
            if not job.get("status", {}).get("completionTime") and self._can_start(job):
                self._patch("Job", job, "/status", {"status": _completed()})
                self.jobs.append(job)
        for stateful_set in self._api.ask("GET", STATEFUL_SETS)["items"]:
            if "orphan" in stateful_set["metadata"].get("finalizers", []):
                self._patch("StatefulSet", stateful_set, "", RELEASED)
        for claim in self._api.ask("GET", CLAIMS)["items"]:
            if "deletionTimestamp" in claim["metadata"]:
                self._patch("PersistentVolumeClaim", claim, "", RELEASED)

    def _can_start(self, job: Document) -> bool:
        namespace = job["metadata"]["namespace"]
        volumes = job["spec"]["template"]["spec"].get("volumes", [])
        for name in (volume["configMap"]["name"] for volume in volumes if "configMap" in volume):
            self._api.ask("GET", f"/api/v1/namespaces/{namespace}/configmaps/{name}")
        return True

    def _patch(self, kind: str, document: Document, part: str, change: Document) -> None:
        meta = document["metadata"]
        path = f"{BASES[kind]}/namespaces/{meta['namespace']}/{kind.lower()}s/{meta['name']}{part}"
        self._api.ask("PATCH", path, change, MERGE)


def _completed() -> Document:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    holds = {"status": "True", "lastTransitionTime": now, "lastProbeTime": now}
    conditions = [{"type": kind, **holds} for kind in ("SuccessCriteriaMet", "Complete")]
    return {"startTime": now, "completionTime": now, "succeeded": 1, "conditions": conditions}
