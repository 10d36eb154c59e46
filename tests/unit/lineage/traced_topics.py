"""Topics in memory for traces, written as the proxy, clients and producers do."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import dropwhile, takewhile
from typing import Any

from kafka_delay.kafka import Place as ClientPlace
from kafka_delay.retries import Failure, Received, RetryPlan
from proxy.config.settings import TopicSettings
from proxy.dead_letters.letter import Letter, Origin, Place
from proxy.dead_letters.replay_plan import Edits, Mark, mark_key, requests_of
from proxy.dispatch.dispatcher import delivery_headers
from proxy.dispatch.hops import moved, successor
from proxy.dispatch.partitioning import partition_of
from proxy.lineage.histories import NotAllRead, TimeSpan, Trace, TracedRecord, Visit
from proxy.lineage.story import Story, Storyteller
from proxy.lineage.topics import KafkaTopics
from proxy.lineage.tracer import Tracer
from proxy.protocol.body import Delivery, Headers, IngressPartition, delivery_of
from proxy.protocol.outcomes import (
    MISSED,
    MOVED,
    REPLACED,
    DeadLetter,
    Outcome,
    Rejection,
    dead_letter_headers,
    dead_letter_of,
)
from proxy.protocol.parsed import Prepare, Scheduled
from proxy.protocol.policy import Policy
from proxy.protocol.request_reader import RequestReader
from proxy.scheduling.batch import Hop

NAMES = TopicSettings()
INGRESS = IngressPartition(NAMES.ingress, 0)
START_MS = 1_800_000_000_000
WITHIN_MS = 600_000


class TopicsInMemory(KafkaTopics):
    """Topics without a broker. `read` counts the records looked at, by topic."""

    def __init__(self, partitions: dict[str, int]) -> None:
        self._counts = partitions
        self._records: dict[tuple[str, int], list[TracedRecord]] = {}
        self._starts: dict[tuple[str, int], int] = {}
        self.holes = set[Origin]()
        self.read: dict[str, int] = {}
        self.searches_allowed = 10**6
        self.unreadable = ""

    def write(
        self, time_ms: int, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> TracedRecord:
        count = self._counts.setdefault(topic, 1)
        number = 0 if key is None else partition_of(key, count)
        records = self._records.setdefault((topic, number), [])
        place = Origin(topic, number, len(records))
        records.append(TracedRecord(place, time_ms, key, value, headers))
        return records[-1]

    def grow(self, topic: str, partitions: int) -> None:
        self._counts[topic] = partitions

    def delete(self, topic: str, before: int) -> None:
        self._starts[topic, 0] = before

    def partitions_of(self, topic: str) -> int:
        return self._counts.get(topic, 0)

    def offsets(self, topic: str, partition: int) -> range:
        place = topic, partition
        return range(self._starts.get(place, 0), len(self._records.get(place, [])))

    def at(self, place: Origin) -> TracedRecord | None:
        there = place.offset in self.offsets(*place[:2]) and place not in self.holes
        return self._records[place[:2]][place.offset] if there else None

    def search(self, spans: Sequence[TimeSpan], visit: Visit) -> None:
        if self.searches_allowed <= 0:
            raise NotAllRead([span.topic for span in spans], "The time limit was reached")
        self.searches_allowed -= 1
        spans = [span for span in spans if span.topic != self.unreadable]
        parts = [self._part(span, number) for span in spans for number in self._numbers(span)]
        for record in merge(*parts, key=lambda record: record.timestamp_ms):
            self.read[record.place.topic] = self.read.get(record.place.topic, 0) + 1
            if visit(record):
                return

    def unread(self) -> list[str]:
        return [f"What lies in {self.unreadable}."] if self.unreadable else []

    def _numbers(self, span: TimeSpan) -> Sequence[int]:
        return range(self.partitions_of(span.topic)) if span.partitions is None else span.partitions

    def _part(self, span: TimeSpan, number: int) -> list[TracedRecord]:
        records = self._records.get((span.topic, number), [])
        there = records[self._starts.get((span.topic, number), 0) :]
        from_ms, until_ms = span.from_ms, span.until_ms
        later = dropwhile(lambda one: from_ms is not None and one.timestamp_ms < from_ms, there)
        return list(takewhile(lambda one: until_ms is None or one.timestamp_ms < until_ms, later))


class TracedSite:
    """A proxy's topics with a manual clock. The proxy's own code writes the records."""

    def __init__(self, **partitions: int) -> None:
        counts = {getattr(NAMES, role): 1 for role in ("ingress", "dead_letters", "outcomes")}
        given = {getattr(NAMES, role): count for role, count in partitions.items()}
        self.topics = TopicsInMemory({**counts, "orders": 1, **given})
        self.now_ms = START_MS
        self.reader = RequestReader(Policy(recalls_in=NAMES.ingress))

    def ingest(self, more: Headers | None = None, key: bytes | None = b"k", **asked: str) -> Origin:
        """Write a producer's record: `delay="1h"` is `timer-delay: 1h`."""
        named = {f"timer-{name.replace('_', '-')}": text.encode() for name, text in asked.items()}
        return self._into_ingress(key, [*named.items(), *(more or [])])

    def ended(self, origin: Origin, what: str, **more: Any) -> None:
        delivery = self._delivery(origin)
        due_ms = None if delivery is None else delivery.due_ms
        ident = self._header(origin, "timer-id") or self._header(origin, "timer-cancel")
        self._outcome(Outcome(origin.offset, what, due_ms, ident, **more))

    def hopped(
        self,
        origin: Origin,
        what: str = "rolled",
        detail: str = "",
        commit: Origin | None = None,
        not_before_ms: int | None = None,
    ) -> Origin:
        """Rewrite it to the ingress, with its outcome. `commit` is the half message's commit."""
        delivery = self._delivery(origin)
        assert delivery is not None
        if commit is not None:
            delivery = delivery._replace(entry_offset=commit.offset)
        hop = Hop(delivery, what, detail, not_before_ms, 0)
        written = successor(INGRESS, hop)
        after = self._into_ingress(written.key, written.headers)
        ident = delivery.header("timer-id")
        self._outcome(Outcome(origin.offset, what, delivery.due_ms, ident, detail))
        return after

    def moved(self, origin: Origin, deliver_at_ms: int, commit: Origin | None = None) -> Origin:
        delivery = self._delivery(origin)
        assert delivery is not None
        after = self.moving(origin, deliver_at_ms, commit)
        self.replaced_by_move(origin, after)
        return after

    def replaced_by_move(self, origin: Origin, after: Origin) -> None:
        delivery = self._delivery(origin)
        assert delivery is not None
        ident, due_ms = delivery.header("timer-id"), delivery.due_ms
        ended = Outcome(origin.offset, REPLACED, due_ms, ident, MOVED, after.offset)
        self._outcome(ended)

    def moved_too_late(self, origin: Origin, deliver_at_ms: int) -> Origin:
        late = self.moving(origin, deliver_at_ms)
        self.ended(late, MISSED, detail="the record has already ended")
        return late

    def moving(self, origin: Origin, deliver_at_ms: int, commit: Origin | None = None) -> Origin:
        delivery = self._delivery(origin)
        assert delivery is not None
        if commit is not None:
            delivery = delivery._replace(entry_offset=commit.offset)
        written = moved(INGRESS, delivery, deliver_at_ms)
        return self._into_ingress(written.key, written.headers)

    def delivered(self, origin: Origin, late_ms: int = 5) -> TracedRecord:
        delivery = self._delivery(origin)
        assert delivery is not None
        self.now_ms = max(self.now_ms, delivery.due_ms) + late_ms
        headers = delivery_headers(INGRESS.prefix, delivery)
        return self.topics.write(self.now_ms, delivery.target, delivery.key, b"v", headers)

    def buried(self, origin: Origin, code: str = "too-large") -> TracedRecord:
        delivery, record = self._delivery(origin), self.topics.at(origin)
        reason = Rejection(code, "because")
        assert record is not None
        letter = (
            DeadLetter(origin.offset, None, reason, record.key, b"v", record.headers)
            if delivery is None
            else dead_letter_of(delivery, reason)
        )
        headers = dead_letter_headers(letter, str(origin))
        written = self.topics.write(self.now_ms, NAMES.dead_letters, letter.key, b"v", headers)
        self.ended(origin, "dead-lettered", detail=f"{code}: because")
        return written

    def replayed(self, letter: TracedRecord) -> Origin:
        place = Place(*letter.place[1:])
        whole = Letter(place, letter.timestamp_ms, letter.key, letter.value, letter.headers)
        again = self._into_ingress(letter.key, requests_of(whole, Edits()))
        value = Mark(self.now_ms, str(again)).value(whole)
        self.topics.write(self.now_ms, NAMES.replay_marks, mark_key("id", place), value, [])
        return again

    def failed(self, delivery: TracedRecord, group: str) -> Origin:
        here = ClientPlace(*delivery.place)
        original, attempt = here, 0
        if delivery.place.topic == f"retry.{group}":
            topic = delivery.text("retry-original-topic") or ""
            offset = delivery.number("retry-original-offset") or 0
            original = ClientPlace(topic, 0, offset)
            attempt = delivery.number("retry-attempt") or 0
        received = Received(here, original, attempt, delivery.key, b"v", delivery.headers, 0)
        request = RetryPlan(group, [], "").request(received, Failure("ValueError: no stock"))
        return self._into_ingress(request.key, request.headers)

    def check_back(self, topic: str, ident: str, number: int) -> None:
        headers: Headers = [
            ("timer-transaction", b"check"),
            ("timer-id", ident.encode()),
            ("timer-check", str(number).encode()),
        ]
        self.topics.write(self.now_ms, topic, b"k", b"v", headers)

    def passes(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    def trace(self, origin: Origin) -> Trace:
        return Tracer(self.topics, NAMES, self.reader, WITHIN_MS).trace(origin)

    def story(self, origin: Origin) -> Story:
        """Return the story, which is the same for each record of the chain."""
        story = Storyteller(NAMES, self.now_ms).story(self.trace(origin))
        assert story.origin == origin
        return story._replace(origin=story.first_origin)

    def _into_ingress(self, key: bytes | None, headers: Headers) -> Origin:
        return self.topics.write(self.now_ms, NAMES.ingress, key, b"v", headers).place

    def _outcome(self, outcome: Outcome) -> None:
        key = INGRESS.origin(outcome.offset).encode()
        self.topics.write(self.now_ms, NAMES.outcomes, key, outcome.to_json(INGRESS), [])

    def _header(self, origin: Origin, name: str) -> bytes | None:
        record = self.topics.at(origin)
        return None if record is None else record.header(name)

    def _delivery(self, origin: Origin) -> Delivery | None:
        record = self.topics.at(origin)
        assert record is not None
        parsed = self.reader.read(
            record.headers, record.key, record.value, record.timestamp_ms, 0, origin.offset
        )
        return delivery_of(parsed.entry) if isinstance(parsed, Scheduled | Prepare) else None


def told(story: Story) -> list[str]:
    return [step.what for step in story.steps]
