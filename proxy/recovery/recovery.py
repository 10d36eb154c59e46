"""Takes over a partition: from the broker's truth, the local cache, and the records themselves.

DESIGN 5.4, 5.5 and 5.8. Nothing starts over silently: where the truth is missing or contradicts
what is there, the proxy stops with the range and what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol, TypeAlias

import structlog
from confluent_kafka import TopicPartition

from proxy.errors import StartOverRefused
from proxy.kafka.topics import TopicFacts
from proxy.records.ingress_partition import IngressPartition
from proxy.records.message import Message
from proxy.records.position import MetadataUnreadable, PolicyFrom, Position, TooManyPolicies
from proxy.requests.parsed import ParsedRecord, Prepare
from proxy.requests.policy import Policy
from proxy.requests.policy_timeline import PolicyTimeline
from proxy.requests.request_reader import RequestReader, request_reader
from proxy.scheduling.shard import Shard
from storage.register import Register
from storage.store import Store

Judge: TypeAlias = Callable[[Message], ParsedRecord]
ReadBack: TypeAlias = Callable[[int, Sequence[int]], Mapping[int, Message]]
"""(partition, ascending offsets) -> the ingress records that are still there."""

log = structlog.get_logger(__name__)

SETTING: Final = "recovery: accept_loss_below"


class LogRange(NamedTuple):
    """First offset that the partition still has, and its high watermark."""

    start: int
    end: int


class Offsets(Protocol):
    """What recovery asks of the ingress consumer."""

    def committed(self, partitions: Sequence[int]) -> list[TopicPartition]: ...
    def log_range(self, partition: int) -> tuple[int, int]: ...


class Policies(Protocol):
    """What recovery asks of `proxy.kafka.policy_topic.PolicyTopic`."""

    def policy(self, digest: str) -> Policy: ...
    def served_topic_id(self, topic: str, partition: int) -> str | None: ...
    def mark_served(
        self, topic: TopicFacts, partition: int, policies: Sequence[PolicyFrom]
    ) -> None: ...


class Recovery:
    """Builds shards for newly assigned partitions.

    `open_store(partition, position)` opens the local state against the broker's position;
    `has_local_state(partition)` tells whether this machine ever kept any;
    `with_bodies(partition, store, judge)` makes whole what the store keeps as stubs;
    `open_register(partition, position, covered)` opens what is kept of ids, behind the store.
    """

    def __init__(
        self,
        topic: TopicFacts,
        policies: Policies,
        digest: str,
        accept_loss_below: Mapping[int, int],
        open_store: Callable[[int, Position], Store],
        has_local_state: Callable[[int], bool],
        with_bodies: Callable[[int, Store, Judge], Store],
        open_register: Callable[[int, Position, int], Register],
        read_back: ReadBack,
    ) -> None:
        self._facts, self._topic, self._topic_id = topic, topic.name, topic.topic_id
        self._policies, self._digest = policies, digest
        self._accept_loss_below = accept_loss_below
        self._open_store, self._has_local_state = open_store, has_local_state
        self._with_bodies = with_bodies
        self._open_register, self._read_back = open_register, read_back
        self._readers: dict[str, RequestReader] = {}

    def take_over(self, offsets: Offsets, partitions: Sequence[int]) -> dict[int, Shard]:
        """One shard per partition, ready to be handed records from its `next_offset` on."""
        committed = offsets.committed(partitions)
        return {
            place.partition: self._shard(place, LogRange(*offsets.log_range(place.partition)))
            for place in committed
        }

    def _shard(self, committed: TopicPartition, log_range: LogRange) -> Shard:
        """1. committed position; 2. does it fit the log; 3. local state; 4. where to read on."""
        partition = committed.partition
        position = self._position(committed, log_range)
        store = self._open_store(partition, position)
        register = self._open_register(partition, position, store.covered)
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
        readers = [(first, self._reader(digest)) for first, digest in position.policies]
        timeline = PolicyTimeline(readers)
        store = self._with_bodies(partition, store, timeline.read)
        ingress = IngressPartition(self._topic, partition)

        def read_half_messages(offsets: Sequence[int]) -> dict[int, Prepare]:
            messages = self._read_back(partition, offsets)
            parsed = ((offset, timeline.read(message)) for offset, message in messages.items())
            return {offset: one for offset, one in parsed if isinstance(one, Prepare)}

        return Shard(
            ingress,
            position,
            store,
            timeline,
            read_from,
            log_range.end,
            register,
            read_half_messages,
        )

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
                f"the committed offset {position.next_offset} belongs to a topic "
                f"{self._topic} with id {position.topic_id}; the topic there now has "
                f"id {self._topic_id}: it was deleted and created anew"
            )
            return self._accepted_start(partition, log_range, found)
        if position.next_offset > log_range.end:
            found = (
                f"the committed offset {position.next_offset} lies beyond the partition's end "
                f"{log_range.end}: the broker has lost records"
            )
            return self._accepted_start(partition, log_range, found)
        self._policies.mark_served(self._facts, partition, position.policies)
        return self._under_own_policy(position)

    def _first_position(self, partition: int, log_range: LogRange) -> Position:
        served_id = self._policies.served_topic_id(self._topic, partition)
        if served_id is not None and served_id != self._topic_id:
            found = (
                f"the group served a topic of this name with id {served_id}; the one there now "
                f"has id {self._topic_id}: it was deleted and created anew"
            )
            return self._accepted_start(partition, log_range, found)
        if served_id is not None or self._has_local_state(partition):
            where = "the settings topic" if served_id else "the local data folder"
            found = f"the group has no committed offset, but {where} shows that there was one"
            return self._accepted_start(partition, log_range, found)
        log.info("partition served for the first time", partition=partition, start=log_range.start)
        return Position.start(log_range.start, self._digest, self._topic_id)

    def _accepted_start(self, partition: int, log_range: LogRange, found: str) -> Position:
        """Begin anew where an operator has accepted it by name, else refuse."""
        accepted = self._accept_loss_below.get(partition)
        if accepted is None or not log_range.start <= accepted <= log_range.end:
            raise StartOverRefused(
                f"Partition {partition} of {self._topic}: {found}. What is still pending cannot "
                f"be known; the partition now holds offsets {log_range.start} to "
                f"{log_range.end - 1}.",
                f"To begin anew at an offset of your choice, set `{SETTING}: "
                f"{{{partition}: {log_range.start}}}` (records from there on are taken as new, so "
                "some may be delivered a second time; records below are given up).",
            )
        log.warning("beginning anew as accepted", partition=partition, start=accepted, found=found)
        return Position.start(accepted, self._digest, self._topic_id)

    def _under_own_policy(self, position: Position) -> Position:
        try:
            return position.under(self._digest)
        except TooManyPolicies as problem:
            raise StartOverRefused(f"The settings cannot change now: {problem}.") from None

    def _accept_loss(self, partition: int, read_from: int, log_range: LogRange) -> None:
        """Records that are still needed lie below the log's start: go on only where accepted."""
        if self._accept_loss_below.get(partition, -1) < log_range.start:
            raise StartOverRefused(
                f"Partition {partition} of {self._topic}: offsets {read_from} to "
                f"{log_range.start - 1} are still needed, but the topic's retention has deleted "
                "them. Records among them that were pending are lost.",
                "Restore the local data folder if there is one; else accept the loss with "
                f"`{SETTING}: {{{partition}: {log_range.start}}}`, and raise the topic's "
                "retention.ms to more than twice the longest time the proxy may be down.",
            )
        log.error("records given up", partition=partition, first=read_from, to=log_range.start)

    def _reader(self, digest: str) -> RequestReader:
        if digest not in self._readers:
            self._readers[digest] = request_reader(self._policies.policy(digest))
        return self._readers[digest]
