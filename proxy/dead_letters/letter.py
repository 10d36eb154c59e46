"""Dead letters of the proxy (docs/guide.md#what-does-not-arrive) and of consumer groups
(docs/client.md#retries). Pure."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final, NamedTuple, Self, TypeAlias

from proxy.protocol import headers as header
from proxy.protocol.body import Headers, Message, last_header
from proxy.protocol.headers import text_of
from proxy.protocol.outcomes import REASONS
from proxy.protocol.position import LAST_OFFSET

LAST_PARTITION: Final = 2**31 - 1
LONGEST_REASON: Final = 80
NOT_SAID: Final = "unknown"
_PLACE: Final = re.compile(r"(\d{1,10})/(\d{1,19})", re.ASCII)
_ORIGIN: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})/(\d{1,10})/(\d{1,19})", re.ASCII)


class Place(NamedTuple):
    """The place of a letter in its topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}/{self.offset}"


class Origin(NamedTuple):
    """The place of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of the dead-letter topic, perhaps from another program."""

    place: Place
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @classmethod
    def of(cls, message: Message) -> Self:
        """Return the letter in a message with readable headers."""
        place, time_ms = Place(message.partition(), message.offset()), message.timestamp()[1]
        return cls(place, time_ms, message.key(), message.value(), message.headers() or [])

    @property
    def is_ours(self) -> bool:
        return any(name == header.ERROR for name, _ in self.headers)

    @property
    def reason(self) -> str | None:
        """The error code. None if the proxy did not write the record."""
        return self.text(header.ERROR)

    @property
    def detail(self) -> str | None:
        return self.text(header.ERROR_DETAIL)

    @property
    def origin(self) -> Origin | None:
        return read_origin(self.text(header.ORIGIN) or "")

    @property
    def first_origin(self) -> str | None:
        return self.text(header.FIRST_ORIGIN)

    @property
    def target(self) -> str | None:
        return self.text(header.TOPIC)

    @property
    def lacks_value(self) -> bool:
        """Whether the proxy may have left out the value. Only the original in the ingress shows
        whether the letter lost a value."""
        return self.value is None and self.is_ours

    @property
    def meaning(self) -> str:
        return meaning(self.reason or "")

    @property
    def remedy(self) -> str:
        return remedy(self.reason or "")

    def text(self, name: str) -> str | None:
        raw = last_header(self.headers, name)
        return None if raw is None else text_of(raw)


@dataclass(frozen=True, slots=True)
class GroupLetter(Letter):
    """A record in `dlq.<group>` that the group's consumers gave up. `origin` is the last retry, the
    ingress record that the proxy delivered to this topic. `target` is the topic from which the
    consumers first read the record."""

    @property
    def is_ours(self) -> bool:
        return self.text(header.ORIGIN) is not None

    @property
    def reason(self) -> str | None:
        if not self.is_ours:
            return None
        lines = (self.text(header.RETRY_EXCEPTION) or "").strip().splitlines()
        return lines[0][:LONGEST_REASON] if lines else NOT_SAID

    @property
    def detail(self) -> str | None:
        return self.text(header.RETRY_EXCEPTION)

    @property
    def target(self) -> str | None:
        return self.text(header.ORIGINAL_TOPIC)

    @property
    def lacks_value(self) -> bool:
        """Return False: the proxy leaves out no value in a group's dead-letter topic. A record that
        is too large for this topic becomes a dead letter of the proxy instead."""
        return False

    @property
    def meaning(self) -> str:
        place = [
            self.text(one)
            for one in (header.ORIGINAL_TOPIC, header.ORIGINAL_PARTITION, header.ORIGINAL_OFFSET)
        ]
        where = "/".join(one or "?" for one in place) if any(place) else "an unknown place"
        failures = self.text(header.RETRY_ATTEMPT) or "?"
        return f"the group's consumers gave up after {failures} failures at {where}"

    @property
    def remedy(self) -> str:
        return (
            "Correct the consumer, then replay. Only this group gets the record again, at once. "
            "The group's delivery attempts are counted anew."
        )


def read_origin(text: str) -> Origin | None:
    """Parse `topic/partition/offset`, or return None."""
    found = _ORIGIN.fullmatch(text)
    origin = Origin(found[1], int(found[2]), int(found[3])) if found else None
    is_one = origin and origin.partition <= LAST_PARTITION and origin.offset <= LAST_OFFSET
    return origin if is_one else None


