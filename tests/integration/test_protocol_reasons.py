"""Every reason for a dead letter on a real broker. None delays the records around it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from proxy.protocol.outcomes import REASONS
from tests.support.installation.installation import Installation
from tests.support.oracle.ends import Ends
from tests.support.raw_produce import NOT_UTF_8, produce_raw
from tests.support.records import Headers, Outgoing

pytestmark = [pytest.mark.integration, pytest.mark.core]

JUNK = bytes(range(128, 256))
SMALL_BYTES = 2_000
SHOWN_ELSEWHERE = {
    "not-authorised",
    "partition-unavailable",
    "body-gone",
    "transaction-expired",
    "overdue",
    "header-unsupported",
    "defect",
    "record-unreadable",
}
"""Other tests cover these reasons: test_protocol_authorisation, test_bodies_in_kafka,
test_half_messages, test_unreadable_batch and the tests of release control.

A missing leader is in faults/test_unavailable_targets and unit/dispatch/test_dispatcher. Headers
that an older policy did not serve are in unit/protocol. No real defect is known, so
unit/session/test_forged_hops makes one.
"""

ASKED: dict[str, dict[str, bytes | None]] = {
    "header-unknown": {"dely": b"5s"},
    "target-missing": {"topic": None},
    "target-illegal": {"topic": b"no topic!"},
    "target-refused": {"topic": b"__consumer_offsets"},
    "time-unreadable": {"delay": b"ten minutes"},
    "level-unknown": {"level": b"highest"},
    "delay-too-long": {"delay": b"367d"},
    "time-past": {"deliver-at": b"1767258000"},
    "id-bad": {"id": b""},
    "retry-bad": {"retry-group": b"g", "attempt": b"-1"},
    "transaction-bad": {"transaction": b"perhaps", "id": b"t"},
    "hop-bad": {"hop-from": b"x"},
    "partition-bad": {"partition": b"-1"},
    "target-unknown": {"topic": b"nobody-made-this-topic"},
}
FORGED_HOP: dict[str, bytes | None] = {"hop-from": b"0", "first-origin": b"timer.ingress/0/0"}
ALSO: dict[str, tuple[str, dict[str, bytes | None]]] = {
    "target of two dots": ("target-illegal", {"topic": b".."}),
    "target too long": ("target-illegal", {"topic": b"t" * 250}),
    "target denied": ("target-refused", {"topic": b"secret-orders"}),
    "time without zone": ("time-unreadable", {"deliver-at": b"2027-01-01T00:00:00"}),
    "time far off": ("delay-too-long", {"deliver-at": b"9" * 15}),
    "time too long": ("time-unreadable", {"deliver-at": b"9" * 16}),
    "time negative": ("time-unreadable", {"deliver-at": b"-1"}),
    "time null": ("time-unreadable", {"deliver-at": None}),
    "delay null": ("time-unreadable", {"delay": None}),
    "level null": ("level-unknown", {"level": None}),
    "partition null": ("partition-bad", {"partition": None}),
    "partition beyond the target's": ("partition-bad", {"partition": b"3"}),
    "partition beyond all": ("partition-bad", {"partition": b"99999999999"}),
    "junk as target": ("target-illegal", {"topic": JUNK}),
    "junk as instant": ("time-unreadable", {"deliver-at": JUNK}),
    "junk as delay": ("time-unreadable", {"delay": JUNK}),
    "junk as level": ("level-unknown", {"level": JUNK}),
    "junk as partition": ("partition-bad", {"partition": JUNK}),
    "cancel of nothing": ("id-bad", {"cancel": b""}),
    "id of 10 kB": ("id-bad", {"id": b"x" * 10_000}),
    "cancel of 10 kB": ("id-bad", {"cancel": b"x" * 10_000}),
    "prepare without an id": ("id-bad", {"transaction": b"prepare"}),
    "commit without an id": ("id-bad", {"transaction": b"commit"}),
    "recall of itself": ("recall-bad", {"recall": b"timer.ingress/0/0"}),
    "recall of junk": ("recall-bad", {"recall": JUNK}),
    "attempt in words": ("retry-bad", {"retry-group": b"g", "attempt": b"second"}),
    "attempt of nobody": ("retry-bad", {"attempt": b"1"}),
    "group that makes no topic": ("target-illegal", {"topic": None, "retry-group": b"no group!"}),
    "expiry by a producer": ("transaction-bad", {"transaction": b"expire", "id": b"t"}),
    "forged purge": ("purge-bad", {"purge": b"*"}),
    "forged hop": ("hop-bad", FORGED_HOP),
    "forged hop beyond all time": ("hop-bad", {**FORGED_HOP, "delay": b"999999999999d"}),
    "forged hop with an id and a MAC": (
        "hop-bad",
        {**FORGED_HOP, "id": b"i", "hop-mac": b"0" * 32},
    ),
    "other digits": ("time-unreadable", {"delay": "٣".encode()}),
}
WRONG = len(ASKED) + len(ALSO)


class Story:
    """A proxy run with undeliverable records among good ones."""

    def __init__(self, kafka: str, installation: Installation) -> None:
        self.installation = installation
        self.orders = installation.target(partitions=3)
        self.compacted = installation.target("compacted", config={"cleanup.policy": "compact"})
        self.small = installation.target("small", config={"max.message.bytes": str(SMALL_BYTES)})
        self.ends = Ends()
        self._kafka = kafka

    def run(self) -> None:
        proxy = self.installation.proxy(
            targets={"deny": ["secret-*"]}, retry={"max_attempts": 1}, max_past="366d"
        )
        self._write()
        proxy.start_ready()
        self._write()
        self.ends = self.installation.judge()

    def reasons(self, name: str) -> list[str]:
        return [
            (letter.header("timer-error") or b"").decode()
            for letters in self.ends.dead_letters.values()
            for letter in letters
            if letter.header("name") == name.encode()
        ]

    def _write(self) -> None:
        asked = {**{code: (code, fields) for code, fields in ASKED.items()}, **ALSO}
        among: list[Outgoing] = []
        for name, (_code, fields) in asked.items():
            among += [self._good(), self._record(name, fields), self._good()]
        self.installation.send([*among, *self._refused_by_the_broker(), self._good()])
        unreadable = [(b"timer-topic", self.orders.encode()), (NOT_UTF_8, b"1")]
        produce_raw(self._kafka, self.installation.ingress, b"unreadable", unreadable)
        self.installation.send([self._good()] * 10)

    def _good(self) -> Outgoing:
        return Outgoing(b"k", b"good", [("timer-topic", self.orders.encode())])

    def _record(self, name: str, fields: dict[str, bytes | None]) -> Outgoing:
        asked: dict[str, bytes | None] = {"topic": self.orders.encode(), **fields}
        headers: Headers = [(f"timer-{field}", value) for field, value in asked.items()]
        if fields == {"topic": None}:
            headers = []
        return Outgoing(b"key", b"value", [*headers, ("name", name.encode())])

    def _refused_by_the_broker(self) -> Iterator[Outgoing]:
        """Yield too large records beside small ones, and keyless ones for a compacted topic."""
        for number in range(30):
            large = b"x" * (2 * SMALL_BYTES if number % 10 == 0 else 100)
            name = b"too-large" if number % 10 == 0 else b""
            to_small = [("timer-topic", self.small.encode()), ("name", name)]
            yield Outgoing(b"k%d" % number, large, to_small)
            key = None if number % 10 == 0 else b"k%d" % number
            name = b"publish-failed" if key is None else b""
            to_compacted = [("timer-topic", self.compacted.encode()), ("name", name)]
            yield Outgoing(key, b"v", to_compacted)


@pytest.fixture(scope="module")
def story(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    installation = Installation(kafka, tmp_path_factory.mktemp("reasons"), partitions=1)
    told = Story(kafka, installation)
    try:
        told.run()
        yield told
    finally:
        installation.close()


@pytest.mark.parametrize("reason", ASKED)
def test_record_is_dead_lettered_for_its_reason(story: Story, reason: str) -> None:
    assert story.reasons(reason) == [reason, reason]


@pytest.mark.parametrize("name", ALSO)
def test_other_ways_to_be_wrong_have_the_same_reasons(story: Story, name: str) -> None:
    assert set(story.reasons(name)) == {ALSO[name][0]}


def test_record_too_large_for_its_target_goes_alone(story: Story) -> None:
    assert story.reasons("too-large") == ["too-large"] * 6


def test_record_the_broker_refuses_for_another_reason_goes_alone(story: Story) -> None:
    assert story.reasons("publish-failed") == ["publish-failed"] * 6


def test_header_name_that_is_not_utf_8_ends_the_record_and_not_the_proxy(story: Story) -> None:
    letters = [
        letter
        for found in story.ends.dead_letters.values()
        for letter in found
        if letter.value == b"unreadable"
    ]
    assert [letter.header("timer-error") for letter in letters] == [b"header-unreadable"] * 2
    assert len(story.installation.proxy().whole_log.split('"proxy started"')) == 2


def test_all_reasons_are_shown_and_no_others_are_given(story: Story) -> None:
    given = {
        (letter.header("timer-error") or b"").decode()
        for letters in story.ends.dead_letters.values()
        for letter in letters
    }
    assert given == set(REASONS) - SHOWN_ELSEWHERE


def test_good_records_around_the_bad_ones_all_arrive(story: Story) -> None:
    delivered = [p.record for found in story.ends.deliveries.values() for p in found]
    assert sum(record.value == b"good" for record in delivered) == 2 * (2 * WRONG + 1 + 10)
    assert story.ends.counts["dead-lettered"] == 2 * (WRONG + 3 + 3 + 1)
