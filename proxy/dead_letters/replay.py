"""Replays of dead letters into the ingress."""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from confluent_kafka import KafkaException

from proxy.clock import wall_clock_ms
from proxy.config.policy_from_settings import policy_of
from proxy.dead_letters.letter import Letter, Place
from proxy.dead_letters.replay_plan import (
    Edits,
    Mark,
    NotReplayed,
    Rate,
    Replayable,
    ReplayDecision,
    ReplayPlanner,
    mark_key,
)
from proxy.dead_letters.topics import DeadLetterTopics
from proxy.errors import ProxyError, TopicMissing
from proxy.protocol.outcomes import Rejection
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

# One transaction writes the new ingress records, and a mark for each letter to the marks topic. The
# mark says that its letter was replayed. All replays of a topic share a transactional id, so a new
# replay stops an older one (`FencedProducer`). Without `--again` no letter is replayed twice, even
# if a replay is killed, or if two replays run at the same time.

ATTEMPTS: Final = 5


class ReplayTakenOver(ProxyError):
    """Another replay of the same dead-letter topic has begun."""

    def __init__(self, dead_letters: str) -> None:
        super().__init__(
            f"Another replay from {dead_letters} has begun, so this one stopped. No letter was "
            "replayed by both.",
            "Run this replay again after the other replay has ended. (A replay that was suspended "
            "within a batch for more than ten seconds ends in this way, too.)",
        )


class ReplayInDoubt(ProxyError):
    """The result of the last commit is unknown."""

    def __init__(self, letters: Sequence[Letter], detail: str) -> None:
        super().__init__(
            f"It is not known whether the last batch, {len(letters)} letters from "
            f"{letters[0].place} to {letters[-1].place}, was replayed: {detail}.",
            "Run the same command again. It finds the result, and replays the missing letters.",
        )


class MarksInDoubt(ProxyError):
    """It is unknown whether the marks of deleted letters were removed."""

    def __init__(self, detail: str) -> None:
        super().__init__(
            f"The letters are replayed. It is not known whether old marks were removed: {detail}.",
            "Nothing needs to be done. The next replay removes them.",
        )


Result: TypeAlias = tuple[ReplayDecision, str | None]
"""The decision about a letter, and the place of its new ingress record if it was replayed."""


class Replayer:
    """The transactional producer of a replay."""

    def __init__(self, producer: FencedProducer, topic_id: str, ingress: str, marks: str) -> None:
        self._producer, self._topic_id = producer, topic_id
        self._ingress, self._marks = ingress, marks

    def send(self, batch: Sequence[Replayable], now_ms: int) -> Iterator[Result]:
        """Replay the batch in one transaction, and yield each result. If the broker refuses a
        record, replay each half of the batch alone. Raises ReplayTakenOver, ReplayInDoubt,
        KafkaException."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                yield from self._attempt(batch, now_ms)
                return
            except Aborted as aborted:
                error = aborted.error
                if aborted.is_refusal:
                    break
                if attempt == ATTEMPTS or not aborted.may_pass:
                    raise KafkaException(error) from None
        if len(batch) == 1:
            why = f"the ingress topic rejected the record: {error.str()}"
            yield NotReplayed(batch[0].letter, "ingress-refused", why), None
            return
        middle = len(batch) // 2
        yield from self.send(batch[:middle], now_ms)
        yield from self.send(batch[middle:], now_ms)

    def forget(self, outdated: Iterable[bytes]) -> None:
        keys = sorted(outdated)
        if not keys:
            return
        self._producer.begin()
        for key in keys:
            self._producer.produce(self._marks, None, key)
        with suppress(Aborted):  # after an abort the next replay removes these marks
            self._producer.commit(MarksInDoubt)

    def _attempt(self, batch: Sequence[Replayable], now_ms: int) -> list[Result]:
        self._producer.begin()
        records = (
            IngressRecord(one.value, one.letter.key, one.partition, one.headers) for one in batch
        )
        places = self._producer.send(self._ingress, records)
        letters = [replayable.letter for replayable in batch]
        for letter, replayed_as in zip(letters, places, strict=True):
            mark = Mark(now_ms, replayed_as).value(letter)
            self._producer.produce(self._marks, mark, mark_key(self._topic_id, letter.place))
        self._commit(letters)
        return list(zip(batch, places, strict=True))

    def _commit(self, letters: Sequence[Letter]) -> None:
        self._producer.commit(partial(ReplayInDoubt, letters))


WAIT_SLICE_S: Final = 0.1

OnDecision = Callable[[ReplayDecision, str | None], None]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay."""

    edits: Edits = field(default_factory=Edits)
    is_again: bool = False
    limit: int | None = None
    rate: Rate | None = None