def read_place(text: str) -> Place | Origin:
    """Parse a letter's place, `partition/offset`, or its origin, `topic/partition/offset`. Raises
    ValueError with a sentence."""
    if found := _PLACE.fullmatch(text):
        return Place(int(found[1]), int(found[2]))
    if origin := read_origin(text):
        return origin
    shown = text if len(text) <= 60 else text[:57] + "..."
    raise ValueError(
        f"{shown!r} is not a dead letter: write its place in the dead-letter topic, "
        "partition/offset (0/17), or its origin, topic/partition/offset (timer.ingress/2/4711)"
    )


REMEDIES: Final = {
    "record-unreadable": "The letter has no part of the record. The producer must send it again. "
    "Set compression.type=uncompressed for the ingress.",
    "header-unreadable": "The record's headers are not in the letter. Correct the producer (header "
    "names are UTF-8) and send the record again, or replay with --set timer-topic=... and the "
    "record's other headers.",
    "header-unknown": "The detail names the nearest header. Replay with --unset of the wrong "
    "name and --set of the right one.",
    "header-unsupported": "Replay with --unset of that header, or add the request to "
    "`requests: serve`, restart, and replay.",
    "target-missing": "Replay with --set timer-topic=...",
    "target-illegal": "Replay with --set timer-topic=...",
    "target-refused": "Replay with --set timer-topic=..., or change `targets` in the proxy's "
    "settings (for a consumer group `retry.groups`), restart it, and replay.",
    "time-unreadable": "Replay with --set of the header, or --unset it to deliver at once. Check "
    "the producer's clock if the detail names the timestamp.",
    "level-unknown": "Replay with --set timer-level=... (a number), or --unset timer-level.",
    "delay-too-long": "Replay with a shorter delay, or raise `max_delay`, restart, and replay.",
    "time-past": "Replay with --set timer-deliver-at=... in milliseconds, or --unset it to deliver "
    "at once.",
    "partition-bad": "Replay with --set or --unset timer-partition, or add partitions and replay.",
    "target-unknown": "Create the topic, then replay; or replay with --set timer-topic=...",
    "partition-unavailable": "Bring back the brokers that have the partition, then replay.",
    "too-large": "Raise max.message.bytes of the target topic, or take message.max.bytes out of "
    "the setting `kafka` (the detail says which), then replay.",
    "not-authorised": "Grant the proxy's user Write and Describe on the target, then replay.",
    "publish-failed": "Do what the detail says, then replay.",
    "id-bad": "Replay with --set timer-id=... or timer-cancel=... (1 to 256 bytes), or --unset.",
    "recall-bad": "Replay with --set timer-recall=... (topic/partition/offset of a record). It "
    "goes to the partition that the letter came from.",
    "retry-bad": "Replay with --set timer-attempt=... and --set timer-retry-group=...",
    "transaction-bad": "Replay with --set timer-transaction=prepare, commit or rollback, or "
    "--unset it for an ordinary record.",
    "hop-bad": "Replay. A replay leaves out the headers that only the proxy may write.",
    "purge-bad": "Replay. A replay leaves out the headers that only the proxy may write. To purge, "
    "use the admin API.",
    "transaction-expired": "Ask the record's producer how the transaction ended. To deliver the "
    "record, replay with --unset timer-transaction.",
    "overdue": "Replay with another time (--set timer-deliver-at=...), or change the rule first "
    "(setting `release.overdue`, or `kafka-delay-proxy limits`).",
    "defect": "Report the defect, with the detail and, if you may, the record. Replay with a "
    "corrected version of the proxy.",
    "body-gone": "The record is lost. Its producer must send it again. Raise the ingress topic's "
    "retention.ms above `max_delay`, or set `bodies: local`.",
}


def meaning(code: str) -> str:
    """Return the meaning of the code, as in the guide."""
    return REASONS.get(code, "this version of the command does not know the code")


def remedy(code: str) -> str:
    """Return the remedy for the code."""
    return REMEDIES.get(code, "Do what the detail says, then replay.")


TEXT_KEPT: Final = 500
BYTES_KEPT: Final = 200
FIRST_WINDOW: Final = 500
LARGEST_WINDOW: Final = 64_000
FIRST_WIDTH: Final = 200
LARGEST_WIDTH: Final = 64_000
SMALLEST_WIDTH: Final = 10
QUICK_S: Final = 0.5
"""A partition is read in parts. If a part was read faster than this, the next part is twice as
wide. Otherwise the next part is half as wide."""
MOST_FOUND: Final = 16_000
"""A `LetterPages` keeps about this many summaries in memory, over all partitions together."""

