"""Which targets are paused: shared by all workers and instances through the settings topic.

A record `paused/<group_id>/<pattern>` says that the targets of a shell pattern are paused, a
deletion of its key that they are not. Compaction keeps what counts, so it outlives every restart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

PREFIX: Final = "paused/"
PATTERN: Final = re.compile(r"[a-zA-Z0-9._*?\[\]!-]{1,249}")
"""What a pattern of topic names can be made of."""
MOST: Final = 1_000
READ_TIMEOUT_S: Final = 30.0
AT_ONCE: Final = 500

log = structlog.get_logger(__name__)


def key_of(group_id: str, pattern: str) -> str:
    """Key of the record that says whether the targets of `pattern` are paused."""
    return f"{PREFIX}{group_id}/{pattern}"


def pattern_of(group_id: str, key: bytes | None) -> str | None:
    """The pattern that a record of the settings topic is about; None: about something else."""
    own = key_of(group_id, "")
    text = (key or b"").decode("utf-8", "replace")
    pattern = text.removeprefix(own)
    return pattern if text.startswith(own) and PATTERN.fullmatch(pattern) else None


def pauses_config(kafka: Mapping[str, Any], group_id: str) -> dict[str, Any]:
    """Settings of a consumer that reads the settings topic on and on; it joins no group."""
    return {
        **kafka,
        "group.id": f"{group_id}-pauses-reader",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "max.poll.interval.ms": 86_400_000,
        "fetch.wait.max.ms": 100,
        "queued.max.messages.kbytes": 1_024,
        "reconnect.backoff.max.ms": 1_000,
    }


class Pauses:
    """Follows the settings topic. All calls come from one thread; none but `load` waits."""

    def __init__(
        self, consumer: Consumer, topic: str, group_id: str, beat: Callable[[], None]
    ) -> None:
        self._consumer, self._topic, self._group_id = consumer, topic, group_id
        self._beat = beat
        self._patterns: set[str] = set()

    @property
    def patterns(self) -> frozenset[str]:
        """What is paused, as of the last look."""
        return frozenset(self._patterns)

    def load(self) -> None:
        """Read all there is, so that nothing paused is let go. Raises KafkaException."""
        metadata = self._consumer.list_topics(self._topic, READ_TIMEOUT_S).topics[self._topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        open_ends = set(metadata.partitions)
        self._consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in open_ends])
        while open_ends:
            self._beat()
            message = self._consumer.poll(READ_TIMEOUT_S)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer in time"))
            if self._take(message):
                open_ends.discard(cast(int, message.partition()))

    def look(self) -> bool:
        """Take what has arrived, without waiting; whether anything has changed."""
        before = self.patterns
        for message in self._consumer.consume(AT_ONCE, 0):
            self._take(message)
        return before != self._patterns

    def close(self) -> None:
        """Follow it no more."""
        self._consumer.close()

    def _take(self, message: Message) -> bool:
        """Note one record; whether it is the end of its partition instead."""
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                log.warning("settings topic not readable for now", error=error.str())
            return error.code() == KafkaError._PARTITION_EOF
        pattern = pattern_of(self._group_id, message.key())
        if pattern is not None:
            self._note(pattern, is_paused=message.value() is not None)
        return False

    def _note(self, pattern: str, *, is_paused: bool) -> None:
        if not is_paused:
            self._patterns.discard(pattern)
        elif len(self._patterns) < MOST:
            self._patterns.add(pattern)
        else:
            log.error("too many pauses: this one does not count", pattern=pattern, most=MOST)
