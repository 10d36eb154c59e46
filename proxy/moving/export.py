"""Exports of a group's pending records, as they are at the committed positions.

The export recovers each shard in a temporary folder, with the code of a takeover. So the export
reads cancels, replaced records, half messages and policies as a proxy does. It writes nothing to
the broker.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from proxy.clock import Clock, wall_clock_ms
from proxy.config.settings import Settings
from proxy.dispatch.hops import NOT_CARRIED_ON
from proxy.errors import ProxyError
from proxy.kafka.access import client_config
from proxy.kafka.client_settings import (
    listener_config,
    lookup_config,
    session_timeout_ms,
)
from proxy.kafka.group import MARGIN_S, Member, group_members
from proxy.kafka.ingress import Ingress
from proxy.kafka.reader import READER_CONFIG, IngressLookup, TopicReader
from proxy.kafka.settings_topic import (
    SettingsTopic,
    UnchangedSettingsTopic,
    open_settings_topic,
)
from proxy.kafka.topics import TopicFacts, admin_client, describe_topic
from proxy.kafka.unreadable import SkippedRanges
from proxy.moving.export_file import ExportedPartition, ExportedRecord, ExportHeader
from proxy.protocol.body import BODY_FORMAT, GONE, Message, delivery_of
from proxy.protocol.outcomes import as_ingested
from proxy.protocol.position import LAST_OFFSET, NEVER_MS, MetadataUnreadable, Position
from proxy.recovery.local_state import LocalState
from proxy.recovery.recovery import Recovery
from proxy.scheduling.shard import Shard, State
from storage.errors import StorageError
from storage.options import Options
from storage.store import PEEK_BYTES, Entry, Key

TAKEN_AT_ONCE: Final = 2_000
FLUSHED_AT_ONCE: Final = 50_000
LOOK_EVERY_S: Final = 0.5
LIST_WITHIN_S: Final = 10.0
SETTLED_WITHIN_S: Final = 15.0
"""An export waits at most this long for open transactions. If a proxy has crashed, the broker
aborts the proxy's transaction after 10 s by default."""
SHOWN_AT_MOST: Final = 10
UNDECIDED: Final = "undecided half message"
REFUSED: Final = "would become a dead letter"
GONE_BODY: Final = "its body is no longer in the ingress"


class NothingCommitted(ProxyError):
    """The group has no committed position, so it is unknown which records are pending."""

    def __init__(self, group_id: str, topic: str) -> None:
        super().__init__(
            f"The group {group_id} has no committed offset for {topic}.",
            "Correct `group_id` and `topics.ingress`, or give the proxy's own --config.",
        )


@dataclass
class LeftBehind:
    """The records that an export cannot hold."""

    counts: Counter[str] = field(default_factory=Counter)
    """Reason -> number of records."""
    examples: list[tuple[str, str]] = field(default_factory=list)
    """Origin and reason of each of the first records."""

    def add(self, origin: str, why: str) -> None:
        self.counts[why.partition(":")[0]] += 1
        if len(self.examples) < SHOWN_AT_MOST:
            self.examples.append((origin, why))


class PositionReader(Recovery):
    """Recovers shards at their committed positions. Adds no policy to a position."""

    def _under_own_policy(self, position: Position, end: int) -> Position:
        del end
        return position


