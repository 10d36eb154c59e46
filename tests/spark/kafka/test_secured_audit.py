"""The audit connects with TLS and a login or certificate, with the rights of its page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

from spark_jobs.audit_delivery import audit
from spark_jobs.histories.job import AuditJob
from spark_jobs.kafka.broker import kafka_settings
from spark_jobs.kafka.snapshot import OwnTopics, Selection
from spark_jobs.runtime.frames import location
from tests.support.installation.installation import Installation
from tests.support.installation.rights import Right, grant
from tests.support.installation.secured_broker import MUTUAL, PLAIN, SCRAM, TOKENS
from tests.support.installation.secured_site import USER, SecuredSite, secured_site
from tests.support.records import Outgoing

pytestmark = pytest.mark.integration

AUDITORS = {
    **dict.fromkeys((SCRAM, PLAIN, TOKENS), f"User:{USER}"),
    MUTUAL: f"User:CN={USER}",
}
AUDITS_GROUP = "kafka-delay-proxy-audit"


@dataclass(frozen=True, slots=True)
class Served:
    """An installation on a secured broker, with one delivered record."""

    site: SecuredSite
    installation: Installation

    @property
    def own(self) -> OwnTopics:
        made = self.installation
        return OwnTopics(made.ingress, made.dead_letters, made.outcomes, f"{made.name}.settings")

    def rights(self) -> list[Right]:
        """Return the rights of docs/audit.md#what-it-needs. Kafka grants Describe with Read."""
        made = self.installation
        own = made.ingress, made.dead_letters, made.outcomes, f"{made.name}.settings"
        groups = f"{made.name}.proxy", AUDITS_GROUP
        return [
            *(Right("Read", ResourceType.TOPIC, topic) for topic in (*own, *made.targets)),
            *(Right("Describe", ResourceType.GROUP, group) for group in groups),
        ]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("secured")
    with secured_site(folder, open_to_all=False) as site:
        installation = Installation(site.broker.bootstrap, folder, partitions=1)
        orders = installation.target()
        installation.proxy().start_ready()
        installation.send([Outgoing(b"k", b"v", [("timer-topic", orders.encode())])])
        installation.judge()
        yield Served(site, installation)
        installation.close()


@pytest.mark.parametrize("listener", list(AUDITORS))
def test_an_audit_through_a_secured_listener_judges_what_was_delivered(
    spark: SparkSession, served: Served, tmp_path: Path, listener: str
) -> None:
    grant(served.installation.bootstrap, AUDITORS[listener], *served.rights())
    connection = served.site.connection(listener)
    pairs = [f"{name}={text}" for name, text in connection.items() if name != "bootstrap.servers"]
    kafka = kafka_settings(connection["bootstrap.servers"], pairs)
    group = f"{served.installation.name}.proxy"
    found = audit(
        spark, AuditJob(kafka, group, served.own, (), location(tmp_path / "audit")), Selection()
    )
    assert not found.violations
    assert {name: n for name, n in found.verdicts.items() if n} == {"delivered": 1}
