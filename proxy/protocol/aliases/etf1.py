"""etf1/kafka-message-scheduler: epoch SECONDS, target topic and key; the record's key is the id.

Source: etf1/kafka-message-scheduler, README.md; schedule/kafka/schedule.go (seconds, a null value
deletes), schedule/helper.go (a blank id is invalid), runner/kafka/handler.go (no target key gives
a null key), clientlib/clientlib.go (a deletion carries no header at all).
"""

from typing import Final

from proxy.protocol.aliases.foreign import SECONDS, Ask, ForeignRecord

EPOCH: Final = "scheduler-epoch"
TARGET_TOPIC: Final = "scheduler-target-topic"
TARGET_KEY: Final = "scheduler-target-key"
HEADERS: Final = frozenset({EPOCH, TARGET_TOPIC, TARGET_KEY})


def read(record: ForeignRecord) -> Ask:
    """A null value cancels, unless one of our own request headers makes it one to deliver."""
    if is_deletion(record):
        return record.cancel()
    return (
        record.target(TARGET_TOPIC)
        | record.due_at(EPOCH, SECONDS)
        | record.target_key(TARGET_KEY)
        | record.identity()
    )


def is_deletion(record: ForeignRecord) -> bool:
    """Whether a record is what etf1 takes for the end of a schedule."""
    return record.value is None and not record.has_own_request
