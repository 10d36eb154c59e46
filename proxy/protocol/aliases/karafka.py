"""Karafka Pro Scheduled Messages: epoch SECONDS, a target, and what the record is.

Source: karafka/wiki, Pro/Scheduled-Messages.md (External Producers Support, Cancelling and
Updating Scheduled Messages); that a tombstone takes the key's schedule away as a cancel does:
karafka/karafka, lib/karafka/pro/scheduled_messages/daily_buffer.rb.
"""

from typing import Final

from proxy.protocol.aliases.foreign import SECONDS, Ask, ForeignRecord, Refused
from proxy.protocol.headers import PARTITION, shown

VERSION: Final = "schedule_schema_version"
TYPE: Final = "schedule_source_type"
EPOCH: Final = "schedule_target_epoch"
TARGET_TOPIC: Final = "schedule_target_topic"
TARGET_KEY: Final = "schedule_target_key"
TARGET_PARTITION: Final = "schedule_target_partition"
PARTITION_KEY: Final = "schedule_target_partition_key"
HEADERS: Final = frozenset(
    {VERSION, TYPE, EPOCH, TARGET_TOPIC, TARGET_KEY, TARGET_PARTITION, PARTITION_KEY}
)
SERVED_VERSION: Final = b"1.0.0"


def read(record: ForeignRecord) -> Ask:
    """A schedule, or an end of the schedule with this key."""
    _check_version(record)
    kind = record.headers.get(TYPE)
    if kind in {b"cancel", b"tombstone"}:
        return record.cancel()
    if kind != b"schedule":
        found = shown(kind) if TYPE in record.headers else "missing"
        raise Refused(
            "header-unreadable", f"{TYPE} is {found}: it must be schedule, cancel or tombstone"
        )
    _check_partition_key(record)
    return (
        record.target(TARGET_TOPIC)
        | record.due_at(EPOCH, SECONDS)
        | record.target_key(TARGET_KEY)
        | record.target_partition(TARGET_PARTITION)
        | record.identity()
    )


def _check_version(record: ForeignRecord) -> None:
    version = record.headers.get(VERSION, SERVED_VERSION)
    if version != SERVED_VERSION:
        raise Refused(
            "header-unsupported", f"{VERSION} is {shown(version)}: the proxy reads 1.0.0 alone"
        )


def _check_partition_key(record: ForeignRecord) -> None:
    """A key of its own for the partition would be hashed as Ruby's client does; ours hashes the
    target key as Java's does."""
    if PARTITION_KEY not in record.headers or PARTITION in record.headers:
        return
    if record.headers[PARTITION_KEY] != record.headers.get(TARGET_KEY):
        raise Refused(
            "header-unsupported",
            f"{PARTITION_KEY} is another key than {TARGET_KEY}: the proxy chooses partitions by "
            f"the target key, by {TARGET_PARTITION} alone or by {PARTITION}",
        )