@contextmanager
def replay_planner(
    topics: DeadLetterTopics, options: ReplayOptions, replayed: Container[Place]
) -> Iterator[ReplayPlanner]:
    """Yield a planner that asks the broker about targets."""
    ingress = topics.settings.topics.ingress
    partitions = topics.partitions_of(ingress)
    if not partitions:
        raise TopicMissing(ingress)
    targets = Targets(topics.connection)
    with closing(topics.originals()) as originals:
        yield ReplayPlanner(
            RequestReader(policy_of(topics.settings, retention_ms=None)),
            options.edits,
            frozenset() if options.is_again else replayed,
            originals.find,
            partial(target_refusal, targets),
            ingress,
            partitions,
            topics.group,
        )


def preview(
    topics: DeadLetterTopics,
    letters: Iterable[Letter],
    options: ReplayOptions,
    on_decision: OnDecision,
) -> None:
    """Report what a replay would decide, and change nothing. Do not wait for a replay that runs at
    the same time."""
    partitions = topics.partitions_of(topics.marks_name)
    replayed = topics.replayed(partitions, is_settled=False)
    with replay_planner(topics, options, replayed) as planner:
        for decision in _limited(letters, planner, options.limit):
            on_decision(decision, None)


class Replay:
    """A replay. It ends any earlier replay of the same topic that is still running."""

    def __init__(self, topics: DeadLetterTopics, options: ReplayOptions) -> None:
        """Raises BrokerRefused, KafkaException."""
        self._topics, self._options = topics, options
        self._sent = 0
        self._started_s = 0.0
        partitions = topics.ensure_marks()
        names = topics.settings.topics
        producer = fenced_producer(
            topics.settings, topics.transactional_id, partial(ReplayTakenOver, topics.name)
        )
        self._replayer = Replayer(producer, topics.topic_id, names.ingress, topics.marks_name)
        self._replayed = topics.replayed(partitions, is_settled=True)

    def run(
        self, letters: Iterable[Letter], on_decision: OnDecision, is_stopping: Callable[[], bool]
    ) -> None:
        """Replay the letters. If asked to stop, end after the current batch. Raises
        ReplayTakenOver, ReplayInDoubt, KafkaException."""
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

    def _is_full(self, batch: list[Replayable]) -> bool:
        rate = self._options.rate
        most = rate.at_once(BATCH_RECORDS) if rate else BATCH_RECORDS
        return len(batch) >= most or sum(one.size_bytes for one in batch) >= BATCH_BYTES

    def _send(self, batch: list[Replayable], on_decision: OnDecision) -> None:
        for decision, replayed_as in self._replayer.send(batch, wall_clock_ms()):
            self._sent += replayed_as is not None
            on_decision(decision, replayed_as)

    def _wait(self, is_stopping: Callable[[], bool]) -> None:
        rate = self._options.rate
        if rate is None:
            return
        since_ms = int((time.monotonic() - self._started_s) * 1000)
        until_s = time.monotonic() + rate.wait_ms(self._sent, since_ms) / 1000
        while (left_s := until_s - time.monotonic()) > 0 and not is_stopping():
            time.sleep(min(left_s, WAIT_SLICE_S))


def _limited(
    letters: Iterable[Letter], planner: ReplayPlanner, limit: int | None
) -> Iterator[ReplayDecision]:
    left = limit
    for letter in letters:
        decision = planner.decide(letter, wall_clock_ms())
        yield decision
        if left is not None and isinstance(decision, Replayable):
            left -= 1
            if left == 0:
                return


def target_refusal(targets: Targets, target: str, partition: int) -> Rejection | None:
    """Return why the broker would refuse a delivery. Ignore missing rights, because the proxy may
    have rights that this program lacks. Ignore an unavailable partition, because the proxy would
    retry."""
    targets.learn({target}, wall_clock_ms())
    reason = targets.known.refusal_at(target, partition, None)
    passes = reason is not None and reason.code in {"not-authorised", "partition-unavailable"}
    return None if passes else reason
