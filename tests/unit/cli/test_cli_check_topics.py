"""`check` reads the topics' and the broker's configuration as the proxy does."""

import pytest

from proxy.cli.check_configs import (
    Finding,
    Severity,
    TopicConfig,
    broker_config_findings,
    replication_findings,
    topic_findings,
)
from proxy.config.settings import Settings
from proxy.kafka.topics import Replication

GOOD_INGRESS = {
    "message.timestamp.type": "LogAppendTime",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "compression.type": "uncompressed",
}


def found_in_ingress(**changes: str) -> list[Finding]:
    config = {**GOOD_INGRESS, **{key.replace("_", "."): text for key, text in changes.items()}}
    topics = {"ingress": TopicConfig("timer.ingress", 4, config)}
    return [one for one in topic_findings(Settings(), topics) if one.severity is not Severity.OK]


def test_a_good_ingress_topic_gives_nothing_to_do() -> None:
    assert found_in_ingress() == []


@pytest.mark.parametrize(
    ("is_allowed", "severity"), [(False, Severity.STOP), (True, Severity.ADVICE)]
)
def test_create_time_would_stop_the_proxy_and_is_advised_against_where_it_may_be(
    is_allowed: bool, severity: Severity
) -> None:
    config = {**GOOD_INGRESS, "message.timestamp.type": "CreateTime"}
    settings = Settings.model_validate({"topics": {"allow_create_time": is_allowed}})
    topics = {"ingress": TopicConfig("timer.ingress", 4, config)}
    (finding,) = [f for f in topic_findings(settings, topics) if f.severity is not Severity.OK]
    assert finding.severity is severity
    assert "LogAppendTime" in finding.remedy


def test_partitions_that_may_have_been_added_are_said_to_move_keys() -> None:
    topics = {"ingress": TopicConfig("timer.ingress", 5, GOOD_INGRESS)}
    (finding,) = [f for f in topic_findings(Settings(), topics) if f.severity is not Severity.OK]
    assert finding.severity is Severity.ADVICE
    assert "misses records" in finding.remedy


@pytest.mark.parametrize("kind", ["producer", "zstd", "gzip"])
def test_an_ingress_that_takes_batches_nobody_can_read_is_warned_of(kind: str) -> None:
    (finding,) = found_in_ingress(compression_type=kind)
    assert finding.severity is Severity.WARN
    assert "compression.type=uncompressed" in finding.remedy


def test_a_compacted_ingress_topic_would_stop_the_proxy() -> None:
    (finding,) = found_in_ingress(cleanup_policy="compact,delete")
    assert finding.severity is Severity.STOP


def test_dead_letters_must_take_a_little_more_than_the_ingress() -> None:
    topics = {
        "ingress": TopicConfig("timer.ingress", 4, GOOD_INGRESS),
        "dead_letters": TopicConfig("timer.dead-letters", 1, {"max.message.bytes": "1048588"}),
    }
    findings = [f for f in topic_findings(Settings(), topics) if f.severity is Severity.WARN]
    assert ["max.message.bytes=1049612" in finding.remedy for finding in findings] == [True]


@pytest.mark.parametrize(("sent", "is_content"), [("1000000", False), ("2000000", True)])
def test_the_client_must_send_what_the_ingress_takes(sent: str, is_content: bool) -> None:
    settings = Settings(kafka={"message.max.bytes": sent})
    topics = {"ingress": TopicConfig("timer.ingress", 4, GOOD_INGRESS)}
    verdicts = {finding.severity for finding in topic_findings(settings, topics)}
    assert verdicts == ({Severity.OK} if is_content else {Severity.OK, Severity.WARN})


def test_what_the_client_does_not_send_is_said_to_be_a_dead_letter() -> None:
    """A limit that fits rewritten records may be too small for dead letters."""
    settings = Settings(kafka={"message.max.bytes": str(1_048_588 + 600)})
    topics = {"ingress": TopicConfig("timer.ingress", 4, GOOD_INGRESS)}
    found = [f for f in topic_findings(settings, topics) if f.severity is Severity.WARN]
    assert ["dead letters (`too-large`)" in finding.remedy for finding in found] == [True]


