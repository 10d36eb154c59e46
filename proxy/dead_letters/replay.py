"""The steps of a replay: preview, then send, batch by batch."""

import logging
import time
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from proxy.clock import wall_clock_ms
from proxy.config.policy_from_settings import policy_of
from proxy.dead_letters.dead_letter_topics import DeadLetterTopics
from proxy.dead_letters.letters.edits import Edits
from proxy.dead_letters.letters.letter import Letter, Place
from proxy.dead_letters.letters.marks import Replayed, transactional_id
from proxy.dead_letters.letters.replay_planner import (
    NotReplayed,
    Replayable,
    ReplayDecision,
    ReplayPlanner,
)
from proxy.dead_letters.letters.replay_rate import Rate
from proxy.dead_letters.marks_topic import (
    await_settled,
    await_there,
    create_marks_topic,
    read_replayed,
    refuse_forgetful,
)
from proxy.dead_letters.replayer import Done, Failed, Replayer
from proxy.errors import BrokerRefused, ProxyError, TopicMissing
from proxy.kafka.access.connection import client_config
from proxy.kafka.access.rights import Right, grant
from proxy.kafka.client_settings import TUNED_PRODUCER, transaction_timeout_ms
from proxy.publishing.targets import Targets
from proxy.records.rejection import Rejection
from proxy.requests.request_reader import request_reader

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 8 * 1024 * 1024
"""A batch is one transaction; while it is open, the proxy sees nothing of the ingress behind it."""
WAIT_SLICE_S: Final = 0.1

OnDecision = Callable[[ReplayDecision, str | None], None]
"""Called for each letter with what becomes of it, and with the record that it was replayed as."""


class MarksMissing(ProxyError):
    """The topic that keeps account of replays does not exist and may not be created."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"The topic {topic}, which keeps account of what has been replayed, does not exist.",
            "Create it (1 partition, cleanup.policy=compact), or set `topics: create: true`.",
        )


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a person wants the replay."""

    edits: Edits = field(default_factory=Edits)
    is_again: bool = False
    limit: int | None = None
    rate: Rate | None = None


@contextmanager
def replay_planner(
    topics: DeadLetterTopics, options: ReplayOptions, replayed: Container[Place]
) -> Iterator[ReplayPlanner]:
    """Plans under the settings; what the broker would refuse now is asked of it."""
    ingress = topics.settings.topics.ingress
    partitions = topics.partitions_of(ingress)
    if not partitions:
        raise TopicMissing(ingress)
    targets = Targets(topics.connection.admin)
    with closing(topics.originals()) as originals:
        yield ReplayPlanner(
            request_reader(policy_of(topics.settings, retention_ms=None)),
            options.edits,
            frozenset() if options.is_again else replayed,
            originals.find,
            partial(_refusal, targets),
            ingress,
            partitions,
            topics.group,
        )


def replayed_so_far(topics: DeadLetterTopics) -> Replayed:
    """Which letters have been replayed; to look only: another replay may be adding to it."""
    replayed = Replayed(topics.topic_id, topics.spans())
    if partitions := topics.partitions_of(topics.marks_name):
        read_replayed(topics.reader(topics.marks_name, partitions), replayed)
    return replayed


def preview(
    topics: DeadLetterTopics,
    letters: Iterable[Letter],
    options: ReplayOptions,
    on_decision: OnDecision,
) -> None:
    """Say of each letter what a replay would do with it; changes nothing."""
    with replay_planner(topics, options, replayed_so_far(topics)) as planner:
        for decision in _limited(letters, planner, options.limit):
            on_decision(decision, None)