@dataclass
class Export:
    """The recovered shards of a group. `records` can be read only once."""

    header: ExportHeader
    controls: Sequence[str]
    """Target patterns with a pause or a rate limit that was set at run time."""
    left: LeftBehind
    _shards: dict[int, Shard]
    _reading: Callable[[int, range], Iterator[Message]]

    def records(self) -> Iterator[ExportedRecord]:
        """Yield the pending records by partition, in the order in which they fire."""
        for at in self.header.partitions:
            shard = self._shards[at.partition]
            yield from self._caught_up(shard, at.read_to)
            yield from self._pending(shard)

    def _caught_up(self, shard: Shard, end: int) -> Iterator[ExportedRecord]:
        """Ingest the records from the committed offset to `end`. Yield the records that are due.

        In a proxy, a record that is already due when it is ingested ends with the next transaction.
        So it never becomes pending. No pending entry fires here, because `barrier` is set to the
        last possible offset, and a shard fires no entry below its barrier."""
        shard.barrier = LAST_OFFSET
        messages = self._reading(shard.ingress.number, range(shard.next_offset, end))
        flushed_at = shard.next_offset
        while True:
            piece = list(islice(messages, TAKEN_AT_ONCE))
            if not piece:
                break
            yield from self._ingested(shard, piece)
            if shard.next_offset - flushed_at >= FLUSHED_AT_ONCE:
                flushed_at = shard.next_offset
                shard.request_flush()
            shard.maintain(TAKEN_AT_ONCE, 0)
        shard.reach(end)

    def _ingested(self, shard: Shard, messages: Sequence[Message]) -> Iterator[ExportedRecord]:
        """Ingest the messages and confirm them as committed, without a write to the broker."""
        now_ms = max(wall_clock_ms(), shard.position.watermark_ms)
        shard.ingest(messages, now_ms, TAKEN_AT_ONCE, PEEK_BYTES)
        while shard.state is not State.REPLAYING:
            plan = shard.plan(now_ms, TAKEN_AT_ONCE, PEEK_BYTES)
            for letter in plan.batch.dead_letters:
                origin = shard.ingress.origin(letter.offset)
                self.left.add(origin, f"{REFUSED}: {letter.reason.code}: {letter.reason.detail}")
            yield from self._described(shard, plan.batch.deliveries)
            shard.confirm(plan)
            if not shard.backlog:
                break
            shard.ingest((), now_ms, TAKEN_AT_ONCE, PEEK_BYTES)

    def _pending(self, shard: Shard) -> Iterator[ExportedRecord]:
        after: Key = (-1, -1)
        end: Key = (NEVER_MS - 1, LAST_OFFSET)
        while after < end:
            found, after = shard.scan(after, end[0], None, TAKEN_AT_ONCE, PEEK_BYTES)
            yield from self._described(shard, found)
        for offset, _ident, _size in shard.half_messages.beyond(-1, len(shard.half_messages)):
            self.left.add(shard.ingress.origin(offset), UNDECIDED)

    def _described(self, shard: Shard, entries: Sequence[Entry]) -> Iterator[ExportedRecord]:
        for delivery in map(delivery_of, entries):
            if shard.is_purged(delivery.entry_offset, delivery.target, delivery.due_ms):
                continue
            if delivery.partition == GONE:
                self.left.add(shard.ingress.origin(delivery.offset), GONE_BODY)
                continue
            key, headers = as_ingested(delivery)
            yield ExportedRecord(
                *shard.ingress,
                delivery.offset,
                delivery.due_ms,
                delivery.target,
                key,
                delivery.value,
                [header for header in headers if header[0] not in NOT_CARRIED_ON],
            )


@contextmanager
def open_export(settings: Settings) -> Iterator[Export]:
    """Recover the group's shards. Raises ProxyError, KafkaException."""
    with TemporaryDirectory(prefix="kafka-delay-proxy-export-") as folder, ExitStack() as opened:
        try:
            yield _opened(settings, Path(folder), opened)
        except StorageError as error:
            raise ProxyError(
                f"The shards cannot be recovered in {folder}: {error}.",
                "Set TMPDIR to a folder with as much room as the proxies' data folders.",
            ) from None


def _opened(settings: Settings, folder: Path, opened: ExitStack) -> Export:
    admin = admin_client(settings)
    topic = describe_topic(settings.topics.ingress, admin, settings)
    is_live = _has_members(settings, lambda: group_members(admin, settings.group_id))
    policies = open_settings_topic(settings, _no_heartbeat, admin, UnchangedSettingsTopic)
    opened.enter_context(closing(policies))
    skipped = policies.skipped(topic.topic_id)
    lookups = partial(Consumer, lookup_config(settings))
    listeners = partial(Consumer, listener_config(settings))
    ingress = Ingress(lookups(), topic.name, listeners, skipped=skipped)
    opened.enter_context(closing(ingress))
    lookup = IngressLookup(lookups, topic.name, _no_heartbeat, skipped=skipped)
    opened.enter_context(closing(lookup))
    numbers = list(range(topic.partitions))
    before = ingress.committed(numbers)
    recovery = PositionReader(
        topic,
        settings,
        admin,
        policies,
        ingress,
        lookup,
        LocalState(folder, topic.name, topic.topic_id, Options(body_format=BODY_FORMAT)),
        _policy_in_force(before, settings),
        Clock(settings.clock.max_step_ms),
        lambda *_: None,
    )
    shards = recovery.take_over(numbers)
    for shard in shards.values():
        opened.callback(shard.close)
    reader = _reader(settings, topic, skipped)
    ends = _ends(reader, {} if is_live else shards)
    is_still = _places(before) == _places(ingress.committed(numbers))
    header = ExportHeader(
        str(admin.list_topics(timeout=LIST_WITHIN_S).cluster_id),
        topic.name,
        topic.topic_id,
        settings.group_id,
        tuple(_taken(shards[number], ends[number], is_still=is_still) for number in numbers),
        is_live or not is_still,
    )

    def messages(partition: int, span: range) -> Iterator[Message]:
        read = reader.records(partition, span)
        return (one for one in read if not _is_skipped(skipped, partition, one.offset()))

    return Export(header, _set_at_run_time(policies), LeftBehind(), shards, messages)


