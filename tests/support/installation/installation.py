"""Installation of the proxy on a broker: topics, group, targets and processes."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.cimpl import NewTopic

from tests.support.group_offsets import committed
from tests.support.installation.ingress_writer import IngressWriter
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.oracle.asked import Rules
from tests.support.oracle.conservation import await_ends, ends_so_far, ingress_count, judge
from tests.support.oracle.ends import Ends
from tests.support.oracle.ingress_witness import IngressWitness
from tests.support.quiet_clients import QUIET, admin_client
from tests.support.records import Outgoing, ends_of, new_topic, set_topic_config, write
from tests.support.waiting import wait_for

SESSION_TIMEOUT_MS = 6_000
"""Shortest session timeout that a broker allows by default."""
WRITE_TIMEOUT_S = 180
INGESTED_WITHIN_S = 180
BROKER_STAMPED = {"message.timestamp.type": "LogAppendTime"}


class Installation:
    """Topics of its own, and proxies that serve them. The ingress topic exists before the first
    proxy starts, so that records can be pending."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        partitions: int = 2,
        ingress_config: Mapping[str, str] | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.targets: list[str] = []
        self.check_topics: list[str] = []
        self.proxies: dict[str, ProxyProcess] = {}
        self._folder, self._partitions = folder, partitions
        self._create(self.ingress, partitions, {**BROKER_STAMPED, **(ingress_config or {})})

    @property
    def ingress(self) -> str:
        return f"{self.name}.ingress"

    @property
    def dead_letters(self) -> str:
        return f"{self.name}.dead-letters"

    @property
    def outcomes(self) -> str:
        return f"{self.name}.outcomes"

    def settings(self, instance: str, **more: Any) -> dict[str, Any]:
        return {
            "kafka": self.kafka(),
            "topics": {
                "ingress": self.ingress,
                "dead_letters": self.dead_letters,
                "outcomes": self.outcomes,
                "settings": self.settings_topic,
                "changes": f"{self.name}.changes",
            },
            "group_id": f"{self.name}.proxy",
            "instance_id": instance,
            **more,
        }

    def await_ingested(self) -> None:
        """Wait until the group has committed the whole ingress, without open transactions there."""
        group = {"bootstrap.servers": self.bootstrap, "group.id": f"{self.name}.proxy", **QUIET}
        consumer, admin = Consumer(group), admin_client(self.bootstrap)
        places = [TopicPartition(self.ingress, number) for number in range(self._partitions)]
        names = [(place.topic, place.partition) for place in places]

        def is_read() -> bool:
            read_to = [max(0, place.offset) for place in committed(consumer, places)]
            ends = ends_of(admin, names)
            return read_to == [ends[one] for one in names]

        try:
            wait_for(is_read, INGESTED_WITHIN_S, "the ingress to be read")
        finally:
            consumer.close()

    def kafka(self, **more: str) -> dict[str, str]:
        session = {"session.timeout.ms": str(SESSION_TIMEOUT_MS)}
        return {"bootstrap.servers": self.bootstrap, **session, **more}

    def proxy(self, instance: str = "one", **more: Any) -> ProxyProcess:
        if instance not in self.proxies:
            settings = self.settings(instance, **more)
            self.proxies[instance] = ProxyProcess(self._folder / instance, settings)
        return self.proxies[instance]

    def target(
        self, about: str = "orders", partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a target topic with broker timestamps, so that lateness depends on one clock."""
        settings = {**BROKER_STAMPED, **(config or {})}
        topic = new_topic(self.bootstrap, f"{self.name}.{about}", partitions, settings)
        self.targets.append(topic)
        return topic

    def named_target(self, name: str, partitions: int = 1) -> str:
        self._create(name, partitions, BROKER_STAMPED)
        self.targets.append(name)
        return name

    def check_topic(self) -> str:
        topic = new_topic(self.bootstrap, f"{self.name}.checks", 1, BROKER_STAMPED)
        self.check_topics.append(topic)
        return topic

    def witness(self) -> IngressWitness:
        """Return a witness that keeps ingress records for `judge` before retention deletes them."""
        return IngressWitness(self.bootstrap, self.ingress, self._partitions)

    def send(self, records: Iterable[Outgoing]) -> None:
        write(self.bootstrap, self.ingress, records)

    def keep_ingress(self) -> None:
        set_topic_config(self.bootstrap, self.ingress, {"retention.ms": "-1"})

    def create_ingress_anew(self) -> None:
        """Delete the ingress topic and recreate it, like an operator's mistake."""
        admin = admin_client(self.bootstrap)
        admin.delete_topics([self.ingress])[self.ingress].result(WRITE_TIMEOUT_S)
        wait_for(self._has_new_ingress, WRITE_TIMEOUT_S, "the name of the ingress to be free")

    def _has_new_ingress(self) -> bool:
        try:
            self._create(self.ingress, self._partitions, BROKER_STAMPED)
        except KafkaException as failed:
            if failed.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False  # the deletion is not finished
            raise
        return True

    def delete_ingress(self, partition: int) -> int:
        place = TopicPartition(self.ingress, partition, OFFSET_END)
        admin = admin_client(self.bootstrap)
        return int(admin.delete_records([place])[place].result(WRITE_TIMEOUT_S).low_watermark)

    def writer(self, linger_ms: int = 0) -> IngressWriter:
        return IngressWriter(self.bootstrap, self.ingress, linger_ms)

    @property
    def settings_topic(self) -> str:
        return f"{self.name}.settings"

    def create_settings_topic(self, config: Mapping[str, str]) -> None:
        self._create(self.settings_topic, 1, {"cleanup.policy": "compact", **config})

    def create_dead_letters(self, config: Mapping[str, str]) -> None:
        self._create(self.dead_letters, 1, config)

    def ends_so_far(self) -> int:
        """Return the number of ended ingress records. It is 0 without the proxy's topics."""
        return ends_so_far(self)

    def await_ends(self, records: int, timeout_s: float = 180) -> None:
        await_ends(self, lambda: records, timeout_s)

    def judge(
        self,
        timeout_s: float = 180,
        rules: Rules | None = None,
        witness: IngressWitness | None = None,
    ) -> Ends:
        """Wait for the end of every ingress record, stop the proxies, and judge the topics. `rules`
        are non-default settings of the proxies. `witness` is needed if retention deletes ingress
        records."""
        with nullcontext(witness.count) if witness else ingress_count(self) as wanted:
            await_ends(self, wanted, timeout_s)
        self.stop_proxies()
        if witness:
            witness.close()
        return judge(self, rules or Rules(), witness.records if witness else {})

    def stop_proxies(self) -> None:
        for proxy in self.proxies.values():
            if proxy.is_running:
                assert proxy.stop() == 0, proxy.log_tail()

    def close(self) -> None:
        """Kill running proxies. Print every log, for pytest to show after a failure."""
        for proxy in self.proxies.values():
            proxy.kill()
            print(proxy.log_tail())

    def _create(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        admin = admin_client(self.bootstrap)
        wanted = NewTopic(topic, partitions, 1, config=dict(config))
        admin.create_topics([wanted])[topic].result(WRITE_TIMEOUT_S)
