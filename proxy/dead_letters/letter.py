"""Dead letters: where one lies, why it is one, and what a person does about it. Pure.

A letter of the proxy: docs/guide.md#what-does-not-arrive. A letter of a consumer group:
docs/client.md#retries.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from proxy.protocol.body import Headers, Message, last_header
from proxy.protocol.headers import (
    ERROR,
    ERROR_DETAIL,
    FIRST_ORIGIN,
    ORIGIN,
    ORIGINAL_OFFSET,
    ORIGINAL_PARTITION,
    ORIGINAL_TOPIC,
    RETRY_ATTEMPT,
    RETRY_EXCEPTION,
    TOPIC,
    text_of,
)
from proxy.protocol.outcomes import REASONS
from proxy.protocol.position import LAST_OFFSET

LAST_PARTITION: Final = 2**31 - 1
LONGEST_REASON: Final = 80
NOT_SAID: Final = "unknown"
_PLACE: Final = re.compile(r"(\d{1,10})/(\d{1,19})", re.ASCII)
_ORIGIN: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})/(\d{1,10})/(\d{1,19})", re.ASCII)


class Place(NamedTuple):
    """Where a letter lies in the dead-letter topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"


class Origin(NamedTuple):
    """A record's topic, partition and offset."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Letter:
    """One record of the dead-letter topic. Other programs may write there too."""

    place: Place
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def is_ours(self) -> bool:
        """Whether the proxy has written it."""
        return any(name == ERROR for name, _ in self.headers)

    @property
    def reason(self) -> str | None:
        """The code of the error. None if the proxy did not write the record."""
        return self.text(ERROR)

    @property
    def detail(self) -> str | None:
        return self.text(ERROR_DETAIL)

    @property
    def origin(self) -> Origin | None:
        """The ingress record that became this letter. None if the header is missing."""
        return read_origin(self.text(ORIGIN) or "")

    @property
    def first_origin(self) -> str | None:
        """The first of all origins, if the record was replayed before."""
        return self.text(FIRST_ORIGIN)

    @property
    def target(self) -> str | None:
        """The topic that the record asked for."""
        return self.text(TOPIC)

    @property
    def lacks_value(self) -> bool:
        """Whether the value may have been left out. Only the original tells."""
        return self.value is None and self.is_ours

    @property
    def meaning(self) -> str:
        return meaning(self.reason or "")

    @property
    def remedy(self) -> str:
        return remedy(self.reason or "")

    def text(self, name: str) -> str | None:
        """Return the last header of that name as text."""
        raw = last_header(self.headers, name)
        return None if raw is None else text_of(raw)


@dataclass(frozen=True, slots=True)
class GroupLetter(Letter):
    """One record of `dlq.<group>`: the group's consumers gave it up, and the proxy delivered it.

    `origin` is the request with which the consumer gave up. `target` is the topic of the record
    that the consumer could not process.
    """

    @property
    def is_ours(self) -> bool:
        return self.text(ORIGIN) is not None

    @property
    def reason(self) -> str | None:
        """The first line of the consumer's last exception."""
        if not self.is_ours:
            return None
        lines = (self.text(RETRY_EXCEPTION) or "").strip().splitlines()
        return lines[0][:LONGEST_REASON] if lines else NOT_SAID

    @property
    def detail(self) -> str | None:
        """The whole exception."""
        return self.text(RETRY_EXCEPTION)

    @property
    def target(self) -> str | None:
        return self.text(ORIGINAL_TOPIC)

    @property
    def lacks_value(self) -> bool:
        """Always False: a record too large for this topic is a dead letter of the proxy."""
        return False

    @property
    def meaning(self) -> str:
        place = [self.text(one) for one in (ORIGINAL_TOPIC, ORIGINAL_PARTITION, ORIGINAL_OFFSET)]
        where = "/".join(one or "?" for one in place) if any(place) else "a place that is not said"
        failures = self.text(RETRY_ATTEMPT) or "?"
        return f"its consumers gave up after {failures} failures with {where}"

    @property
    def remedy(self) -> str:
        return (
            "Mend the consumer, then replay: its group alone gets the record again, at once and "
            "with all its attempts."
        )


