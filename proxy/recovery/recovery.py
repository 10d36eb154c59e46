"""Takeover of a partition: its committed offset, local state, and records.

Nothing starts over silently. If the committed offset is lost or contradicts the log, the proxy
stops until an operator accepts the loss (docs/exactly-once.md, rules 4, 5 and 8).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Final

import structlog
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from proxy.clock import Clock
from proxy.config.settings import Settings
from proxy.errors import StartOverRefused
from proxy.kafka.ingress import Ingress
from proxy.kafka.log_ranges import LogRange, log_ranges
from proxy.kafka.reader import IngressLookup
from proxy.kafka.settings_topic import SettingsTopic
from proxy.kafka.topics import TopicFacts
from proxy.protocol.body import IngressPartition
from proxy.protocol.parsed import ParsedRecord
from proxy.protocol.position import MetadataUnreadable, PolicyFrom, Position, TooManyPolicies
from proxy.protocol.proofs import HopAuthenticator
from proxy.protocol.request_reader import ReadersByOffset, RequestReader
from proxy.recovery.local_state import FetchedBodies, LocalState
from proxy.scheduling.missed_moves import MissedMoves, MissedReading, missed_place
from proxy.scheduling.shard import CountIntake, Shard
from storage.store import Store

READ_BACK_GAP: Final = 500
"""Wanted records at most this many offsets apart are read in one pass. Records between them are
read and dropped."""
SETTING: Final = "recovery: accept_loss_below"
REMEDY: Final = "docs/operations/runbook.md#a-watermark-lies-ahead"

log = structlog.get_logger(__name__)


class Recovery:
    """Builds shards for newly assigned partitions of `topic`. `digest` names the present policy."""

    def __init__(
        self,
        topic: TopicFacts,
        settings: Settings,
        admin: AdminClient,
        policies: SettingsTopic,
        ingress: Ingress,
        lookup: IngressLookup,
        folders: LocalState,
        digest: str,
        clock: Clock,
        count_intake: CountIntake,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._facts, self._topic, self._topic_id = topic, topic.name, topic.topic_id
        self._settings, self._admin, self._policies = settings, admin, policies
        self._ingress, self._lookup, self._folders = ingress, lookup, folders
        self._digest, self._clock = digest, clock
        self._accept_loss_below = settings.recovery.accept_loss_below
        self._count_intake, self._now_s = count_intake, now_s
        self._readers: dict[str, RequestReader] = {}

    def take_over(self, partitions: Sequence[int]) -> dict[int, Shard]:
        """Return one shard for each partition. If a shard fails, all are closed. The settings
        topic is read first, because it names the offsets that an operator has skipped."""
        if partitions:
            self._policies.catch_up()
        committed = self._ingress.committed(partitions)
        ranges = log_ranges(self._admin, self._topic, partitions) if partitions else {}
        with ExitStack() as opened:
            shards = {
                place.partition: self._shard(place, ranges[place.partition], opened)
                for place in committed
            }
            opened.pop_all()
        return shards

    def _shard(self, committed: TopicPartition, log_range: LogRange, opened: ExitStack) -> Shard:
        """Check the position against the log, open local state, and find where to read on."""
        partition = committed.partition
        position = self._position(committed, log_range)
        store = opened.enter_context(closing(self._folders.open(partition, position)))
        register = opened.enter_context(
            closing(self._folders.open_register(partition, position, store.covered))
        )
        covered = min(store.covered, register.covered)
        read_from = min(position.next_offset, max(position.floor, covered))
        if log_range.start > read_from:
            self._accept_loss(partition, read_from, log_range)
            read_from = log_range.start
            position = replace(position, next_offset=max(position.next_offset, read_from))
        log.info(
            "shard taken over",
            partition=partition,
            next_offset=position.next_offset,
            watermark_ms=position.watermark_ms,
            floor=position.floor,
            read_from=read_from,
            end=log_range.end,
            local_pending=store.pending(),
        )
        readers = ReadersByOffset(
            [(first, self._reader(digest)) for first, digest in position.policies]
        )
        return Shard(
            IngressPartition(self._topic, partition),
            position,
            self._with_bodies(partition, store, readers),
            readers,
            read_from,
            log_range.end,
            register,
            partial(self._read_back, partition, readers),
            self._missed(partition, position),
            self._count_intake,
        )

    def _with_bodies(self, partition: int, store: Store, readers: ReadersByOffset) -> Store:
        if not self._folders.has_stubs(partition):
            return store
        return FetchedBodies(
            store,
            partial(self._lookup.read, partition),
            readers.read,
            stores_stubs=self._settings.bodies == "kafka",
            now_s=self._now_s,
        )

    def _read_back(
        self, partition: int, readers: ReadersByOffset, offsets: Sequence[int]
    ) -> dict[int, ParsedRecord]:
        messages = self._lookup.read(partition, offsets, READ_BACK_GAP)
        return {offset: readers.read(message) for offset, message in messages.items()}

    def _missed(self, partition: int, position: Position) -> MissedMoves:
        topic, group_id = self._settings.topics.settings, self._settings.group_id
        place = missed_place(topic, group_id, self._topic, self._topic_id, partition)
        if position.missed_upto is None:
            return MissedMoves(place)
        reading = MissedReading(place, position.missed_upto, position.floor)
        self._policies.read_missed(reading.take, lambda: reading.is_complete)
        return reading.result()

    def record_first_commit(self, policies: Mapping[int, Sequence[PolicyFrom]]) -> None:
        self._policies.record_served(self._facts, policies)
        self._folders.mark_committed(policies)

    def _position(self, committed: TopicPartition, log_range: LogRange) -> Position:
        partition = committed.partition
        if committed.offset < 0:
            return self._first_position(partition, log_range)
        try:
            position = Position.from_metadata(committed.offset, committed.metadata)
        except MetadataUnreadable as unreadable:
            return self._accepted_start(partition, log_range, str(unreadable))
        if position.topic_id != self._topic_id:
            found = (
                f"the committed offset {position.next_offset} belongs to a topic {self._topic} "
                f"with id {position.topic_id}; the topic now has id {self._topic_id}: it was "
                "deleted and created again"
            )
            return self._accepted_start(partition, log_range, found)
        if position.next_offset > log_range.end:
            found = (
                f"the committed offset {position.next_offset} is beyond the partition's end "
                f"{log_range.end}: the broker has lost records"
            )
            return self._accepted_start(partition, log_range, found)
        self._policies.record_served(self._facts, {partition: position.policies})
        return self._under_own_policy(self._at_right_time(partition, position), log_range.end)

    def _at_right_time(self, partition: int, position: Position) -> Position:
        """Report a watermark ahead of the clock. If an operator asks, set the watermark back."""
        ahead_ms = self._clock.ahead_ms(position.watermark_ms)
        if ahead_ms <= self._clock.max_step_ms:
            return position
        where = {
            "partition": partition,
            "watermark_ms": position.watermark_ms,
            "ahead_ms": ahead_ms,
        }
        if partition in self._settings.recovery.set_back_watermark and position.set_back is None:
            log.warning("watermark ahead of the clock is set back", **where)
            return position.with_watermark_set_back()
        log.error(
            "watermark ahead of the clock: a worker whose clock was ahead has delivered up to "
            "it; no record of this partition fires until the clock reaches it",
            **where,
            remedy=REMEDY,
        )
        return position

    def _first_position(self, partition: int, log_range: LogRange) -> Position:
        served_id = self._policies.served_topic_id(self._topic, partition)
        if served_id is not None and served_id != self._topic_id:
            found = (
                f"the group served a topic of this name with id {served_id}; the topic now has "
                f"id {self._topic_id}: it was deleted and created again"
            )
            return self._accepted_start(partition, log_range, found)
        if served_id is not None or self._folders.was_committed(partition):
            where = "the settings topic" if served_id else "the local data folder"
            found = f"the group has no committed offset, but {where} shows that there was one"
            return self._accepted_start(partition, log_range, found)
        log.info("partition served for the first time", partition=partition, start=log_range.start)
        return Position.start(log_range.start, self._digest, self._topic_id)

    def _accepted_start(self, partition: int, log_range: LogRange, found: str) -> Position:
        accepted = self._accept_loss_below.get(partition)
        if accepted is None or not log_range.start <= accepted <= log_range.end:
            raise StartOverRefused(
                f"Partition {partition} of {self._topic}: {found}. The pending records are "
                f"unknown. The partition now holds offsets {log_range.start} to "
                f"{log_range.end - 1}.",
                f"To start again at an offset that you choose, set `{SETTING}: {{{partition}: "
                f"{log_range.start}}}`. Records from there on are read as new, so some may be "
                "delivered a second time. Earlier records are given up.",
            )
        log.warning(
            "starting again at the accepted offset",
            partition=partition,
            start=accepted,
            found=found,
        )
        return Position.start(accepted, self._digest, self._topic_id)

    def _under_own_policy(self, position: Position, end: int) -> Position:
        """Put the current policy in force. The first policy with signatures applies only from the
        partition's end on, because earlier rewritten records are unsigned."""
        policy, own = self._policies.policy, self._policies.policy(self._digest)
        before = policy(position.digest_in_force())
        is_first_signed = own.hop_key is not None and before.hop_key is None
        first_offset = end if is_first_signed else position.next_offset
        try:
            return position.with_policy(self._digest, first_offset)
        except TooManyPolicies as problem:
            raise StartOverRefused(f"The settings cannot change now: {problem}.") from None

    def _accept_loss(self, partition: int, read_from: int, log_range: LogRange) -> None:
        """Refuse to go on if retention has deleted needed records, unless the loss is accepted."""
        if self._accept_loss_below.get(partition, -1) < log_range.start:
            raise StartOverRefused(
                f"Partition {partition} of {self._topic}: offsets {read_from} to "
                f"{log_range.start - 1} are still needed, but the topic's retention has deleted "
                "them. Records among them that were pending are lost.",
                "Restore the local data folder if you have a copy. Otherwise accept the loss "
                f"with `{SETTING}: {{{partition}: {log_range.start}}}`, and raise the topic's "
                "retention.ms to more than twice the longest time the proxy may be down.",
            )
        log.error("records given up", partition=partition, first=read_from, to=log_range.start)

    def _reader(self, digest: str) -> RequestReader:
        if digest not in self._readers:
            policy = self._policies.policy(digest)
            key = policy.hop_key and self._policies.hop_key(policy.hop_key)
            authenticator = HopAuthenticator(key, self._topic_id) if key else None
            self._readers[digest] = RequestReader(policy, authenticator)
        return self._readers[digest]
