"""What the soak runs: a cluster behind relays, topics with three replicas, proxies, a load."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.soak.relay import HOST, Relays
from tests.support.installation.cluster import Cluster
from tests.support.installation.installation import BROKER_STAMPED, Installation
from tests.support.installation.mixed_load import GROUP
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.oracle.asked import Rules, levels_ms

PARTITIONS: Final = 4
INSTANCES: Final = ("one", "two")
VISITOR: Final = "three"
"""Comes and goes, where rebalances are the fault."""
STORES: Final = ("wheel", "rocksdb", "levels")
LEVELS: Final = "50ms 100ms 200ms 400ms 800ms"
RULES: Final = Rules(
    levels_ms=levels_ms(LEVELS), immunity_ms=200, check_interval_ms=400, max_checks=3
)
TO_JUDGE: Final[dict[str, Any]] = {
    "levels": LEVELS,
    "retry": {"max_attempts": 16},
    "transactions": {"immunity": "200ms", "check_interval": "400ms", "max_checks": 3},
}
"""Settings that the judge knows, and that no fault changes."""
HEAP_MB: Final = 384


class SoakInstallation(Installation):
    """Reaches the cluster through the relays; judged past them, once they let everything pass."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        super().__init__(cluster.bootstrap_servers, folder, PARTITIONS)
        self.prefixes = {kind: f"{self.name}.{kind}." for kind in ("retry", "dlq")}
        self._variants: dict[str, dict[str, Any]] = {}

    @property
    def rules(self) -> Rules:
        """What the judge has to know of the settings."""
        return replace(RULES, retry_prefix=self.prefixes["retry"], dlq_prefix=self.prefixes["dlq"])

    def target(
        self, about: str = "orders", partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """A target with three replicas."""
        return self.named_target(f"{self.name}.{about}", partitions)

    def check_topic(self) -> str:
        """Where producers are asked about their half messages."""
        topic = f"{self.name}.checks"
        self._create(topic, 1, BROKER_STAMPED)
        self.check_topics.append(topic)
        return topic

    def soak_proxy(self, instance: str) -> ProxyProcess:
        """A proxy of that name, as it is now."""
        return self.proxy(instance, **self._settings_of(instance))

    def vary(self, instance: str, **changed: Any) -> None:
        """Other settings, from the next start on."""
        self._variants.setdefault(instance, {}).update(changed)
        settings = self.settings(instance, **self._settings_of(instance))
        self.soak_proxy(instance).configure(settings)

    def store_of(self, instance: str) -> str:
        """The kind of store that its next start opens."""
        return str(self._variants.get(instance, {}).get("store", STORES[0]))

    def _settings_of(self, instance: str) -> dict[str, Any]:
        topics = self.settings(instance)["topics"]
        named = {f"{kind}_prefix": prefix for kind, prefix in self.prefixes.items()}
        usual = {"roll_after": "700ms", "topics": {**topics, **named}}
        return {**TO_JUDGE, **usual, **self._variants.get(instance, {})}

    def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        self.cluster.create_topic(topic, partitions, config={"retention.ms": "-1", **config})


@dataclass(frozen=True, slots=True)
class Scene:
    """The parts that faults are done to; `draw` is for one lane of faults alone."""

    cluster: Cluster
    relays: Relays
    installation: SoakInstallation
    targets: list[str]
    draw: random.Random

    @property
    def proxies(self) -> dict[str, ProxyProcess]:
        """Those that run unless a fault has just ended them."""
        return {name: self.installation.soak_proxy(name) for name in INSTANCES}


@contextmanager
def scene(folder: Path, seed: int) -> Iterator[Scene]:
    """Everything started, and all of it ended when left."""
    cluster = Cluster(folder / "cluster", heap_mb=HEAP_MB)
    installation: SoakInstallation | None = None
    with Relays({node: cluster.port(node) for node in cluster.numbers}) as relays:
        for node in cluster.numbers:
            cluster.advertise(node, f"{HOST}:{relays.port(node)}")
        try:
            cluster.start_all()
            installation = SoakInstallation(cluster, folder / "proxies")
            targets = [installation.target(partitions=4), installation.target("bills", 2)]
            installation.check_topic()
            for prefix in installation.prefixes.values():
                installation.named_target(prefix + GROUP)
            made = Scene(cluster, relays, installation, targets, random.Random(seed))
            for proxy in made.proxies.values():
                proxy.start()
            yield made
        finally:
            if installation is not None:
                for proxy in installation.proxies.values():
                    proxy.kill()
            cluster.kill_all()