def test_the_settings_topic_must_be_compacted() -> None:
    topics = {"settings": TopicConfig("timer.settings", 1, {"cleanup.policy": "delete"})}
    (finding,) = topic_findings(Settings(), topics)
    assert "cleanup.policy=compact" in finding.remedy


def test_more_workers_than_partitions_stay_idle() -> None:
    topics = {"ingress": TopicConfig("timer.ingress", 2, GOOD_INGRESS)}
    findings = list(topic_findings(Settings(workers=3), topics))
    assert any("2 partitions for 3 workers" in finding.found for finding in findings)


def test_a_configuration_that_may_not_be_read_says_nothing() -> None:
    topics = {role: TopicConfig(role, 4, {}) for role in ("dead_letters", "outcomes", "settings")}
    assert list(topic_findings(Settings(), topics)) == []
    assert list(broker_config_findings(Settings(), {}, 3)) == []


def test_a_broker_that_allows_only_short_transactions_would_stop_the_proxy() -> None:
    (finding,) = broker_config_findings(Settings(), {"transaction.max.timeout.ms": "5000"}, 3)
    assert finding.severity is Severity.STOP
    assert "transaction.timeout.ms: 5000" in finding.remedy


@pytest.mark.parametrize(
    ("config", "remedy"),
    [
        ({"group.min.session.timeout.ms": "30000"}, "session.timeout.ms: 30000"),
        ({"group.max.session.timeout.ms": "9000"}, "session.timeout.ms: 9000"),
        ({"group.max.size": "1"}, "fewer workers"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "Add `classic`"),
    ],
)
def test_a_limit_on_the_group_would_stop_the_proxy(config: dict[str, str], remedy: str) -> None:
    (finding,) = broker_config_findings(Settings(workers=2), config, 3)
    assert finding.severity is Severity.STOP
    assert remedy in finding.remedy


def test_limits_that_the_settings_keep_say_nothing() -> None:
    config = {
        "group.min.session.timeout.ms": "20000",
        "group.max.session.timeout.ms": "40000",
        "group.max.size": "2",
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "transaction.max.timeout.ms": "10000",
    }
    settings = Settings(workers=2, kafka={"session.timeout.ms": "30000"})
    assert list(broker_config_findings(settings, config, 3)) == []


def test_kafkas_own_topics_with_more_replicas_than_brokers_are_warned_of() -> None:
    config = {
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "3",
    }
    (finding,) = broker_config_findings(Settings(), config, 1)
    assert finding.severity is Severity.WARN
    assert "transaction.state.log.replication.factor=1" in finding.remedy


def test_a_topic_that_wants_more_replicas_in_sync_than_it_has_would_stop_the_proxy() -> None:
    topic = TopicConfig("timer.ingress", 1, {"min.insync.replicas": "2"}, 1)
    findings = list(replication_findings([topic], Replication(1, 1)))
    assert [finding.severity for finding in findings] == [Severity.STOP]


def test_a_broker_that_keeps_little_metadata_would_stop_the_proxy() -> None:
    (finding,) = broker_config_findings(Settings(), {"offset.metadata.max.bytes": "100"}, 3)
    assert finding.severity is Severity.STOP


def test_offsets_forgotten_within_a_week_are_warned_of() -> None:
    (finding,) = broker_config_findings(Settings(), {"offsets.retention.minutes": "60"}, 3)
    assert finding.severity is Severity.WARN
    assert "1 h" in finding.found


WANTED = Replication(3, 2)


@pytest.mark.parametrize(
    ("replicas", "confirming", "said"),
    [
        (3, "2", []),
        (5, "4", []),
        (None, "1", []),
        (1, "1", ["replicas: 1; the settings ask for 3"]),
        (3, "1", ["min.insync.replicas is 1, the settings ask for 2"]),
    ],
)
def test_topics_that_one_lost_disk_could_empty_are_warned_of(
    replicas: int | None, confirming: str, said: list[str]
) -> None:
    topic = TopicConfig("timer.ingress", 4, {"min.insync.replicas": confirming}, replicas)
    findings = list(replication_findings([topic], WANTED))
    assert all(finding.severity is Severity.WARN for finding in findings)
    assert [any(part in f.found for f in findings) for part in said] == [True] * len(findings)
