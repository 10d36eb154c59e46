"""Parts of the soak: a cluster behind relays, replicated topics, proxies and a load."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tests.support.installation.cluster import Cluster
from tests.support.installation.installation import BROKER_STAMPED, Installation
from tests.support.installation.mixed_load import GROUP
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.oracle.asked import Rules, levels_ms
from tests.support.oracle.conservation import await_ends, ingress_count
from tests.support.oracle.partitioned import Tally, judge_by_partition
from tools.soak.relay import HOST, Relays
from tools.soak.remade_target import RemadeTarget
from tools.soak.small_disk import small_disk

PARTITIONS: Final = 8
"""Number of ingress partitions. There are several, because the judge holds one partition at a time
in memory. Five million records take two GiB."""
INSTANCES: Final = ("one", "two")
VISITOR: Final = "three"
"""Instance that comes and goes in a storm."""
STORES: Final = ("wheel", "rocksdb")
LEVELS: Final = "50ms 100ms 200ms 400ms 800ms"
RULES: Final = Rules(
    levels_ms=levels_ms(LEVELS), immunity_ms=200, check_interval_ms=400, max_checks=3
)
TO_JUDGE: Final[dict[str, Any]] = {
    "levels": LEVELS,
    "retry": {"max_attempts": 16},
    "transactions": {"immunity": "200ms", "check_interval": "400ms", "max_checks": 3},
}
"""Settings that the judge must know. Therefore no fault changes them."""
HEAP_MB: Final = 384
GROWS_FROM: Final = 2
OF_BROKERS: Final = {"message.max.bytes": str(2 << 20), "auto.create.topics.enable": "false"}
"""Brokers create no topics automatically. Otherwise the client library would create a deleted topic
when it asks for the topic again."""
KEPT: Final = {"retention.ms": "-1"}
SMALL: Final = {"max.message.bytes": "100000"}


class SoakInstallation(Installation):
    """Installation whose proxies and clients use the relays. The judges connect to the brokers
    directly."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        super().__init__(cluster.bootstrap_servers, folder, PARTITIONS)
        self.prefixes = {kind: f"{self.name}.{kind}." for kind in ("retry", "dlq")}
        self._variants: dict[str, dict[str, Any]] = {}
        self.remade = RemadeTarget(cluster, f"{self.name}.remade")
        self.targets.append(self.remade.topic)

    @property
    def rules(self) -> Rules:
        return replace(RULES, retry_prefix=self.prefixes["retry"], dlq_prefix=self.prefixes["dlq"])

    def target(
        self, about: str = "orders", partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        topic = f"{self.name}.{about}"
        self._create(topic, partitions, {**BROKER_STAMPED, **(config or {})})
        self.targets.append(topic)
        return topic

    def thin_target(self) -> str:
        """Return a target with two replicas of each partition, which must both accept a record.
        While a node is away, two of the target's three partitions accept no records."""
        topic = f"{self.name}.thin"
        first, second, third = self.cluster.numbers
        pairs = [[first, second], [second, third], [third, first]]
        config = {**KEPT, **BROKER_STAMPED, "min.insync.replicas": "2"}
        self.cluster.create_topic_on(topic, pairs, config)
        self.targets.append(topic)
        return topic

    def check_topic(self) -> str:
        topic = f"{self.name}.checks"
        self._create(topic, 1, BROKER_STAMPED)
        self.check_topics.append(topic)
        return topic

    def soak_proxy(self, instance: str) -> ProxyProcess:
        return self.proxy(instance, **self._settings_of(instance))

    def vary(self, instance: str, **changed: Any) -> None:
        self._variants.setdefault(instance, {}).update(changed)
        settings = self.settings(instance, **self._settings_of(instance))
        self.soak_proxy(instance).configure(settings)

    def store_of(self, instance: str) -> str:
        return str(self._variants.get(instance, {}).get("store", STORES[0]))

    def await_end(self, timeout_s: float) -> None:
        gone = len(self.remade.kept)
        with ingress_count(self) as count:
            await_ends(self, lambda: count() - gone, timeout_s)
        self.stop_proxies()

    def tally(self) -> Tally:
        self.remade.write_back()
        return judge_by_partition(self, self.rules, self._folder / "spool")

    def kill(self) -> None:
        for proxy in self.proxies.values():
            proxy.kill()

    def _settings_of(self, instance: str) -> dict[str, Any]:
        topics = self.settings(instance)["topics"]
        named = {f"{kind}_prefix": prefix for kind, prefix in self.prefixes.items()}
        usual = {"roll_after": "1500ms", "topics": {**topics, **named}}
        return {**TO_JUDGE, **usual, **self._variants.get(instance, {})}

    def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        self.cluster.create_topic(topic, partitions, config={**KEPT, **config})


@dataclass(frozen=True, slots=True)
class Scene:
    """Parts of the soak that faults hit. Only one thread uses `draw`. `large` are topics for
    records of a mebibyte. The last topic of `large` refuses such records. `may_fill_disks` says
    that each data folder is on a small file system of its own."""

    cluster: Cluster
    relays: Relays
    installation: SoakInstallation
    targets: list[str]
    large: list[str]
    draw: random.Random
    may_fill_disks: bool

    @property
    def grows(self) -> str:
        return self.targets[1]

    @property
    def proxies(self) -> dict[str, ProxyProcess]:
        return {name: self.installation.soak_proxy(name) for name in INSTANCES}


@contextmanager
def scene(folder: Path, seed: int) -> Iterator[Scene]:
    cluster = Cluster(folder / "cluster", heap_mb=HEAP_MB, overrides=OF_BROKERS)
    with ExitStack() as stack:
        ports = {node: cluster.port(node) for node in cluster.numbers}
        relays = stack.enter_context(Relays(ports))
        for node in cluster.numbers:
            cluster.advertise(node, f"{HOST}:{relays.port(node)}")
        stack.callback(cluster.kill_all)
        cluster.start_all()
        home = folder / "proxies"
        disks = [stack.enter_context(small_disk(home / name / "data")) for name in INSTANCES]
        installation = SoakInstallation(cluster, home)
        stack.callback(installation.kill)
        yield _begun(cluster, relays, installation, random.Random(seed), all(disks))


def _begun(
    cluster: Cluster,
    relays: Relays,
    installation: SoakInstallation,
    draw: random.Random,
    may_fill_disks: bool,
) -> Scene:
    targets = [installation.target(partitions=4), installation.target("bills", GROWS_FROM)]
    targets.append(installation.thin_target())
    large = [targets[0], installation.target("small", config=SMALL)]
    installation.check_topic()
    for prefix in installation.prefixes.values():
        installation.named_target(prefix + GROUP)
    made = Scene(cluster, relays, installation, targets, large, draw, may_fill_disks)
    for proxy in made.proxies.values():
        proxy.start_ready()
    return made
