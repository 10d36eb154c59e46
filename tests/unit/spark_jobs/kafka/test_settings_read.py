"""The audit reads the settings topic, and no record there ends the audit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import KafkaError

from proxy.protocol.policy import Policy
from spark_jobs.audit_scope import overdue_rules
from spark_jobs.kafka.broker import Broker, kafka_settings
from spark_jobs.kafka.snapshot import (
    OverdueText,
    OwnTopics,
    PolicyFrom,
    SettingsTopic,
    settings_topic,
)
from spark_jobs.records.hashes import policy_digest
from spark_jobs.requests.policies import least_attempts
from tests.support.hostile_json import HOSTILE

POLICY = Policy(retry_max_attempts=7)
SERVED = b"served/g/in/0"


def _read(*records: tuple[bytes, bytes | None]) -> SettingsTopic:
    end = KafkaError(KafkaError._PARTITION_EOF)
    left = iter([*(_message(*record) for record in records), _message(b"", b"", end)])
    consumer = SimpleNamespace(
        list_topics=lambda *_: None,
        assign=lambda _: None,
        poll=lambda _s: next(left),
        close=lambda: None,
    )
    broker = Broker(kafka_settings("localhost:1"))
    with patch.object(broker, "consumer", lambda _group: consumer):
        return settings_topic(broker, OwnTopics("in"), "g", "id", 1)


def _message(key: bytes, value: bytes | None, error: KafkaError | None = None) -> Any:
    told: dict[str, Any] = {"key": key, "value": value, "error": error, "partition": 0}
    told |= {"topic": "timer.settings", "timestamp": (2, 50)}
    return SimpleNamespace(**{name: lambda one=one: one for name, one in told.items()})


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_under_any_key_is_passed_over_and_said(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text, own = HOSTILE[name], POLICY.to_json().encode()
    keys = [policy_digest(text).encode(), b"hop-key/x", b"overdue/g/x", b"served/g/in/1"]
    served = b'{"topic_id": "id", "policies": [[3, "x"]]}'
    held = _read(*[(key, text) for key in keys], (POLICY.digest.encode(), own), (SERVED, served))
    assert held.policies == {POLICY.digest: own.decode()}
    assert held.served == {0: (PolicyFrom(3, "x"),)}
    assert held.overdue == {}
    said = capsys.readouterr().err
    assert said.count("Skipped a record of timer.settings that cannot be read") >= 3
    assert max(map(len, said.splitlines())) < 500


@pytest.mark.parametrize("text", ["[]", "1", "{}", '{"retry_max_attempts": 0}', "["])
def test_text_that_is_no_policy_says_nothing_of_attempts(text: str) -> None:
    assert least_attempts({"x": text, POLICY.digest: POLICY.to_json()}) == 7
    assert least_attempts({"x": text}) == 16


@pytest.mark.parametrize("name", HOSTILE)
def test_rules_for_the_overdue_that_cannot_be_read_are_no_rules(name: str) -> None:
    text = HOSTILE[name].decode("utf-8", "replace")
    one = f'[{{"targets": "*", "older_than_ms": {text}, "action": "drop"}}]'
    for told in (text, one, one.replace(text, "1.5"), one.replace(text, "1e300")):
        found = overdue_rules([OverdueText(50, told)])
        assert found is not None
        assert found.rules == ()