def _has_members(settings: Settings, ask: Callable[[], list[Member]]) -> bool:
    """Return whether the group still has members after the session time-out. Stopped members have
    left the group by then."""
    until_s = time.monotonic() + session_timeout_ms(settings) / 1000 + MARGIN_S
    while ask():
        if time.monotonic() > until_s:
            return True
        time.sleep(LOOK_EVERY_S)
    return False


def _policy_in_force(committed: Sequence[TopicPartition], settings: Settings) -> str:
    """Return the digest of the policy in force in the first partition with a readable position. The
    export uses this policy for all partitions without a committed offset."""
    served = [one for one in committed if one.offset >= 0]
    if not served:
        raise NothingCommitted(settings.group_id, settings.topics.ingress)
    for one in served:
        with suppress(MetadataUnreadable):
            return Position.from_metadata(one.offset, one.metadata).digest_in_force()
    return ""


def _reader(settings: Settings, topic: TopicFacts, skipped: SkippedRanges) -> TopicReader:
    def end_of_batch(_topic: str, partition: int, base: int) -> int:
        found = skipped.first_in(partition, base, base)
        if found is None:
            raise ProxyError(
                f"No client can read the batch at {topic.name}/{partition}/{base}.",
                "Skip this batch (`kafka-delay-proxy skip`). Export after a proxy has read on.",
            )
        return found.stop

    config = client_config(settings, group_id=settings.group_id, **READER_CONFIG)
    consumers, numbers = partial(Consumer, config), range(topic.partitions)
    return TopicReader(consumers, topic.name, numbers, end_of_batch=end_of_batch)


def _is_skipped(skipped: SkippedRanges, partition: int, offset: int) -> bool:
    return skipped.first_in(partition, offset, offset) is not None


def _ends(reader: TopicReader, shards: Mapping[int, Shard]) -> dict[int, int]:
    """Return the end offset of the committed records of each partition. Wait for transactions that
    are open in the partitions of `shards`."""
    until_s = time.monotonic() + SETTLED_WITHIN_S
    while True:
        ends = {number: span.stop for number, span in reader.spans().items()}
        open_ones = [number for number, shard in shards.items() if ends[number] < shard.barrier]
        if not open_ones:
            return ends
        if time.monotonic() > until_s:
            raise ProxyError(
                f"A transaction is open at offset {ends[open_ones[0]]} of partition "
                f"{open_ones[0]}. The records after this offset are unknown.",
                "Stop the producers, and export again. The runbook says how to abort a hanging "
                "transaction.",
            )
        time.sleep(LOOK_EVERY_S)


def _places(committed: Sequence[TopicPartition]) -> list[tuple[int, str | None]]:
    return [(one.offset, one.metadata) for one in committed]


def _taken(shard: Shard, end: int, *, is_still: bool) -> ExportedPartition:
    """Return a shard's position for the export.

    If the group has committed again since the export read the position (`is_still` is False), no
    record after this position is exported. Such a record may be the rewrite of an exported one."""
    at = shard.position
    read_to = max(end, at.next_offset) if is_still else at.next_offset
    return ExportedPartition(shard.ingress.number, at.next_offset, at.watermark_ms, read_to)


def _set_at_run_time(policies: SettingsTopic) -> list[str]:
    controls = policies.controls
    found = [f"paused: {pattern}" for pattern in sorted(controls.paused)]
    found += [f"limited: {pattern}" for pattern in sorted(controls.limits)]
    return found


def _no_heartbeat() -> None:
    pass
