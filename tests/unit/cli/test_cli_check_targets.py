"""Findings of `check` on targets, with fake broker answers."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from proxy.cli import check_broker as targets
from proxy.cli.check_broker import Refused
from proxy.config.settings import Settings, TargetSettings

RIGHTS = ("WRITE", "DESCRIBE")


def topic(*rights: str) -> object:
    return SimpleNamespace(authorized_operations=[SimpleNamespace(name=one) for one in rights])


def refused(code: int) -> Refused:
    return Refused(KafkaError(code))


def found(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, object], allow: tuple[str, ...]
) -> list[tuple[str, str, str, str]]:
    there = [name for name, one in answers.items() if not isinstance(one, Refused)]
    admin = SimpleNamespace(list_topics=lambda **_: SimpleNamespace(topics=there))
    monkeypatch.setattr(
        targets, "describe_topics", lambda _admin, names: {name: answers[name] for name in names}
    )
    settings = Settings(targets=TargetSettings(allow=allow, deny=("denied",)))
    return [one.as_row() for one in targets.target_findings(settings, cast(Any, admin))]


def test_a_named_target_that_is_missing_or_closed_is_said_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {
        "orders": topic(*RIGHTS),
        "bills": topic("DESCRIBE"),
        "gone": refused(KafkaError.UNKNOWN_TOPIC_OR_PART),
        "secret": refused(KafkaError.TOPIC_AUTHORIZATION_FAILED),
    }
    rows = found(monkeypatch, answers, ("orders", "bills", "gone", "secret"))
    assert [row[:2] for row in rows] == [
        ("warn", "target bills"),
        ("warn", "target gone"),
        ("warn", "target secret"),
        ("ok", "targets"),
    ]
    assert "--operation Write --topic bills" in rows[0][3]
    assert "Create the topic" in rows[1][3]
    assert "--operation Write --operation Describe --topic secret" in rows[2][3]
    assert rows[3][2] == "1 of 4 topics are writable"


def test_of_a_pattern_the_existing_topics_that_fit_are_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {
        "orders-eu": topic(*RIGHTS),
        "orders-us": topic("DESCRIBE"),
        "bills": topic("DESCRIBE"),
        "denied": topic("DESCRIBE"),
        "timer.ingress": topic("DESCRIBE"),
        "__consumer_offsets": topic("DESCRIBE"),
    }
    rows = found(monkeypatch, answers, ("orders-*",))
    assert [row[:2] for row in rows] == [("advice", "target orders-us"), ("ok", "targets")]
    rows = found(monkeypatch, answers, ("*",))
    assert [row[1] for row in rows] == ["target bills", "target orders-us", "targets"]


def test_so_many_topics_are_asked_about_and_so_many_faults_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = {f"t{number:04}": topic("DESCRIBE") for number in range(1_000)}
    rows = found(monkeypatch, answers, ("*",))
    assert len(rows) == targets.SHOWN + 2
    assert rows[-1][2] == "0 of 200 topics are writable; 800 more were not checked"