def letter_of(kind: type[Letter], message: Message) -> Letter:
    """Return the letter in a fetched message. Its headers must be readable."""
    return kind(
        Place(message.partition(), message.offset()),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or [],
    )


def read_origin(text: str) -> Origin | None:
    """Parse `topic/partition/offset`. Return None for other text."""
    found = _ORIGIN.fullmatch(text)
    origin = Origin(found[1], int(found[2]), int(found[3])) if found else None
    is_one = origin and origin.partition <= LAST_PARTITION and origin.offset <= LAST_OFFSET
    return origin if is_one else None


def read_place(text: str) -> Place | Origin:
    """Parse a letter's place in its topic, or its origin. Raises ValueError with a sentence."""
    if found := _PLACE.fullmatch(text):
        return Place(int(found[1]), int(found[2]))
    if origin := read_origin(text):
        return origin
    shown = text if len(text) <= 60 else text[:57] + "..."
    raise ValueError(
        f"{shown!r} names no dead letter: write its place in the dead-letter topic, "
        "partition/offset (0/17), or its origin, topic/partition/offset (timer.ingress/2/4711)"
    )


REMEDIES: Final = {
    "record-unreadable": "Nothing of the record is in the letter: its producer has to send it "
    "again. See to it that the ingress has compression.type=uncompressed.",
    "header-unreadable": "Its headers are not in the letter. Mend the producer (names are UTF-8) "
    "and send the record again, or replay with --set timer-topic=... and what else it needs.",
    "header-unknown": "The detail names the nearest. Replay with --unset of the wrong name and "
    "--set of the right one.",
    "header-unsupported": "Replay with --unset of that header, or add the request to "
    "`requests: serve`, restart, and replay.",
    "target-missing": "Replay with --set timer-topic=...",
    "target-illegal": "Replay with --set timer-topic=...",
    "target-refused": "Replay with --set timer-topic=..., or change `targets` in the proxy's "
    "settings, restart it, and replay.",
    "time-unreadable": "Replay with --set of the header, or --unset it to deliver at once.",
    "level-unknown": "Replay with --set timer-level=... (a number), or --unset timer-level.",
    "delay-too-long": "Replay with a shorter delay, or raise `max_delay`, restart, and replay.",
    "time-past": "Replay with --set timer-deliver-at=... in milliseconds, or --unset it to deliver "
    "at once.",
    "partition-bad": "Replay with --set or --unset timer-partition, or add partitions and replay.",
    "target-unknown": "Create the topic, then replay; or replay with --set timer-topic=...",
    "partition-unavailable": "Bring back the brokers that have the partition, then replay.",
    "too-large": "Raise max.message.bytes of the target topic, then replay.",
    "not-authorised": "Grant the proxy's user Write and Describe on the target, then replay.",
    "publish-failed": "Do what the detail says, then replay.",
    "id-bad": "Replay with --set timer-id=... or timer-cancel=... (1 to 256 bytes), or --unset.",
    "recall-bad": "Replay with --set timer-recall=... (topic/partition/offset of a record). It "
    "goes to the partition that the letter came from.",
    "retry-bad": "Replay with --set timer-attempt=... and --set timer-retry-group=...",
    "transaction-bad": "Replay with --set timer-transaction=prepare, commit or rollback, or "
    "--unset it to have an ordinary record.",
    "hop-bad": "Replay: what only the proxy may write is left out then.",
    "purge-bad": "Replay: what only the proxy may write is left out then.",
    "transaction-expired": "Find out from its producer what became of the transaction. To "
    "deliver it after all, replay with --unset timer-transaction.",
    "overdue": "Replay with another time (--set timer-deliver-at=...), or change the setting "
    "`release.overdue`.",
    "defect": "Report it with its detail and, if you may, the record. Replay it with a version "
    "that has it mended.",
    "body-gone": "The record is lost: its producer has to send it again. Raise the ingress "
    "topic's retention.ms above `max_delay`, or set `bodies: local`.",
}


def meaning(code: str) -> str:
    """Return what the code means, as in the guide."""
    return REASONS.get(code, "a code that this version of the command does not know")


def remedy(code: str) -> str:
    """Return what to do about it."""
    return REMEDIES.get(code, "Do what the detail says, then replay.")
