"""The ingress records that became letters: read again where a letter came without its value."""

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

from proxy.dead_letters.letters.letter import Letter
from proxy.dead_letters.letters.replay_planner import Original
from proxy.kafka.ingress.ingress import NOT_IN_THE_LOG
from proxy.kafka.ingress.ingress_lookup import IngressLookup
from proxy.kafka.ingress.unreadable_batch import UNREADABLE_BATCH


class Originals:
    """Reads originals one by one. `new_consumer` makes one with `lookup_config`.

    `partitions_of` says how many partitions a topic has, 0 when there is no such topic. Raises
    KafkaException.
    """

    def __init__(
        self, new_consumer: Callable[[], Consumer], partitions_of: Callable[[str], int]
    ) -> None:
        self._new_consumer, self._partitions_of = new_consumer, partitions_of
        self._topic = ""
        self._partitions = 0
        self._lookup: IngressLookup | None = None

    def find(self, letter: Letter) -> Original | None:
        """The record at the letter's origin, whatever it is; None when nothing is there, or no
        client can read it."""
        origin = letter.origin
        if origin is None:
            return None
        lookup = self._lookup_in(origin.topic)
        if origin.partition >= self._partitions:
            return None
        try:
            record = lookup.read(origin.partition, [origin.offset], 0).get(origin.offset)
        except KafkaException as error:
            if error.args[0].code() not in {NOT_IN_THE_LOG, *UNREADABLE_BATCH}:
                raise
            self.close()  # beyond the end: the topic has been made anew
            return None
        if record is None:
            return None
        return record.key(), record.value(), record.headers() or []

    def close(self) -> None:
        """Give the consumer up; another is made when needed."""
        if self._lookup is not None:
            self._lookup.close()

    def _lookup_in(self, topic: str) -> IngressLookup:
        if self._lookup is None or topic != self._topic:
            self.close()
            self._topic, self._partitions = topic, self._partitions_of(topic)
            self._lookup = IngressLookup(self._new_consumer, topic, lambda: None)
        return self._lookup