class Replay:
    """One replay, from taking over to the last batch, in the order of `replayer`."""

    def __init__(self, topics: DeadLetterTopics, options: ReplayOptions) -> None:
        self._topics, self._options = topics, options
        self._sent = 0
        self._started_s = 0.0
        partitions = self._ensure_marks()
        names = topics.settings.topics
        producer = Producer(_producer_config(topics))
        self._replayer = Replayer(
            producer, topics.name, topics.topic_id, names.ingress, topics.marks_name
        )
        try:
            self._replayer.take_over()
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise
            ident = transactional_id(topics.name)
            rights = [Right(one, "transactional-id", ident) for one in ("Write", "Describe")]
            raise BrokerRefused(
                f"The user may not use the transactional id {ident}.",
                grant(rights, topics.settings),
            ) from None
        self._replayed = self._read_marks(partitions)

    def run(
        self, letters: Iterable[Letter], on_decision: OnDecision, is_stopping: Callable[[], bool]
    ) -> None:
        """Replay the letters; ends after the current batch when asked to stop.

        Raises ReplayTakenOver, ReplayInDoubt, KafkaException.
        """
        self._started_s = time.monotonic()
        with replay_planner(self._topics, self._options, self._replayed) as planner:
            batch: list[Replayable] = []
            for decision in _limited(letters, planner, self._options.limit):
                if is_stopping():
                    return
                if isinstance(decision, NotReplayed):
                    on_decision(decision, None)
                    continue
                batch.append(decision)
                if self._is_full(batch):
                    self._send(batch, on_decision)
                    batch = []
                    self._wait(is_stopping)
            if batch and not is_stopping():
                self._send(batch, on_decision)
        self._replayer.forget(self._replayed.outdated)

    def _ensure_marks(self) -> int:
        """How many partitions the marks topic has, which exists from now on."""
        topics, admin = self._topics, self._topics.connection.admin
        if partitions := topics.partitions_of(topics.marks_name):
            refuse_forgetful(topics.marks_name, admin)
            return partitions
        if not topics.settings.topics.create:
            raise MarksMissing(topics.marks_name)
        create_marks_topic(topics.marks_name, admin)
        await_there(topics.reader(topics.marks_name, 1))
        return 1

    def _read_marks(self, partitions: int) -> Replayed:
        topics = self._topics
        reader = topics.reader(topics.marks_name, partitions)
        uncommitted = topics.reader(
            topics.marks_name, partitions, isolation_level="read_uncommitted"
        )
        await_settled(reader, uncommitted)
        replayed = Replayed(topics.topic_id, topics.spans())
        read_replayed(reader, replayed)
        return replayed

    def _is_full(self, batch: list[Replayable]) -> bool:
        rate = self._options.rate
        most = rate.at_once(BATCH_RECORDS) if rate else BATCH_RECORDS
        return (
            len(batch) >= most or sum(replayable.size_bytes for replayable in batch) >= BATCH_BYTES
        )

    def _send(self, batch: list[Replayable], on_decision: OnDecision) -> None:
        for result in self._replayer.send(batch, wall_clock_ms()):
            if isinstance(result, Done):
                self._sent += 1
                on_decision(result.replayable, result.replayed_as)
            else:
                on_decision(_refused(result), None)

    def _wait(self, is_stopping: Callable[[], bool]) -> None:
        """As the rate asks."""
        rate = self._options.rate
        if rate is None:
            return
        until_s = time.monotonic() + rate.wait_ms(self._sent, self._since_ms()) / 1000
        while (left_s := until_s - time.monotonic()) > 0 and not is_stopping():
            time.sleep(min(left_s, WAIT_SLICE_S))

    def _since_ms(self) -> int:
        return int((time.monotonic() - self._started_s) * 1000)


def _limited(
    letters: Iterable[Letter], planner: ReplayPlanner, limit: int | None
) -> Iterator[ReplayDecision]:
    """What becomes of each letter, until so many have gone."""
    left = limit
    for letter in letters:
        decision = planner.decide(letter, wall_clock_ms())
        yield decision
        if left is not None and isinstance(decision, Replayable):
            left -= 1
            if left == 0:
                return


def _refused(failed: Failed) -> NotReplayed:
    why = f"the ingress topic does not take the record: {failed.error.str()}"
    return NotReplayed(failed.replayable.letter, "ingress-refused", why)


def _refusal(targets: Targets, target: str, partition: int) -> Rejection | None:
    """What the broker would refuse now.

    Rights do not count here: those of the proxy do. Nor does what passes: the proxy tries again.
    """
    targets.learn({target}, wall_clock_ms())
    reason = targets.known.refusal_at(target, partition, None)
    passes = reason is not None and reason.code in {"not-authorised", "partition-unavailable"}
    return None if passes else reason


def _producer_config(topics: DeadLetterTopics) -> dict[str, Any]:
    """What the client library would log of a lost producer is raised as an error instead."""
    quiet = logging.getLogger(f"{__name__}.librdkafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    own = client_config(
        topics.settings,
        transactional_id=transactional_id(topics.name),
        transaction_timeout_ms=transaction_timeout_ms(topics.settings),
        enable_idempotence=True,
        partitioner="murmur2_random",
    )
    return {**TUNED_PRODUCER, **own, "logger": quiet}
