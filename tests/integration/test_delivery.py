"""The main journey on a real broker: each requested header takes effect, to the byte."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.support.installation.installation import Installation
from tests.support.oracle.ends import Ends
from tests.support.records import Headers, Incoming, Outgoing

pytestmark = [pytest.mark.integration, pytest.mark.core]

JUNK = bytes(range(256))
LARGE_BYTES = 900_000


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _headers(topic: str, **asked: bytes) -> Headers:
    named = [(f"timer-{name.replace('_', '-')}", value) for name, value in asked.items()]
    return [("timer-topic", topic.encode()), *named]


class Journey:
    """Requests of one proxy run, named by the first word of their values."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._records: list[Outgoing] = []
        self.topic = installation.target(partitions=3)
        self.ends = Ends()

    def ask(self, name: str, *more: tuple[str, bytes | None], **asked: bytes) -> None:
        headers = [*_headers(self.topic, **asked), *more]
        self.send(Outgoing(b"key", f"{name} and its value".encode(), headers))

    def send(self, record: Outgoing) -> None:
        self._records.append(record)

    def run(self) -> None:
        self._installation.send(self._records)
        self._installation.proxy().start_ready()
        self.ends = self._installation.judge()

    def all(self) -> list[Incoming]:
        return [p.record for found in self.ends.deliveries.values() for p in found]

    def delivered(self, name: str) -> Incoming:
        first_word = name.encode() + b" "
        (record,) = [r for r in self.all() if (r.value or b"").startswith(first_word)]
        return record

    def waited_ms(self, name: str) -> int:
        record = self.delivered(name)
        sent = self.ends.ingress[(record.header("timer-origin") or b"").decode()]
        return int(record.header("timer-due") or b"") - sent.timestamp_ms


@pytest.fixture(scope="module")
def asked_ms() -> int:
    return _now_ms() + 6_000


@pytest.fixture(scope="module")
def journey(
    kafka: str, tmp_path_factory: pytest.TempPathFactory, asked_ms: int
) -> Iterator[Journey]:
    installation = Installation(kafka, tmp_path_factory.mktemp("journey"))
    told = Journey(installation)
    _ask_for_times(told, asked_ms)
    _ask_for_places(told)
    _ask_for_odd_bytes(told)
    try:
        told.run()
        yield told
    finally:
        installation.close()


