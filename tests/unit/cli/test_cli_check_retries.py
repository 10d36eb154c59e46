"""`check` finds retry settings under which failures would not be retried."""

from typing import Any

from confluent_kafka import KafkaError

from proxy.cli.check import settings_findings
from proxy.cli.check_broker import (
    Refused,
    group_topic_findings,
    group_topics,
    retry_settings_findings,
)
from proxy.cli.check_configs import Finding, Severity
from proxy.config.settings import Settings

MISSING = Refused(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
HIDDEN = Refused(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


def may_create(_topic: str) -> bool:
    return True


def settings(**values: Any) -> Settings:
    return Settings.model_validate(values)


def found(**values: Any) -> list[Finding]:
    return list(retry_settings_findings(settings(**values)))


def test_the_defaults_give_nothing_to_do() -> None:
    assert found() == []


def test_a_first_level_beyond_the_table_is_advised_against() -> None:
    (finding,) = found(retry={"first_level": 30})
    assert finding.severity is Severity.ADVICE
    assert "Each retry is delayed by 2 h" in finding.remedy


def test_one_prefix_for_both_would_retry_for_ever() -> None:
    (finding,) = found(topics={"retry_prefix": "again.", "dlq_prefix": "again."})
    assert finding.severity is Severity.WARN


def test_a_prefix_that_makes_no_topic_name_is_a_stop() -> None:
    findings = found(topics={"retry_prefix": "retry/"})
    assert [finding.severity for finding in findings] == [Severity.STOP]


def test_a_prefix_that_is_denied_is_warned_of() -> None:
    (finding,) = found(targets={"deny": ["retry.*"]})
    assert finding.severity is Severity.WARN
    assert "targets.deny" in finding.found


def test_narrowed_targets_without_a_group_that_is_served_are_pointed_out() -> None:
    (finding,) = found(targets={"allow": ["safe-*"]})
    assert finding.severity is Severity.ADVICE
    assert "retries end as dead letters" in finding.found
    assert found(targets={"allow": ["safe-*", "retry.*"]}) == []
    assert found(targets={"allow": ["safe-*"]}, retry={"groups": {"pay": {}}}) == []


def test_topics_of_named_groups_must_be_there_where_the_proxy_makes_none() -> None:
    groups = {"groups": {"slow": {"first_level": 5}}}
    by_hand = settings(retry=groups, topics={"create": False})
    assert group_topics(by_hand) == ["retry.slow", "dlq.slow"]
    described = {"retry.slow": MISSING, "dlq.slow": HIDDEN}
    findings = list(group_topic_findings(by_hand, described, may_create))
    assert "does not exist" in findings[0].found
    assert findings[1].found == "the proxy's user lacks Write, Describe"
    assert "--operation Write --operation Describe --topic dlq.slow" in findings[1].remedy
    assert len(list(group_topic_findings(settings(retry=groups), described, may_create))) == 1


def test_a_group_whose_topics_may_not_be_created_is_warned_of() -> None:
    groups = settings(retry={"groups": {"slow": {"first_level": 5}}})
    described = {"retry.slow": MISSING, "dlq.slow": MISSING}
    findings = list(group_topic_findings(groups, described, lambda topic: topic == "dlq.slow"))
    assert [finding.severity for finding in findings] == [Severity.WARN]
    assert "--operation Create --topic retry.slow" in findings[0].remedy


def test_etf1_s_deletions_are_pointed_out() -> None:
    findings = [
        one
        for one in settings_findings(settings(header_aliases=["etf1", "nats"]))
        if one.subject == "header_aliases"
    ]
    assert [one.severity for one in findings] == [Severity.OK, Severity.ADVICE]
    assert "etf1, nats" in findings[0].found
