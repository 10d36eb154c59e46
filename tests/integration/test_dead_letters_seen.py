"""`dead-letters list` and `show` on a real broker."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.integration.dead_letter_operator import Operator
from tests.support.dead_letters import letter_headers
from tests.support.installation.committing import open_transaction
from tests.support.records import Outgoing, read_to_end, write

pytestmark = pytest.mark.integration

WITHIN_S = 180
START_MS = 1_767_258_000_000
"""2026-01-01T09:00:00Z"""


@pytest.fixture
def operator(kafka: str) -> Operator:
    return Operator(kafka)


def write_at(operator: Operator, times_ms: list[int]) -> None:
    producer = Producer({"bootstrap.servers": operator.kafka})
    refused: list[object] = []
    for number, time_ms in enumerate(times_ms):
        letter = operator.letter(number)
        headers: list[Any] = list(letter.headers)
        producer.produce(
            operator.dead_letters,
            b"v",
            letter.key,
            0,
            on_delivery=lambda error, _: refused.append(error) if error else None,
            timestamp=time_ms,
            headers=headers,
        )
    assert producer.flush(WITHIN_S) == 0
    assert not refused


def keys(operator: Operator, *arguments: str) -> list[str]:
    return [line["key"] for line in operator.say("list", "--json", *arguments).lines]


def test_newest_letters_are_listed_first_and_the_oldest_when_asked(operator: Operator) -> None:
    operator.letters(30)
    assert keys(operator, "--limit", "3") == ["k29", "k28", "k27"]
    assert keys(operator, "--limit", "3", "--oldest-first") == ["k0", "k1", "k2"]
    assert len(keys(operator)) == 20
    (one,) = operator.say("list", "--json", "--limit", "1").lines
    assert one["origin"] == operator.origin(29)
    assert one["written_ms"] > START_MS - 10**11
    assert {
        "reason": "target-refused",
        "detail": "because",
        "target": "secret-orders",
        "value_bytes": 1,
        "partition": 0,
        "offset": 29,
        "replayed_as": None,
    }.items() <= one.items()


def test_letters_of_several_partitions_are_merged_by_time(kafka: str) -> None:
    operator = Operator(kafka, mark="p" + Operator(kafka).mark)
    topic = f"{operator.dead_letters}-two"
    operator.create(topic, 2)
    for number in range(6):
        write(kafka, topic, [Outgoing(b"k%d" % number, b"v", letter_headers(), number % 2)])
    said = operator.say("list", "--json", "-n", "4", DELAY_PROXY_TOPICS__DEAD_LETTERS=topic)
    assert [line["key"] for line in said.lines] == ["k5", "k4", "k3", "k2"]


def test_letters_are_filtered_by_reason_target_and_origin(operator: Operator) -> None:
    operator.letters(4)
    operator.write([Outgoing(b"x", b"", letter_headers("too-large", "orders.eu", "i/0/1"))])
    assert keys(operator, "--reason", "too-large") == ["x"]
    assert keys(operator, "--target", "orders.*") == ["x"]
    assert keys(operator, "--origin", f"{operator.ingress}/1/*") == ["k3", "k1"]
    assert keys(operator, "--reason", "too-large", "--target", "secret-*") == []


def test_letters_are_filtered_by_when_they_were_written(operator: Operator) -> None:
    """The clocks of several proxies may differ a little."""
    write_at(operator, [START_MS, START_MS + 5_000, START_MS + 4_000, START_MS + 9_000])
    after = ("--from", str(START_MS + 4_500))
    assert keys(operator, *after) == ["k3", "k1"]
    assert keys(operator, "--to", str(START_MS + 4_500)) == ["k2", "k0"]
    assert keys(operator, *after, "--to", "2026-01-01T09:00:08Z") == ["k1"]
    assert keys(operator, "--from", str(START_MS + 10_000)) == []


def test_what_was_never_committed_is_not_listed(operator: Operator) -> None:
    operator.letters(2)
    producer = open_transaction(operator.kafka)
    producer.produce(operator.dead_letters, b"v", b"half", headers=letter_headers())  # type: ignore[arg-type]
    assert producer.flush(WITHIN_S) == 0
    assert keys(operator) == ["k1", "k0"]
    producer.abort_transaction(WITHIN_S)
    operator.write([operator.letter(7)])
    read_to_end(operator.kafka, operator.dead_letters, 3)
    assert keys(operator) == ["k7", "k1", "k0"]


def test_plain_list_is_one_line_a_letter(operator: Operator) -> None:
    operator.letters(2)
    operator.write([Outgoing(b"stranger", b"", [])])
    head, first, second, _third = operator.say("list").out.splitlines()
    assert head.split() == ["place", "written", "reason", "target", "key", "origin", "replayed"]
    assert "0/2" in first
    assert "none: not written by the proxy" in first
    assert second.split()[3:] == ["target-refused", "secret-orders", "k1", operator.origin(1)]


def test_list_of_nothing_says_so_and_is_no_error(operator: Operator) -> None:
    said = operator.say("list")
    assert (said.code, said.out) == (0, f"There are no dead letters in {operator.dead_letters}.\n")
    operator.letters(1)
    said = operator.say("list", "--reason", "too-large")
    assert said.code == 0
    assert "No dead letter" in said.out
    assert "matches" in said.out


def test_letter_is_shown_by_its_place_and_by_its_origin(operator: Operator) -> None:
    operator.letters(3, more=[("trace", b"7")])
    by_place, by_origin = operator.say("show", "0/1"), operator.say("show", operator.origin(1))
    assert by_place == by_origin
    assert by_place.code == 0
    for line in (
        "reason    target-refused: the target is a topic of the proxy",
        "detail    because",
        "replayed  no",
        "key       k1",
        "          trace: 7",
        "value     1 byte\nv",
    ):
        assert line in by_place.out


def test_value_is_written_out_byte_for_byte(operator: Operator) -> None:
    operator.letters(1, value=bytes(range(256)))
    assert "00000010  10 11 12" in operator.say("show", "0/0").out
    (shown,) = operator.say("show", "0/0", "--json").lines
    assert base64.b64decode(shown["value_base64"]) == bytes(range(256))
    operator.write([operator.letter(1, value=b"x\n" * 5_000)])
    assert "8,000 characters more; --raw" in operator.say("show", "0/1").out
    assert operator.say("show", "0/1", "--raw").out == "x\n" * 5_000


def test_letter_without_a_value_says_where_its_value_is(operator: Operator) -> None:
    own = [("timer-topic", b"secret-orders")]
    write(
        operator.kafka,
        operator.ingress,
        [Outgoing(b"k0", b"huge", own, 0), Outgoing(b"k2", None, own, 0)],
    )
    operator.letters(1, value=None)
    operator.write([Outgoing(b"k2", None, letter_headers(origin=f"{operator.ingress}/0/1"))])
    operator.write([Outgoing(b"k9", None, letter_headers(origin=f"{operator.ingress}/0/9"))])
    assert "4 bytes, too large for this topic. They are still in" in operator.say("show", "0/0").out
    assert operator.say("show", "0/0", "--raw").out == "huge"
    assert "null, as in the ingress" in operator.say("show", "0/1").out
    assert "is no longer in the ingress" in operator.say("show", "0/2").out


@pytest.mark.parametrize(
    ("place", "code", "sentence"),
    [
        ("0/5", 1, "partition 0 of {topic} holds offsets 0 to 1"),
        ("3/0", 1, "{topic} has no partition 3: it has 0 to 0"),
        ("timer.ingress/0/5", 1, "No dead letter in {topic} came from timer.ingress/0/5"),
        ("five", 2, "is not a dead letter"),
    ],
)
def test_place_where_nothing_lies_is_told_in_a_sentence(
    operator: Operator, place: str, code: int, sentence: str
) -> None:
    operator.letters(2)
    said = operator.say("show", place)
    assert (said.code, said.out) == (code, "")
    assert sentence.format(topic=operator.dead_letters) in said.err


def test_topic_that_is_not_there_and_broker_that_is_away_are_sentences(operator: Operator) -> None:
    said = operator.say("list", DELAY_PROXY_TOPICS__DEAD_LETTERS="nobody-has-this")
    assert said.code == 1
    assert "The dead-letter topic nobody-has-this does not exist" in said.err
    assert "--config" in said.err
    said = operator.say("list", "--bootstrap", "127.0.0.1:1")
    assert said.code == 1
    assert "No Kafka broker answers at 127.0.0.1:1" in said.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("list", "--reason", "to-large"), "did you mean too-large?"),
        (("list", "--from", "yesterday"), "or an age"),
        (("list", "--from", "1h", "--to", "2h"), "--from must be before --to"),
        (("replay", "--yes", "--set", "timer-topic"), "write name=value"),
        (
            ("replay", "--yes", "--set", "timer-origin=x"),
            "is written by the proxy and cannot be changed",
        ),
        (("replay", "--yes", "--rate", "fast"), "is not a rate"),
        (("replay", "--yes", "0/1", "--reason", "too-large"), "not both"),
        (("replay",), "look with --dry-run first"),
    ],
)
def test_wrong_use_is_told_before_the_broker_is_asked(
    operator: Operator, arguments: tuple[str, ...], sentence: str
) -> None:
    said = operator.say(*arguments, "--bootstrap", "127.0.0.1:1")
    assert (said.code, said.out) == (2, "")
    assert sentence in " ".join(said.err.replace("│", " ").split())
