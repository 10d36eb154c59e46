"""The settings topic: records read, records skipped, and changes followed."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import structlog
from confluent_kafka import (
    KafkaError,
    KafkaException,
)

from proxy.errors import StartOverRefused
from proxy.kafka import settings_topic
from proxy.kafka.settings_topic import (
    HOP_KEY,
    INGEST,
    LIMITS,
    PAUSED,
    RATE,
    RESUMED,
    SERVED,
    SKIPPED,
    ServedPartition,
    overdue_key,
    pattern_in,
    settings_key,
    skipped_value,
)
from proxy.kafka.topics import TopicFacts
from proxy.protocol.policy import Policy, digest_of
from proxy.protocol.position import MISSED_MOVES_PREFIX, PolicyFrom
from proxy.protocol.proofs import HopKey
from tests.support.hostile_json import HOSTILE
from tests.support.simulation.stand_in import Record
from tests.unit.kafka.settings.followed_topic import GROUP, TOPIC, Topic, following, loaded


def test_all_pauses_there_are_count_once_loaded() -> None:
    topic = Topic()
    topic.note(settings_key(PAUSED, GROUP, "orders-*"), b"{}")
    topic.end(1)
    topic.note(settings_key(PAUSED, GROUP, "bills"), b"{}")
    topic.note(settings_key(PAUSED, GROUP, "bills"), None)
    topic.end(0)
    settings = following(topic)
    settings.load()
    assert settings.controls.paused == {"orders-*"}


def test_loading_that_comes_to_no_end_is_an_error() -> None:
    topic = Topic()
    topic.ends = {0: 3, 1: 0}
    topic.end(1)
    with pytest.raises(KafkaException):
        following(topic).load()


def test_the_last_record_is_the_end() -> None:
    topic = Topic()
    topic.note(settings_key(PAUSED, GROUP, "orders"), b"{}")
    topic.note(settings_key(PAUSED, GROUP, "bills"), b"{}", partition=1)
    settings = following(topic)
    settings.load()
    assert settings.controls.paused == {"orders", "bills"}


def test_where_the_last_offset_is_no_record_the_end_is_waited_for() -> None:
    topic = Topic()
    topic.note(settings_key(PAUSED, GROUP, "orders"), b"{}")
    topic.ends[0] = 2
    topic.end(0)
    following(topic).load()
    assert topic.arrived == []


def test_an_end_that_a_new_leader_reports_too_early_does_not_count() -> None:
    topic, policy = Topic(), Policy(max_delay_ms=5)
    topic.ends = {0: 3, 1: 0}
    topic.end(1)
    topic.end(0, offset=2)
    topic.note(policy.digest, policy.to_json().encode())
    topic.end(0, offset=3)
    settings = following(topic)
    settings.load()
    assert settings.policy(policy.digest) == policy


def test_a_pause_written_since_loading_counts_after_catching_up_from_where_loading_ended() -> None:
    topic = Topic()
    topic.note(settings_key(PAUSED, GROUP, "bills"), b"{}")
    settings = loaded(topic)
    topic.end(1)
    topic.note(settings_key(PAUSED, GROUP, "orders"), b"{}")
    topic.end(0)
    settings.catch_up()
    assert settings.controls.paused == {"bills", "orders"}
    assert topic.assigned == [(0, 1), (1, 0)]


def test_topic_that_is_shorter_than_what_was_read_is_read_anew() -> None:
    topic, policy = Topic(), Policy(max_delay_ms=5)
    for name in "ab":
        topic.note(settings_key(PAUSED, GROUP, name), b"{}")
    settings = loaded(topic)
    topic.begin_anew()
    topic.note(policy.digest, policy.to_json().encode())
    assert settings.policy(policy.digest) == policy
    assert topic.assigned == [(0, 0), (1, 0)]


def test_where_nothing_was_written_since_catching_up_waits_for_nothing() -> None:
    topic = Topic()
    topic.note(settings_key(PAUSED, GROUP, "bills"), b"{}")
    settings = loaded(topic)
    settings.catch_up()
    assert topic.assigned == [(0, 0), (1, 0)]


def test_an_error_while_catching_up_is_raised() -> None:
    topic = Topic()
    settings = loaded(topic)
    topic.ends[0] = 1
    topic.end(0, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        settings.catch_up()


def test_a_look_says_whether_anything_has_changed() -> None:
    topic = Topic()
    settings = following(topic)
    assert not settings.look()
    topic.note(settings_key(PAUSED, GROUP, "orders"), b"{}")
    assert settings.look()
    topic.note(settings_key(PAUSED, GROUP, "orders"), b"{}")
    topic.end(0, KafkaError._TRANSPORT)
    assert not settings.look()
    topic.note(settings_key(PAUSED, GROUP, "orders"), None)
    assert settings.look()
    assert settings.controls.paused == frozenset()


def test_a_look_also_tells_what_was_read_in_between_for_another_reason() -> None:
    topic = Topic()
    settings = loaded(topic)
    topic.note(settings_key(PAUSED, GROUP, "orders"), b"{}")
    topic.end_of_both()
    settings.catch_up()
    assert settings.look()
    assert settings.controls.paused == {"orders"}
    assert not settings.look()


def test_there_is_a_most_of_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_topic, "MOST_PAUSES", 2)
    topic = Topic()
    settings = following(topic)
    for name in "abc":
        topic.note(settings_key(PAUSED, GROUP, name), b"{}")
    with structlog.testing.capture_logs() as logs:
        settings.look()
    assert settings.controls.paused == {"a", "b"}
    assert [entry["name"] for entry in logs] == ["c"]


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"\xff",
        b"0123456789abcdef",
        b"served/delay-proxy/timer.ingress/0",
        b"paused/other/orders",
        b"paused/delay-proxy/",
        b"paused/delay-proxy/a/b",
    ],
)
def test_what_is_not_about_a_pause_of_this_group_is_passed_over(key: bytes | None) -> None:
    topic = Topic()
    topic.arrived.append(Record(TOPIC, 0, 0, key, b"{}", [], 0))
    assert not following(topic).look()
    assert pattern_in(PAUSED, GROUP, (key or b"").decode("utf-8", "replace")) is None


def test_pauses_of_any_group_are_read_without_a_word_and_what_is_odd_with_a_warning() -> None:
    topic = Topic()
    for group in (GROUP, "other"):
        for value in (b"{}", None):
            topic.note(settings_key(PAUSED, group, "orders"), value)
    topic.note("odd", b"{")
    with structlog.testing.capture_logs() as logs:
        loaded(topic)
    assert [entry["key"] for entry in logs] == ["odd"]


def test_policies_and_served_partitions_are_there_once_loaded() -> None:
    topic, policy = Topic(), Policy(max_delay_ms=7)
    topic.note(policy.digest, policy.to_json().encode())
    topic.note(settings_key(SERVED, GROUP, "in", 3), b'{"topic_id": "id"}')
    settings = loaded(topic)
    assert settings.policy(policy.digest) == policy
    assert [settings.served_topic_id("in", p) for p in (3, 4)] == ["id", None]
    topic.end_of_both()
    with pytest.raises(StartOverRefused, match="does not hold"):
        settings.policy("another")


def test_only_what_is_new_is_written() -> None:
    topic, policy = Topic(), Policy(max_delay_ms=7)
    settings = loaded(topic)
    facts, policies = TopicFacts("in", "id", 1), (PolicyFrom(0, policy.digest),)
    for _ in range(2):
        assert settings.ensure(policy) == policy.digest
        settings.record_served(facts, dict.fromkeys((0, 3), policies))
    settings.record_served(facts, dict.fromkeys((3, 4), policies))
    served = ServedPartition("id", policies).to_json()
    assert topic.written == [
        (policy.digest, policy.to_json()),
        *[(settings_key(SERVED, GROUP, "in", partition), served) for partition in (0, 3, 4)],
    ]


def test_an_error_while_loading_ends_the_session() -> None:
    topic = Topic()
    topic.ends[0] = 1
    topic.end(0, KafkaError._TRANSPORT)
    with pytest.raises(KafkaException):
        following(topic).load()


def test_first_key_for_hops_signs_and_every_one_of_that_partition_is_known() -> None:
    topic, first, second, third = Topic(), *(HopKey(bytes([n]) * 32) for n in range(3))
    for key, partition in ((third, 1), (first, 0), (second, 0)):
        topic.note(HOP_KEY + key.digest, key.secret.hex().encode(), partition)
    topic.note(HOP_KEY + "another", third.secret.hex().encode())
    settings = loaded(topic)
    assert settings.signing_key() == first
    assert settings.hop_key(second.digest) == second
    assert topic.written == []
    topic.end_of_both()
    with pytest.raises(StartOverRefused, match=third.digest):
        settings.hop_key(third.digest)


@pytest.mark.parametrize("text", [b"", b"secret", b"\xff", b"{}"])
def test_key_that_is_none_is_passed_over_with_a_warning(text: bytes) -> None:
    topic = Topic()
    topic.note(HOP_KEY + "0123456789abcdef", text)
    with structlog.testing.capture_logs() as logs:
        loaded(topic)
    assert bool(logs) == (text != b"")


def test_key_is_made_where_there_is_none_and_of_two_the_first_one_counts() -> None:
    topic, others = Topic(), HopKey(b"o" * 32)
    settings = loaded(topic)

    def write(key: str, value: str) -> None:
        topic.note(HOP_KEY + others.digest, others.secret.hex().encode())
        topic.note(key, value.encode())
        topic.end(0)
        topic.end(1)

    topic.on_write = write
    assert settings.signing_key() == others
    ((key, value),) = topic.written
    assert HopKey(bytes.fromhex(value)).digest == key.removeprefix(HOP_KEY)
    assert settings.hop_key(key.removeprefix(HOP_KEY)).secret.hex() == value


def test_what_another_instance_has_written_since_is_found_when_a_partition_comes_from_it() -> None:
    topic, policy, key = Topic(), Policy(max_delay_ms=5), HopKey.new()
    settings = loaded(topic)
    topic.note(HOP_KEY + key.digest, key.secret.hex().encode())
    topic.note(policy.digest, policy.to_json().encode())
    topic.end(0)
    topic.end(1)
    assert settings.policy(policy.digest) == policy
    assert settings.hop_key(key.digest) == key


def test_what_another_instance_writes_is_not_lost_by_looking_for_pauses() -> None:
    topic, policy = Topic(), Policy(max_delay_ms=5)
    settings = loaded(topic)
    topic.note(policy.digest, policy.to_json().encode())
    assert not settings.look()
    topic.end_of_both()
    assert settings.policy(policy.digest) == policy


def test_rules_for_the_overdue_are_written_once_for_each_group() -> None:
    topic = Topic()
    topic.note(overdue_key(GROUP, "[]"), b"[]")
    settings = loaded(topic)
    settings.ensure_overdue_rules("[]")
    assert not topic.written
    for _ in range(2):
        settings.ensure_overdue_rules('[{"targets": "x"}]')
    assert [value for _, value in topic.written] == ['[{"targets": "x"}]']
    assert overdue_key("other", "[]") not in {overdue_key(GROUP, "[]"), topic.written[0][0]}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_under_any_key_is_passed_over_and_all_behind_it_counts(name: str) -> None:
    topic, policy, text = Topic(), Policy(max_delay_ms=5), HOSTILE[name]
    keys = [
        *(
            "junk",
            digest_of(text),
            HOP_KEY + "0123456789abcdef",
            f"{MISSED_MOVES_PREFIX}{GROUP}/in/0/0",
        ),
        *(
            settings_key(SERVED, GROUP, "in", 0),
            overdue_key(GROUP, "[]"),
            settings_key(RATE, GROUP, "worker"),
        ),
        *(
            settings_key(RESUMED, GROUP, "a"),
            settings_key(LIMITS, GROUP, "a"),
            settings_key(INGEST, "other", "paused"),
        ),
    ]
    for key in keys:
        topic.note(key, text)
    topic.note(settings_key(PAUSED, GROUP, "orders"), b"{}")
    topic.note(policy.digest, policy.to_json().encode())
    with structlog.testing.capture_logs() as logs:
        settings = loaded(topic)
    assert settings.controls.paused == {"orders"}
    assert settings.policy(policy.digest) == policy
    assert (
        settings.controls.max_per_second,
        settings.controls.resumed,
        settings.controls.limits,
    ) == (None, {}, {})
    assert {"junk", settings_key(SERVED, GROUP, "in", 0), settings_key(RATE, GROUP, "worker")} <= {
        entry["key"] for entry in logs
    }
    topic.end_of_both()
    with pytest.raises(StartOverRefused, match="does not hold"):
        settings.policy(digest_of(text))


def test_policy_that_an_older_version_wrote_is_found_by_the_digest_of_its_own_text() -> None:
    """It lacks later fields, so this version would write another text."""
    topic, policy = Topic(), Policy(max_delay_ms=5)
    fields = asdict(policy)
    later = {"recalls_in", "max_past_ms", "reserved", "marks"}
    old = json.dumps({n: v for n, v in fields.items() if n not in later}, sort_keys=True).encode()
    topic.note(digest_of(old), old)
    settings = loaded(topic)
    assert settings.policy(digest_of(old)) == policy
    assert digest_of(old) != policy.digest


def test_skipped_batches_are_followed_and_count_for_ever() -> None:
    topic = Topic()
    settings, value = loaded(topic), skipped_value(9, "why", 1).encode()
    skipped = settings.skipped("id")
    topic.note(settings_key(SKIPPED, GROUP, "id", 3, 5), value)
    topic.note(
        settings_key(SKIPPED, GROUP, "another id", 3, 20), skipped_value(30, "why", 1).encode()
    )
    topic.note(
        settings_key(SKIPPED, "another group", "id", 3, 40), skipped_value(50, "why", 1).encode()
    )
    settings.look()
    found = [offset for offset in range(60) if skipped.first_in(3, offset, offset)]
    assert found == [5, 6, 7, 8]
    topic.note(settings_key(SKIPPED, GROUP, "id", 3, 5), None)
    topic.note(settings_key(SKIPPED, GROUP, "id", 3, 5), skipped_value(7, "why", 1).encode())
    settings.look()
    assert [at for at in range(60) if skipped.first_in(3, at, at)] == found


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"skipped/{GROUP}/id/3", b'{"end": 9}'),
        (f"skipped/{GROUP}/id/three/5", b'{"end": 9}'),
        (f"skipped/{GROUP}/id/3/5", b'{"end": 5}'),
        (f"skipped/{GROUP}/id/3/5", b'{"end": "9"}'),
        (f"skipped/{GROUP}/id/3/5", b"{}"),
        *((f"skipped/{GROUP}/id/3/5", value) for value in HOSTILE.values()),
    ],
)
def test_a_skip_that_cannot_be_understood_is_passed_over(key: str, value: bytes) -> None:
    topic = Topic()
    settings = loaded(topic)
    topic.note(key, value)
    settings.look()
    assert settings.skipped("id").first_in(3, 0, 100) is None
