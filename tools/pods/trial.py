"""Trial of one release on the node, step by step. Each step fails with a sentence."""

from __future__ import annotations

import socket
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.support.chart.deliveries import RECORDS, Deliveries
from tests.support.chart.rendering import NAME, NAMESPACE
from tests.support.waiting import wait_for
from tools.install.api import Document
from tools.install.helm import Helm
from tools.pods import images, node
from tools.pods.cluster import WITHIN_S, Cluster
from tools.pods.steps import Say, step

PROBE: Final = Path(__file__).with_name("probe.py")
ADMIN_PORT: Final = 9464
FIRST: Final = f"{NAME}-0"
ELSEWHERE: Final = "default"
"""Another namespace than the release's."""
HANDED_OVER_WITHIN_MS: Final = 3_000
"""Limit of lateness when pods end as planned. A session that times out takes 10 s."""
SPREAD: Final = [f"{number * 100}ms" for number in range(1, 201)]
"""Delays of records that fall due all the time while pods come and go."""
NEVER: Final = "0 0 29 2 *"


class Trial:
    """One release from install to audit. Records are sent in most steps and judged: each arrives
    once, and none early."""

    def __init__(self, cluster: Cluster, helm: Helm, bootstrap: str) -> None:
        self._cluster, self._helm, self._bootstrap = cluster, helm, bootstrap
        self._records = Deliveries(bootstrap)
        self._values = values(bootstrap)

    def run(self) -> None:
        steps: dict[str, Callable[[Say], None]] = {
            "install": self._install,
            "delivery": self._deliver,
            "helm test": self._helm_test,
            "network policy": self._reach,
            "container killed": self._kill,
            "pod deleted": self._delete,
            "upgrade": self._upgrade,
            "scale 2 to 1": self._scale_in,
            "scale 1 to 3": self._scale_out,
            "drain": self._drain,
            "scale 3 to 1": self._scale_in,
            "volumes kept": self._reinstall,
            "audit": self._audit,
        }
        for name, carry_out in steps.items():
            with step(name) as seen:
                carry_out(seen)

    def _install(self, seen: Say) -> None:
        self._helm.install(self._values)
        self._cluster.await_ready(2)
        seen("topics made by the hook's pod, 2 pods ready")

    def _deliver(self, seen: Say) -> None:
        self._records.send(*["1s"] * RECORDS)
        seen(self._judged())

    def _helm_test(self, seen: Say) -> None:
        self._helm.test()
        seen("both pods found by name, ready and with metrics")

    def _reach(self, seen: Say) -> None:
        """Look who reaches whom. The default policy lets pods of the release's namespace reach the
        admin port. The release's pods reach only Kafka, names and each other."""
        admin = f"{self._cluster.proxies()[FIRST]['status']['podIP']}:{ADMIN_PORT}"
        with socket.create_server((node.ADDRESS, 0)) as listener:
            other = f"{node.ADDRESS}:{listener.getsockname()[1]}"
            self._probe("stranger", ELSEWHERE, {}, {admin: "closed", other: "open"})
            self._probe("neighbour", NAMESPACE, {}, {admin: "open", other: "open"})
            ours = {**self._pod_labels(), "app.kubernetes.io/component": "test"}
            reached = {admin: "open", self._bootstrap: "open", other: "closed"}
            self._probe("ours", NAMESPACE, ours, reached)
        seen("admin port open to the namespace, closed to others; ours reach Kafka, not others")

    def _probe(
        self, name: str, namespace: str, labels: dict[str, str], expected: dict[str, str]
    ) -> None:
        arguments = [word for address, how in expected.items() for word in (how, address)]
        said = self._cluster.run_pod(probe(name, labels, arguments), namespace)
        assert said.split() == [*expected.values()], f"{name} reached {said!r}: {expected}"

    def _pod_labels(self) -> dict[str, str]:
        labels: dict[str, str] = self._cluster.proxies()[FIRST]["metadata"]["labels"]
        chosen = ("app.kubernetes.io/name", "app.kubernetes.io/instance")
        return {name: labels[name] for name in chosen}

    def _kill(self, seen: Say) -> None:
        self._records.send(*["4s"] * RECORDS)
        before = self._cluster.restarts(FIRST)
        self._cluster.kill_container(FIRST)
        again = lambda: self._cluster.restarts(FIRST) > before  # noqa: E731
        wait_for(again, WITHIN_S, "the container to start again")
        self._cluster.await_ready(2)
        seen(f"SIGKILL, then ready again, {self._judged()}")

    def _delete(self, seen: Say) -> None:
        self._records.send(*["4s"] * RECORDS)
        uid = self._cluster.proxies()[FIRST]["metadata"]["uid"]
        self._cluster.delete_at_once(FIRST)
        self._cluster.await_ready(2, without={uid})
        seen(f"without grace, {self._judged()}")

    def _upgrade(self, seen: Say) -> None:
        old = self._cluster.uids()
        self._records.send(*SPREAD)
        self._values["config"]["release"] = {"max_per_second": 500}
        self._helm.upgrade(self._values)
        self._cluster.await_ready(2, without=old)
        seen(f"both pods replaced, {self._judged(HANDED_OVER_WITHIN_MS)}")

    def _scale_in(self, seen: Say) -> None:
        self._records.send(*SPREAD[:100])
        self._cluster.scale(1)
        self._cluster.await_ready(1)
        seen(self._judged(HANDED_OVER_WITHIN_MS))

    def _scale_out(self, seen: Say) -> None:
        self._records.send(*SPREAD[:100])
        self._cluster.scale(3)
        self._cluster.await_ready(3)
        seen(self._judged())

    def _drain(self, seen: Say) -> None:
        """Evict pods from the node, as a drain does. One may be missing, so the second is kept."""
        self._cluster.await_disruption_allowed()
        self._records.send(*SPREAD)
        self._cluster.allow_pods(allowed=False)
        first, second, _ = sorted(self._cluster.proxies())
        assert not self._cluster.evict(first), "the first eviction was refused"
        refused = self._cluster.evict(second)
        assert "disruption budget" in refused, f"the second eviction: {refused or 'not refused'}"
        late = self._judged(HANDED_OVER_WITHIN_MS)
        self._cluster.allow_pods(allowed=True)
        self._cluster.await_ready(3)
        seen(f"the second eviction refused by the budget, {late}")

    def _reinstall(self, seen: Say) -> None:
        self._records.send(*["30s"] * RECORDS)
        before = self._cluster.claims()
        self._helm.uninstall()
        self._cluster.await_ready(0)
        assert self._cluster.claims() == before, "the claims changed at uninstall"
        self._helm.install(self._values)
        self._cluster.await_ready(2)
        assert self._cluster.claims() == before, "the claims changed at the new install"
        seen(f"uninstall and install, {len(before)} volumes kept, {self._judged()}")

    def _audit(self, seen: Say) -> None:
        said = self._cluster.run_cron_job("audit-now")
        (delivered,) = [line for line in said.splitlines() if line.endswith("  delivered")]
        count = int(delivered.split()[0].replace(",", ""))
        assert count == self._records.sent, f"{count} delivered of {self._records.sent}: {said}"
        assert "Held: no violation." in said, f"not held: {said}"
        seen(f"the CronJob's Job: {count:,} delivered, no violation")

    def _judged(self, limit_ms: float = float("inf")) -> str:
        late = self._records.judge()
        assert max(late) <= limit_ms, f"{max(late)} ms late, more than {limit_ms:.0f}"
        return lateness(late)


def lateness(late_ms: Sequence[int]) -> str:
    middle = statistics.median(late_ms)
    return f"{len(late_ms)} records late by {middle:.0f} ms, at most {max(late_ms):,} ms"


def values(bootstrap: str) -> dict[str, Any]:
    """Return the chart's values. They are its defaults, with smaller requests for the small node
    and an audit that no clock starts."""
    small = {"cpu": "50m"}
    return {
        "config": {"kafka": {"bootstrap.servers": bootstrap}, "topics": {"create": False}},
        "resources": {"requests": small},
        "topicsJob": {"resources": {"requests": small}},
        "audit": {"enabled": True, "schedule": NEVER, "resources": {"requests": small}},
    }


def probe(name: str, labels: dict[str, str], arguments: Sequence[str]) -> Document:
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "main",
        "image": f"{images.NAME}:{images.TAGS['proxy']}",
        "imagePullPolicy": "Never",
        "command": ["python", "-I", "-c", PROBE.read_text("utf-8"), *arguments],
        "securityContext": restricted,
    }
    metadata = {"name": name, "labels": labels}
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