Letters: TypeAlias = Callable[[int, range], Iterable[Letter]]
"""Yields the wanted letters in a range of offsets of a partition, in order."""


@dataclass(frozen=True, slots=True)
class LetterSummary:
    """A letter as a list shows it. `value_bytes` is None for a null value."""

    place: Place
    timestamp_ms: int
    reason: str | None
    detail: str | None
    target: str | None
    origin: str | None
    first_origin: str | None
    key: bytes | None
    value_bytes: int | None

    @property
    def age(self) -> tuple[int, Place]:
        return self.timestamp_ms, self.place


def summary_of(letter: Letter) -> LetterSummary:
    """Return the parts of a letter that a list shows."""
    return LetterSummary(
        letter.place,
        letter.timestamp_ms,
        letter.reason,
        _cut(letter.detail),
        _cut(letter.target),
        _cut(letter.text(header.ORIGIN)),
        _cut(letter.first_origin),
        None if letter.key is None else letter.key[:BYTES_KEPT],
        None if letter.value is None else len(letter.value),
    )


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= TEXT_KEPT else text[: TEXT_KEPT - 1] + "…"


def oldest(letters: Letters, spans: Mapping[int, range], limit: int) -> list[LetterSummary]:
    """Return the oldest `limit` letters over all partitions."""
    found: list[LetterSummary] = []
    for partition, span in spans.items():
        for count, letter in enumerate(letters(partition, span), 1):
            found.append(summary_of(letter))
            if count == limit:
                break
    return nsmallest(limit, found, key=lambda one: one.age)


def windows(span: range) -> Iterator[range]:
    """Split a span backwards into parts, each twice as wide as the previous part."""
    end, width = span.stop, FIRST_WINDOW
    while end > span.start:
        start = max(span.start, end - width)
        yield range(start, end)
        end, width = start, min(width * 2, LARGEST_WINDOW)


class LetterPage(NamedTuple):
    """A page of letters, the newest first."""

    letters: list[LetterSummary]
    ends: dict[int, int] | None
    """Partition -> the offset below which the next page continues. None: this is the last page."""


class LetterPages:
    """The wanted letters in pages, the newest first. Each partition is read backwards by offset, so
    the pages miss no letter and repeat none, even if clocks differ. The partitions are merged by
    timestamp until the time for a page is up."""

    def __init__(
        self, letters: Letters, spans: Mapping[int, range], now_s: Callable[[], float]
    ) -> None:
        self._letters, self._spans, self._now_s = letters, spans, now_s
        self._known = {partition: span.stop for partition, span in spans.items()}
        self._found: dict[int, deque[LetterSummary]] = {p: deque() for p in spans}
        self._most_of_one = max(1, MOST_FOUND // max(1, len(spans)))
        self._width = FIRST_WIDTH

    def read(self, limit: int, within_s: float) -> LetterPage:
        """Return the next `limit` letters, or fewer at the end or if the time is up."""
        until_s, has_read = self._now_s() + within_s, False
        shown: list[LetterSummary] = []
        while len(shown) < limit:
            lacking = [p for p, found in self._found.items() if not found and self._left(p)]
            if lacking and (not has_read or self._now_s() < until_s):
                self._read_back(max(lacking, key=self._left), limit)
                has_read = True
                continue
            heads = [found[0] for found in self._found.values() if found]
            if not heads:
                break
            newest = max(heads, key=lambda one: one.age)
            shown.append(self._found[newest.place.partition].popleft())
        return LetterPage(shown, self._ends())

    def _left(self, partition: int) -> int:
        return self._known[partition] - self._spans[partition].start

    def _read_back(self, partition: int, limit: int) -> None:
        stop, began_s = self._known[partition], self._now_s()
        start = max(self._spans[partition].start, stop - self._width)
        kept = deque[LetterSummary](maxlen=min(limit, self._most_of_one))
        is_cut = False
        for letter in self._letters(partition, range(start, stop)):
            is_cut = is_cut or len(kept) == kept.maxlen
            kept.append(summary_of(letter))
        self._known[partition] = kept[0].place.offset if is_cut else start
        self._found[partition].extend(reversed(kept))
        is_quick = self._now_s() - began_s < QUICK_S
        width = self._width * 2 if is_quick else self._width // 2
        self._width = min(max(width, SMALLEST_WIDTH), LARGEST_WIDTH)

    def _ends(self) -> dict[int, int] | None:
        ends = {
            partition: found[0].place.offset + 1 if found else self._known[partition]
            for partition, found in self._found.items()
        }
        return ends if any(end > self._spans[p].start for p, end in ends.items()) else None
