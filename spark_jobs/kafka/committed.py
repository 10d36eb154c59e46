"""What the proxy has committed, and its policies: read before anything else."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from spark_jobs.kafka.broker import ASK_TIMEOUT_S, Broker, Place
from spark_jobs.kafka.positions import (
    Committed,
    OffsetRange,
    OverdueText,
    PolicyFrom,
    policies_from,
)
from spark_jobs.records.bounded_json import read_json, whole
from spark_jobs.records.fingerprints import policy_digest
from spark_jobs.records.hop_macs import KEY_PREFIX, hop_key
from spark_jobs.runtime.errors import NothingCommitted, NotOurs, StillOpen

STABLE_TIMEOUT_S: Final = 60.0
SERVED: Final = "served/"
OVERDUE: Final = "overdue/"
SKIPPED: Final = "skipped/"
SHOWN_BYTES: Final = 60
UNSTABLE: Final = frozenset({KafkaError._TIMED_OUT, KafkaError.UNSTABLE_OFFSET_COMMIT})


def committed_positions(
    broker: Broker, group_id: str, topic: str, partitions: int, topic_id: str
) -> tuple[Committed, ...]:
    """One for each partition of the ingress `topic`; waits for a commit that is under way.

    Raises `NothingCommitted`, `NotOurs`, `StillOpen`.
    """
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with closing(broker.consumer(group_id)) as consumer:
        found = _asked(broker, consumer, places)
    positions = tuple(_position(place, group_id) for place in found)
    if all(one.next_offset is None for one in positions):
        raise NothingCommitted(
            f"The group {group_id} has committed nothing for {topic}: no proxy has served it yet.",
            "Start the proxy, or correct --group and --ingress.",
        )
    for one in positions:
        _check_topic_id(one, topic, topic_id)
    return positions


def _asked(
    broker: Broker, consumer: Consumer, places: list[TopicPartition]
) -> list[TopicPartition]:
    try:
        return consumer.committed(places, STABLE_TIMEOUT_S)
    except KafkaException as failed:
        if failed.args[0].code() in UNSTABLE:
            raise StillOpen(
                f"The proxy's commit for {places[0].topic} has been under way for "
                f"{STABLE_TIMEOUT_S:g} s.",
                "Its transaction is open: see docs/operations/runbook.md, and run the audit again.",
            ) from None
        raise broker.explained(failed.args[0]) from None


def _position(place: TopicPartition, group_id: str) -> Committed:
    if place.offset < 0:
        return Committed(place.partition)
    try:
        return Committed.from_metadata(place.partition, place.offset, place.metadata)
    except ValueError as error:
        raise NotOurs(
            f"The group {group_id} has committed offset {place.offset} of {place.topic}, partition "
            f"{place.partition}, with metadata that no proxy of this version wrote: {error}.",
            "Correct --group; or take the version of kafka-delay-proxy that runs.",
        ) from None


def _check_topic_id(one: Committed, topic: str, topic_id: str) -> None:
    if one.topic_id not in (None, topic_id):
        raise NotOurs(
            f"The committed offset {one.next_offset} of partition {one.partition} belongs to a "
            f"topic {topic} with id {one.topic_id}; the one there now has id {topic_id}: it was "
            "deleted and created anew.",
            "What became of the old topic's records cannot be audited any more.",
        )


class SettingsTopic(NamedTuple):
    """What the settings topic holds.

    policies: JSON by digest, in the order written; a text that is not what its digest was made from
    is left out. served: by its key, a served partition's topic id and all its policies: committed
    metadata names only those of records that are still needed. hop_secrets: by digest. overdue:
    rules for the overdue, by key. skipped: the end of each skipped batch, by key. Records that
    cannot be read are left out.
    """

    policies: dict[str, str]
    served: dict[str, tuple[str, tuple[PolicyFrom, ...]]]
    hop_secrets: dict[str, bytes]
    overdue: dict[str, OverdueText]
    skipped: dict[str, int]

    def skipped_of(self, group_id: str, topic_id: str) -> dict[int, list[OffsetRange]]:
        """The skipped batches of one group's ingress, by partition."""
        own = f"{SKIPPED}{group_id}/{topic_id}/"
        found: dict[int, list[OffsetRange]] = {}
        for key, end in self.skipped.items():
            if key.startswith(own):
                partition, base = map(int, key.removeprefix(own).split("/"))
                found.setdefault(partition, []).append((base, end))
        return {partition: sorted(ranges) for partition, ranges in found.items()}

    def overdue_of(self, group_id: str) -> list[OverdueText]:
        """The rules for the overdue of one group."""
        own = f"{OVERDUE}{group_id}/"
        return [text for key, text in self.overdue.items() if key.startswith(own)]


