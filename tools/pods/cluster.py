"""The cluster, as the trial sees it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any, Final

from tests.support.chart.rendering import NAME, NAMESPACE
from tests.support.waiting import wait_for
from tools.install.api import MERGE, Api, Document, Refused
from tools.pods import node
from tools.pods.node import Node

WITHIN_S: Final = 300
JOB_WITHIN_S: Final = 900
LAST: Final = 15
"""Events, and lines of a log, in a report."""
ROOT: Final = f"/api/v1/namespaces/{NAMESPACE}"
STATEFUL_SET: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{NAME}"
BUDGET: Final = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/{NAME}"
JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
CRON_JOB: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/cronjobs/{NAME}-audit"


@dataclass(frozen=True, slots=True)
class Cluster:
    api: Api
    node: Node

    def proxies(self) -> dict[str, Document]:
        """Return the proxy's pods by name."""
        chosen = "labelSelector=app.kubernetes.io/component%3Dproxy"
        items = self.api.ask("GET", f"{ROOT}/pods?{chosen}")["items"]
        return {one["metadata"]["name"]: one for one in items}

    def uids(self) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.proxies().values()}

    def await_ready(self, count: int, without: set[str] | None = None) -> None:
        """Wait until exactly `count` pods of the proxy are there and ready, and none of `without`
        (uids)."""

        def holds() -> bool:
            pods = self.proxies().values()
            old = {pod["metadata"]["uid"] for pod in pods} & (without or set())
            return len(pods) == count and not old and all(map(is_ready, pods))

        wait_for(holds, WITHIN_S, f"{count} pods to be ready")

    def scale(self, replicas: int) -> None:
        self.api.ask("PATCH", STATEFUL_SET, {"spec": {"replicas": replicas}}, MERGE)

    def kill_container(self, pod: str) -> None:
        """Kill the container's process, as the kernel does when memory runs out."""
        status = self.proxies()[pod]["status"]["containerStatuses"][0]
        container = status["containerID"].rpartition("/")[2]
        kill = ("ctr", "--namespace", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", container)
        subprocess.run(self.node.command(*kill), check=True, capture_output=True)

    def restarts(self, pod: str) -> int:
        return int(self.proxies()[pod]["status"]["containerStatuses"][0]["restartCount"])

    def delete_at_once(self, pod: str) -> None:
        self.api.ask("DELETE", f"{ROOT}/pods/{pod}", {"gracePeriodSeconds": 0})

    def await_disruption_allowed(self) -> None:
        """Wait until the controller has counted the pods for the PodDisruptionBudget."""

        def is_allowed() -> bool:
            status = self.api.ask("GET", BUDGET).get("status", {})
            return bool(status.get("disruptionsAllowed"))

        wait_for(is_allowed, WITHIN_S, "the budget to allow a disruption")

    def evict(self, pod: str) -> str:
        """Ask for a pod's eviction. Return the refusal, or nothing."""
        metadata = {"name": pod, "namespace": NAMESPACE}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        try:
            self.api.ask("POST", f"{ROOT}/pods/{pod}/eviction", eviction, again=False)
        except Refused as refused:
            return str(refused)
        return ""

    def allow_pods(self, *, allowed: bool) -> None:
        """Let new pods run on the node or not, as `kubectl uncordon` and `kubectl cordon` do."""
        change = {"spec": {"unschedulable": not allowed}}
        self.api.ask("PATCH", f"/api/v1/nodes/{node.NAME}", change, MERGE)

    def claims(self) -> dict[str, tuple[str, str]]:
        """Return uid and volume of each claim of the proxy's pods."""
        items = self.api.ask("GET", f"{ROOT}/persistentvolumeclaims")["items"]
        return {
            one["metadata"]["name"]: (one["metadata"]["uid"], one["spec"]["volumeName"])
            for one in items
            if one["metadata"]["name"].startswith("data-")
        }

    def run_pod(self, pod: Document, namespace: str) -> str:
        """Run a pod to its end. Return what its container `main` printed."""
        name = pod["metadata"]["name"]
        path = f"/api/v1/namespaces/{namespace}/pods"
        self.api.ask("POST", path, pod)
        wait_for(lambda: self._phase(f"{path}/{name}") in {"Succeeded", "Failed"}, WITHIN_S, name)
        return self.node.log_of(namespace, name, "main")

    def _phase(self, path: str) -> str:
        return str(self.api.ask("GET", path)["status"].get("phase"))

    def run_cron_job(self, name: str) -> str:
        """Run the audit's CronJob once, as `kubectl create job --from` does. Return its output.
        Fail if the Job fails."""
        spec = self.api.ask("GET", CRON_JOB)["spec"]["jobTemplate"]["spec"]
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
        self.api.ask("POST", JOBS, job)
        wait_for(lambda: self._ended(name), JOB_WITHIN_S, f"Job {name}")
        said = self.node.log_of(NAMESPACE, f"{name}-*", "audit")
        assert self._ended(name) == "Complete", f"the audit failed: {said}"
        return said

    def _ended(self, name: str) -> str:
        status = self.api.ask("GET", f"{JOBS}/{name}")["status"]
        ends = [one["type"] for one in status.get("conditions", []) if one["status"] == "True"]
        return next((end for end in ends if end in {"Complete", "Failed"}), "")

    def report(self) -> str:
        """Return the last events, and the state and log of each pod."""
        events = self.api.ask("GET", f"{ROOT}/events")["items"][-LAST:]
        lines = [f"{one['involvedObject'].get('name')}: {one['message']}" for one in events]
        for pod in self.api.ask("GET", f"{ROOT}/pods")["items"]:
            name = pod["metadata"]["name"]
            lines += [f"--- {name}", json.dumps(pod["status"].get("containerStatuses"))]
            for container in pod["spec"]["containers"]:
                log = self.node.log_of(NAMESPACE, name, container["name"])
                lines += log.splitlines()[-LAST:]
        return "\n".join(lines)


def is_ready(pod: Document) -> bool:
    if "deletionTimestamp" in pod["metadata"]:
        return False
    found: list[dict[str, Any]] = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in found)