def _ask_for_times(told: Journey, asked_ms: int) -> None:
    moment = datetime.fromtimestamp(asked_ms / 1000, UTC)
    east = moment.astimezone(timezone(timedelta(hours=5, minutes=30)))
    told.ask("epoch", deliver_at=b"%d" % asked_ms)
    told.ask("zulu", deliver_at=moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").encode())
    told.ask("offset", deliver_at=east.isoformat(timespec="milliseconds").encode())
    told.ask("past", deliver_at=b"1000")
    for form in ("1500", "1500ms", "2s", "PT2S", "PT1.5S", "0m", "0h", "0d", "P0D"):
        told.ask(f"delay:{form}", delay=form.encode())
    for level in ("0", "1", "2"):
        told.ask(f"level:{level}", level=level.encode())
    told.ask("at-once")
    told.ask("absolute-first", deliver_at=b"%d" % asked_ms, delay=b"0", level=b"0")
    told.ask("relative-first", delay=b"100", level=b"1")
    told.ask("last-counts", ("timer-delay", b"1d"), ("timer-delay", b"300"), delay=b"1h")


def _ask_for_places(told: Journey) -> None:
    told.ask("own-key", key=b"another")
    told.ask("empty-key", key=b"")
    for partition in range(3):
        told.ask(f"partition:{partition}", partition=b"%d" % partition)
    for number in range(40):
        key = f"key {number} é".encode()
        told.send(Outgoing(key, b"murmur2 %d" % number, _headers(told.topic)))
        told.send(Outgoing(None, b"keyless %d" % number, _headers(told.topic)))


def _ask_for_odd_bytes(told: Journey) -> None:
    told.send(Outgoing(JUNK, b"junk " + JUNK, [*_headers(told.topic), ("junk", JUNK)]))
    told.send(Outgoing(b"null-value", None, _headers(told.topic)))
    told.send(Outgoing(None, b"", [*_headers(told.topic, delay=b"50"), ("empty", b"")]))
    told.send(Outgoing(b"large", b"large " + b"x" * LARGE_BYTES, _headers(told.topic)))
    told.ask("repeated", ("a", b"1"), ("b", None), ("a", b"2"), ("", b"nameless"), ("é", b"3"))


@pytest.mark.parametrize("form", ["epoch", "zulu", "offset", "absolute-first"])
def test_instant_is_the_same_in_every_form(journey: Journey, asked_ms: int, form: str) -> None:
    assert journey.delivered(form).header("timer-due") == b"%d" % asked_ms


def test_instant_in_the_past_is_delivered_at_once(journey: Journey) -> None:
    assert journey.delivered("past").header("timer-due") == b"1000"


@pytest.mark.parametrize(
    ("form", "delay_ms"),
    [
        *[("1500", 1500), ("1500ms", 1500), ("2s", 2000), ("PT2S", 2000), ("PT1.5S", 1500)],
        *[("0m", 0), ("0h", 0), ("0d", 0), ("P0D", 0)],
    ],
)
def test_delay_counts_from_the_timestamp_in_every_form(
    journey: Journey, form: str, delay_ms: int
) -> None:
    assert journey.waited_ms(f"delay:{form}") == delay_ms


@pytest.mark.parametrize(("level", "delay_ms"), [("0", 0), ("1", 1000), ("2", 5000)])
def test_level_is_looked_up_in_the_table(journey: Journey, level: str, delay_ms: int) -> None:
    assert journey.waited_ms(f"level:{level}") == delay_ms


def test_record_that_names_no_time_is_due_as_it_is_written(journey: Journey) -> None:
    assert journey.waited_ms("at-once") == 0


def test_delay_beats_level_and_the_last_of_a_repeated_header_counts(journey: Journey) -> None:
    assert journey.waited_ms("relative-first") == 100
    assert journey.waited_ms("last-counts") == 300


def test_key_asked_for_replaces_the_records_own(journey: Journey) -> None:
    assert journey.delivered("own-key").key == b"another"
    assert journey.delivered("empty-key").key == b""


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_partition_asked_for_is_taken(journey: Journey, partition: int) -> None:
    assert journey.delivered(f"partition:{partition}").partition == partition


def test_keys_go_where_java_clients_would_send_them(journey: Journey) -> None:
    for number in range(40):
        record = _numbered(journey, number)
        assert record.partition == (_murmur2(record.key or b"") & 0x7FFFFFFF) % 3


def _numbered(journey: Journey, number: int) -> Incoming:
    (record,) = [r for r in journey.all() if r.value == b"murmur2 %d" % number]
    return record


def _murmur2(key: bytes) -> int:
    """Return Kafka's partitioner hash (org.apache.kafka.common.utils.Utils.murmur2)."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    mixed = 0x9747B28C ^ len(key)
    whole = len(key) - len(key) % 4
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * factor & mask
        word = (word ^ word >> 24) * factor & mask
        mixed = (mixed * factor & mask) ^ word
    if whole < len(key):
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * factor & mask
    mixed = (mixed ^ mixed >> 13) * factor & mask
    return mixed ^ mixed >> 15


def test_records_without_key_are_spread_over_the_partitions(journey: Journey) -> None:
    keyless = [r for r in journey.all() if (r.value or b"").startswith(b"keyless")]
    assert len(keyless) == 40
    assert all(record.key is None for record in keyless)
    assert len({record.partition for record in keyless}) > 1


def test_bytes_of_any_kind_arrive_unchanged(journey: Journey) -> None:
    junk = journey.delivered("junk")
    assert (junk.key, junk.value, junk.headers[0]) == (JUNK, b"junk " + JUNK, ("junk", JUNK))
    assert len(journey.delivered("large").value or b"") == LARGE_BYTES + len("large ")


def test_null_values_stay_null_and_empty_ones_empty(journey: Journey) -> None:
    assert [r.value for r in journey.all() if r.key == b"null-value"] == [None]
    assert [r.key for r in journey.all() if r.value == b""] == [None]


def test_repeated_null_and_nameless_headers_keep_their_order(journey: Journey) -> None:
    headers = journey.delivered("repeated").headers
    assert headers[:5] == [("a", b"1"), ("b", None), ("a", b"2"), ("", b"nameless"), ("é", b"3")]
    assert [name for name, _ in headers[5:]] == ["timer-origin", "timer-due"]


def test_nothing_of_the_journey_was_dead_lettered(journey: Journey) -> None:
    assert journey.ends.counts.keys() == {"delivered"}
