"""Imports: the records of an export, scheduled once in another cluster.

The whole export is checked first. Then its records are written in transactions. Each transaction
also writes the progress, the number of scheduled records, to the settings topic. All imports from
one source (a group in a cluster) share a transactional id. So a new import stops an older one that
still runs. The new import continues at the committed progress, and no record is scheduled twice.
"""

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaException

from proxy.clock import wall_clock_ms
from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings
from proxy.dead_letters.replay import target_refusal
from proxy.dispatch.known_targets import record_batch_bytes
from proxy.dispatch.partitioning import partition_of
from proxy.errors import ProxyError
from proxy.kafka.access import client_config
from proxy.kafka.reader import READER_CONFIG, TopicReader
from proxy.kafka.settings_topic import IMPORTED, settings_key
from proxy.kafka.topics import (
    admin_client,
    describe_topic,
    group_named_in,
    ingress_config,
)
from proxy.moving.export_file import ExportDamaged, ExportedRecord, ExportHeader, ExportReader
from proxy.protocol.body import delivery_of
from proxy.protocol.bounded_json import read_object, whole
from proxy.protocol.headers import DELIVER_AT, MOVED_FROM
from proxy.protocol.outcomes import Rejection
from proxy.protocol.parsed import ParsedRecord, Scheduled
from proxy.protocol.position import LAST_OFFSET
from proxy.protocol.request_reader import RequestReader
from proxy.publishing.fenced_producer import (
    BATCH_BYTES,
    BATCH_RECORDS,
    Aborted,
    FencedProducer,
    IngressRecord,
    fenced_producer,
)
from proxy.publishing.targets import Targets

PROGRESS_PARTITION: Final = 0
SHOWN_AT_MOST: Final = 10
ATTEMPTS: Final = 5
REMEMBERED: Final = 10_000
MOST_TARGETS: Final = 1_000
OTHERS: Final = "(others)"
"""Stands for targets beyond the first MOST_TARGETS."""
DIGEST_DIGITS: Final = 16
LIST_WITHIN_S: Final = 10.0


class ImportRefused(ProxyError):
    """The export does not fit the new cluster. Nothing was written."""

    def __init__(self, problems: "Problems") -> None:
        total = problems.counts.total()
        super().__init__(
            f"{total:,} of the records would not be scheduled as before, so nothing is "
            f"imported:\n{problems}",
            "Mend the settings or the topics of the new cluster, and run the import again.",
        )


class WouldDeliverTwice(ProxyError):
    """The records are, or were, scheduled in this cluster already."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why} Records would be delivered twice.", "If you want that, give --allow-twice."
        )


class ImportTakenOver(ProxyError):
    """Another import from the same source has begun."""

    def __init__(self) -> None:
        super().__init__(
            "Another import from this source has begun, so this one stopped. No record was "
            "scheduled by both.",
            "Run this import again after the other import has ended.",
        )


class ImportInDoubt(ProxyError):
    """The result of the last commit is unknown."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"It is not known whether the last batch was scheduled: {detail}.",
            "Run the same command again. It finds the result, and schedules the missing records.",
        )


class IngressRefused(ProxyError):
    """The ingress refused records that had passed the check."""

    def __init__(self, detail: str, done: int) -> None:
        super().__init__(
            f"The ingress refused records after {done:,} were scheduled: {detail}.",
            "Mend the cause, and run the same command again. It continues with the first record "
            "that is not scheduled yet.",
        )


@dataclass
class Problems:
    """Reasons why the new cluster would not schedule records of an export."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(code, target) -> number of records."""
    firsts: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, record: ExportedRecord, code: str, detail: str) -> None:
        kind = code, record.target
        if kind not in self.counts and len(self.counts) >= MOST_TARGETS:
            kind = code, OTHERS
        self.counts[kind] += 1
        self.firsts.setdefault(kind, f"{record.origin}: {detail}")

    def __str__(self) -> str:
        shown = self.counts.most_common(SHOWN_AT_MOST)
        lines = [
            f"- {code} ({target}, {count:,}), first {self.firsts[code, target]}"
            for (code, target), count in shown
        ]
        more = len(self.counts) - len(shown)
        return "\n".join([*lines, *([f"- and {more:,} more problems"] if more else [])])


class Checked(NamedTuple):
    """A whole export that fits the new cluster."""

    header: ExportHeader
    sha256: str
    records: int
    overdue: int
    targets: Counter[str]


class Progress(NamedTuple):
    """The progress of the newest import from a source: `done` of `records` are scheduled."""

    sha256: str
    done: int
    records: int

    def to_json(self, header: ExportHeader) -> bytes:
        source = {"cluster": header.cluster, "topic": header.topic, "group": header.group}
        return json.dumps({**self._asdict(), **source, "at": wall_clock_ms()}).encode()

    @classmethod
    def from_json(cls, value: bytes | None) -> "Progress":
        """Parse a record of the settings topic. Raises ValueError, KeyError."""
        found = read_object(value)
        return cls(str(found["sha256"]), whole(found["done"]), whole(found["records"]))


