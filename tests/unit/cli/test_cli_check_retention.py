"""`check` compares the ingress retention with the time that rewriting needs."""

from typing import Any

import pytest

from proxy.cli.check_configs import Finding, Severity, TopicConfig, retention_findings
from proxy.config.settings import Settings
from proxy.kafka.topics import own_topics

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def settings(**values: Any) -> Settings:
    return Settings.model_validate(values)


def found(config: dict[str, str], **values: Any) -> list[Finding]:
    return list(retention_findings(settings(**values), TopicConfig("timer.ingress", 4, config)))


def kept(retention_ms: int, **values: Any) -> list[Finding]:
    return found({"retention.ms": str(retention_ms)}, **values)


def test_the_topic_that_the_proxy_makes_is_long_enough() -> None:
    made = own_topics(Settings())["timer.ingress"]
    (finding,) = found({"segment.ms": str(7 * DAY_MS), "retention.bytes": "-1", **made})
    assert finding.severity is Severity.OK
    assert finding.found == (
        "keeps records 14 d (retention.ms=1209600000); records pending for longer "
        "than 7 d are rewritten, "
        "so the proxy may be down for at most 7 d"
    )


def test_a_topic_that_keeps_all_is_long_enough() -> None:
    (finding,) = kept(-1)
    assert finding.severity is Severity.OK


def test_records_shorter_than_all_retention_are_never_rewritten() -> None:
    (finding,) = kept(3 * DAY_MS, max_delay="1d")
    assert finding.severity is Severity.OK
    assert "max_delay is 1 d, so the proxy may be down for at most 2 d" in finding.found


def test_little_time_to_be_down_is_warned_of_with_what_to_do() -> None:
    (finding,) = kept(DAY_MS)
    assert finding.severity is Severity.WARN
    assert "the proxy may be down for at most 12 h" in finding.found
    assert f"retention.ms to at least {DAY_MS // 2 + DAY_MS}" in finding.remedy


@pytest.mark.parametrize("roll_after", ["14d", "20d"])
def test_rewriting_when_it_is_too_late_is_a_stop(roll_after: str) -> None:
    (finding,) = kept(14 * DAY_MS, roll_after=roll_after)
    assert finding.severity is Severity.STOP
    assert "`roll_after: auto`" in finding.remedy


def test_rewriting_too_late_does_not_matter_where_nothing_waits_so_long() -> None:
    (finding,) = kept(14 * DAY_MS, roll_after="20d", max_delay="1d")
    assert finding.severity is Severity.OK


def test_half_messages_may_not_stay_undecided_for_most_of_the_retention() -> None:
    long_asked = {"check_interval": "1d", "max_checks": 8}
    findings = kept(14 * DAY_MS, transactions=long_asked)
    assert [finding.severity for finding in findings] == [Severity.OK, Severity.WARN]
    assert "may stay undecided for 8 d" in findings[1].found


def test_segments_that_stay_open_for_longer_than_all_is_kept_take_room() -> None:
    config = {"retention.ms": str(2 * DAY_MS), "segment.ms": str(7 * DAY_MS)}
    findings = [one for one in found(config) if one.severity is Severity.ADVICE]
    assert ["for up to 9 d" in one.found for one in findings] == [True]


def test_retention_by_size_outruns_rewriting() -> None:
    (_, finding) = found({"retention.ms": "-1", "retention.bytes": "1000000"})
    assert finding.severity is Severity.WARN
    assert "retention.bytes=-1" in finding.remedy


def test_without_the_retention_nothing_is_rewritten() -> None:
    (finding,) = found({})
    assert finding.severity is Severity.WARN
    assert "DescribeConfigs" in finding.remedy
    assert found({}, roll_after="7d") == []