def settings_topic(broker: Broker, topic: str, partitions: int) -> SettingsTopic:
    """What the settings topic holds, read from its beginning to its end."""
    held = SettingsTopic({}, {}, {}, {}, {})
    with closing(broker.consumer("kafka-delay-proxy-audit")) as consumer:
        # A first offset is asked for at once only where the leader is known, else in half a second.
        broker.ask(lambda: consumer.list_topics(topic, ASK_TIMEOUT_S))
        consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        )
        for message in _to_end(broker, consumer, partitions):
            try:
                _note(message, held)
            except (ValueError, KeyError, TypeError) as error:
                shown = (message.key() or b"")[:SHOWN_BYTES]
                print(
                    f"Passed over a record of {topic} that cannot be read, with the key {shown!r}: "
                    f"{error}.",
                    file=sys.stderr,
                )
    return held


def settings_held(broker: Broker, topic: str) -> SettingsTopic:
    """What the settings topic of this name holds."""
    return settings_topic(broker, topic, broker.topics()[topic])


def with_earlier_policies(
    positions: Iterable[Committed], held: SettingsTopic, group_id: str, topic: str
) -> tuple[Committed, ...]:
    """The positions with the policies that were in force before those they name."""

    def of(one: Committed) -> Committed:
        nothing: tuple[str, tuple[PolicyFrom, ...]] = "", ()
        topic_id, known = held.served.get(f"{SERVED}{group_id}/{topic}/{one.partition}", nothing)
        if topic_id != one.topic_id:
            return one
        first = one.policies[0].first_offset
        earlier = [policy for policy in known if policy.first_offset < first]
        return replace(one, policies=(*earlier, *one.policies))

    return tuple(map(of, positions))


def check_policies(positions: Iterable[Committed], texts: dict[str, str], topic: str) -> None:
    """Raises `NotOurs` when a policy that is in force is not in the settings topic."""
    named = {policy.digest for one in positions for policy in one.policies}
    missing = sorted(named - set(texts))
    if missing:
        raise NotOurs(
            f"The committed offsets name the settings {missing[0]}, which the topic {topic} does "
            "not hold.",
            "Correct --settings-topic; if its records were deleted, restore them.",
        )


def first_timestamps(broker: Broker, starts: dict[Place, int]) -> dict[Place, int]:
    """The timestamp of the first committed record from these offsets on, where there is one and the
    time is the broker's own: what was written before it is older then. By producers' own times it
    may be younger."""
    if not starts:
        return {}
    with closing(broker.consumer("kafka-delay-proxy-audit")) as consumer:
        consumer.assign([TopicPartition(*place, start) for place, start in starts.items()])
        found: dict[Place, int] = {}
        for message in _to_end(broker, consumer, len(starts), first_only=True):
            place = (message.topic() or "", message.partition() or 0)
            kind, at_ms = message.timestamp()
            if kind == TIMESTAMP_LOG_APPEND_TIME:
                found.setdefault(place, at_ms)
        return found


def _to_end(
    broker: Broker, consumer: Consumer, partitions: int, *, first_only: bool = False
) -> Iterator[Message]:
    """What the assigned partitions hold, or of each only what comes first."""
    done: set[Place] = set()
    while len(done) < partitions:
        message = consumer.poll(ASK_TIMEOUT_S)
        if message is None:
            raise broker.explained(KafkaError(KafkaError._TIMED_OUT))
        error, place = message.error(), (message.topic() or "", message.partition() or 0)
        if error is None and place not in done:
            yield message
        elif error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise broker.explained(error)
        if error is not None or first_only:
            done.add(place)


def _note(message: Message, held: SettingsTopic) -> None:
    """Keep one record. Raises ValueError, KeyError or TypeError where it cannot be read."""
    key, text = message.key() or b"", message.value()
    if text is None:
        return
    if key == policy_digest(text).encode():
        read_json(text, dict)
        held.policies[key.decode()] = text.decode()
    elif key.startswith(KEY_PREFIX.encode()):
        digest, secret = hop_key(key, text)
        held.hop_secrets.setdefault(digest, secret)
    elif key.startswith(OVERDUE.encode()):
        read_json(text, list)
        held.overdue[key.decode()] = OverdueText(message.timestamp()[1], text.decode())
    elif key.startswith(SKIPPED.encode()):
        held.skipped.setdefault(_skipped_key(key), whole(read_json(text, dict)["end"]))
    elif key.startswith(SERVED.encode()):
        fields = read_json(text, dict)
        policies = policies_from(fields.get("policies", ()))
        held.served[key.decode("utf-8", "replace")] = str(fields["topic_id"]), policies


def _skipped_key(key: bytes) -> str:
    """Raises ValueError where it does not name a partition and an offset."""
    _rest, partition, base = key.decode().rsplit("/", 2)
    if min(int(partition), int(base)) < 0:
        raise ValueError("a number is below 0")
    return key.decode()