class Importer:
    """Imports an export into the new cluster. `open_export` reads the export from its start."""

    def __init__(self, settings: Settings, open_export: Callable[[], ExportReader]) -> None:
        self._settings, self._open_export = settings, open_export
        admin = admin_client(settings)
        self._ingress = describe_topic(settings.topics.ingress, admin, settings)
        describe_topic(settings.topics.settings, admin, settings)
        self._cluster = str(admin.list_topics(timeout=LIST_WITHIN_S).cluster_id)
        self._limit = ingress_config(self._ingress.name, admin).get("max.message.bytes")
        self._policy = policy_of(settings, retention_ms=None)
        self._reader, self._targets = RequestReader(self._policy), Targets(admin)
        self._refusals: dict[tuple[str, int], Rejection | None] = {}

    def check(self) -> Checked:
        """Read the whole export. Raises ExportDamaged, ImportRefused."""
        export, problems, now_ms = self._open_export(), Problems(), wall_clock_ms()
        targets, overdue, idents = Counter[str](), 0, array("Q")
        header = export.header
        for record in export:
            is_known = record.target in targets or len(targets) < MOST_TARGETS
            targets[record.target if is_known else OTHERS] += 1
            overdue += record.due_ms < now_ms
            request = self._request(header, record, now_ms)
            if (found := self._fault(record, request, now_ms)) is not None:
                problems.add(record, *found)
            if record.ident is not None:
                name = b"%d/%s" % (request.partition, record.ident)
                digest = hashlib.blake2b(name, digest_size=8).digest()
                idents.append(int.from_bytes(digest, "big"))
        self._refuse_equal_ids(idents)
        if problems.counts:
            raise ImportRefused(problems)
        return Checked(header, export.sha256, export.records, overdue, targets)

    def refuse_twice(self, header: ExportHeader) -> None:
        """Raise WouldDeliverTwice if the export comes from this cluster's own ingress."""
        if (header.cluster, header.topic_id) == (self._cluster, self._ingress.topic_id):
            raise WouldDeliverTwice(f"This is the ingress {self._ingress.name} that was exported.")

    def run(
        self,
        checked: Checked,
        on_done: Callable[[int], None],
        is_stopping: Callable[[], bool],
        *,
        may_deliver_twice: bool,
    ) -> tuple[int, int]:
        """Schedule the records. Return the number scheduled before, and the number scheduled now.
        If asked to stop, end after the current batch."""
        source = hashlib.sha256(checked.header.source.encode()).hexdigest()[:DIGEST_DIGITS]
        group_id = self._settings.group_id
        producer = fenced_producer(self._settings, f"{group_id}-import/{source}", ImportTakenOver)
        key = settings_key(IMPORTED, group_id, source)
        before = self._progress(key)
        if before is not None and before.sha256 != checked.sha256:
            if not may_deliver_twice:
                raise WouldDeliverTwice(
                    f"Another export of the group {checked.header.group} was imported here: "
                    f"{before.done:,} of its {before.records:,} records."
                )
            before = None
        first = done = 0 if before is None else before.done
        export = self._open_export()
        records = islice(export, done, None)
        while (batch := self._batch(export.header, records)) and not is_stopping():
            done += len(batch)
            progress = Progress(checked.sha256, done, checked.records)
            self._write(producer, batch, key, progress.to_json(export.header))
            on_done(done)
        if export.sha256 not in ("", checked.sha256):
            raise ExportDamaged("The export", "it was changed while it was imported")
        return first, done - first

    def _batch(
        self, header: ExportHeader, records: Iterator[ExportedRecord]
    ) -> list[IngressRecord]:
        batch: list[IngressRecord] = []
        size_bytes, now_ms = 0, wall_clock_ms()
        while len(batch) < BATCH_RECORDS and size_bytes < BATCH_BYTES:
            record = next(records, None)
            if record is None:
                break
            batch.append(self._request(header, record, now_ms))
            size_bytes += len(record.value or b"")
        return batch

    def _write(
        self, producer: FencedProducer, batch: Sequence[IngressRecord], key: str, progress: bytes
    ) -> None:
        """Write a batch with its progress. An aborted transaction is repeated."""
        for attempt in range(1, ATTEMPTS + 1):
            producer.begin()
            try:
                producer.send(self._ingress.name, batch)
                topic = self._settings.topics.settings
                producer.produce(topic, progress, key, PROGRESS_PARTITION)
                producer.commit(ImportInDoubt)
                return
            except Aborted as aborted:
                if aborted.is_refusal:
                    done = Progress.from_json(progress).done - len(batch)
                    raise IngressRefused(str(aborted), done) from None
                if attempt == ATTEMPTS or not aborted.may_pass:
                    raise KafkaException(aborted.error) from None

    def _progress(self, key: str) -> Progress | None:
        """Return the newest progress. Other imports cannot change it, because the producer of this
        import has fenced them."""
        config = client_config(self._settings, group_id=self._settings.group_id, **READER_CONFIG)
        consumers, topic = partial(Consumer, config), self._settings.topics.settings
        reader, found = TopicReader(consumers, topic, [PROGRESS_PARTITION]), None
        for message in reader.records(PROGRESS_PARTITION, reader.spans()[PROGRESS_PARTITION]):
            if message.key() == key.encode():
                found = Progress.from_json(message.value())
        return found

    def _request(self, header: ExportHeader, record: ExportedRecord, now_ms: int) -> IngressRecord:
        """Return the record for the new ingress. If the record is overdue by more than half of
        `max_past`, its new due is now."""
        due_ms, most_ms = max(0, record.due_ms), self._policy.max_past_ms
        if most_ms is not None and now_ms - due_ms > most_ms // 2:
            due_ms = now_ms
        headers = [
            *record.headers,
            (DELIVER_AT, b"%d" % due_ms),
            (MOVED_FROM, f"{header.cluster}/{record.origin}".encode()),
        ]
        at = self._partition_of(record, len(header.partitions))
        return IngressRecord(record.value, record.key, at, headers)

    def _partition_of(self, record: ExportedRecord, partitions_before: int) -> int:
        """Return the record's old partition if both ingress topics have the same number of
        partitions. Otherwise choose a partition by the key, if any, as producers do."""
        partitions = self._ingress.partitions
        if partitions != partitions_before and record.key is not None:
            return partition_of(record.key, partitions)
        return record.partition % partitions

    def _fault(
        self, record: ExportedRecord, request: IngressRecord, now_ms: int
    ) -> tuple[str, str] | None:
        """Return code and detail if the new cluster would not do what the record asks for."""
        value, key, partition, headers = request
        parsed = self._reader.read(headers, key, value, now_ms, partition, LAST_OFFSET)
        if isinstance(parsed, Rejection):
            return parsed.code, parsed.detail
        if (why := _other_meaning(record, int(headers[-2][1] or 0), parsed)) is not None:
            return "other-meaning", why
        refusal = self._refusal(record.target, _partition_in(parsed))
        if refusal is not None:
            return refusal.code, refusal.detail
        size_bytes = record_batch_bytes(key, value, headers)
        if self._limit is not None and size_bytes > int(self._limit):
            limit = f"the ingress allows {self._limit} (max.message.bytes)"
            return "too-large", f"the record has {size_bytes} bytes, and {limit}"
        return None

    def _refusal(self, target: str, partition: int) -> Rejection | None:
        """Return why the broker would refuse a delivery. With `topics.create`, accept
        each topic of a retry group, because the proxy creates missing ones."""
        at = target, partition
        if at not in self._refusals:
            if len(self._refusals) >= REMEMBERED:
                self._refusals.clear()
            topics = self._settings.topics
            is_made = topics.create and group_named_in(target, topics) is not None
            self._refusals[at] = None if is_made else target_refusal(self._targets, *at)
        return self._refusals[at]

    def _refuse_equal_ids(self, idents: "array[int]") -> None:
        """Raise ProxyError if two records have the same id in a partition, because the second would
        replace the first. `idents` has a digest of each record's partition and id."""
        found = np.sort(np.frombuffer(idents, np.uint64))
        if (equal := int((found[1:] == found[:-1]).sum())) > 0:
            raise ProxyError(
                f"{equal:,} records have the id of another record, which lay in another partition "
                "of the old ingress. They would replace each other.",
                "Create the new ingress with as many partitions as the old one.",
            )


def _partition_in(parsed: ParsedRecord) -> int:
    assert isinstance(parsed, Scheduled), parsed
    return delivery_of(parsed.entry).partition


def _other_meaning(record: ExportedRecord, due_ms: int, parsed: ParsedRecord) -> str | None:
    """Return a sentence if the record has another meaning under the new settings."""
    hint = "compare header_aliases, retry and requests.serve with the old settings"
    if not isinstance(parsed, Scheduled):
        return f"it would be a {type(parsed).__name__.lower()}: {hint}"
    asked = record.ident, due_ms, record.target
    found = parsed.ident, parsed.due_ms, parsed.entry[2]
    for name, one, other in zip(("id", "due", "target"), asked, found, strict=True):
        if one != other:
            return f"its {name} would be {other!r}, not {one!r}: {hint}"
    return None
