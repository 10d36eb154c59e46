"""Replays of dead letters into the ingress."""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

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
from proxy.errors import BrokerRefused, ProxyError, TopicMissing
from proxy.kafka.access import Right, client_config, grant
from proxy.kafka.client_settings import TUNED_PRODUCER, silent_logger, transaction_timeout_ms
from proxy.protocol.outcomes import Rejection
from proxy.protocol.request_reader import RequestReader
from proxy.publishing.targets import Targets
from proxy.publishing.tracked_sender import REFUSAL_CODES

# Letters and marks are committed together, so no letter is replayed twice, even by replays that are
# killed or concurrent:
#
# 1. All replays of a topic share a transactional id. A new replay takes over: the broker ends the
# old one's transaction and refuses its later writes. 2. Only then are the marks read to their end.
# Nobody else can add marks afterwards. 3. A commit with an unknown result is repeated. If it stays
# unknown, the replay ends, and the next one finds the result by 1 and 2.

CALL_TIMEOUT_S: Final = 10.0
IN_DOUBT_AT_MOST_S: Final = 60.0
ATTEMPTS: Final = 5
QUEUE_FULL_WAIT_S: Final = 0.1
FENCED: Final = KafkaError._FENCED  # noqa: SLF001
TAKEN_OVER: Final = frozenset(
    {FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)
PURGED: Final = frozenset(
    {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001
)
TOO_LATE: Final = KafkaError(
    KafkaError._TIMED_OUT, "the ingress topic accepted no records in time", retriable=True
)


class ReplayTakenOver(ProxyError):
    """Another replay of the same dead-letter topic has begun."""

    def __init__(self, dead_letters: str) -> None:
        super().__init__(
            f"Another replay from {dead_letters} has begun, so this one stopped. No letter was "
            "replayed by both.",
            "Run it again after the other has ended. (A replay that was suspended within a "
            "batch for more than ten seconds ends in this way, too.)",
        )


class ReplayInDoubt(ProxyError):
    """The result of the last commit is unknown."""

    def __init__(self, letters: Sequence[Letter], detail: str) -> None:
        super().__init__(
            f"It is not known whether the last batch, {len(letters)} letters from "
            f"{letters[0].place} to {letters[-1].place}, was replayed: {detail}.",
            "Run the same command again. It finds out, and replays the letters that are left.",
        )


Result: TypeAlias = tuple[ReplayDecision, str | None]
"""A letter, and its new ingress record if it was replayed."""


class _Aborted(Exception):
    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


class Replayer:
    """The transactional producer of a replay."""

    def __init__(
        self, producer: Producer, dead_letters: str, topic_id: str, ingress: str, marks: str
    ) -> None:
        self._producer = producer
        self._dead_letters, self._topic_id = dead_letters, topic_id
        self._ingress, self._marks = ingress, marks

    def take_over(self) -> None:
        """End any other replay. Read the marks afterwards. Raises KafkaException."""
        self._producer.init_transactions(CALL_TIMEOUT_S * 3)

    def send(self, batch: Sequence[Replayable], now_ms: int) -> Iterator[Result]:
        """Replay the batch in one transaction, and yield each result. A bad record makes the broker
        refuse its whole batch, which is then halved. Raises ReplayTakenOver, ReplayInDoubt,
        KafkaException."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                yield from self._attempt(batch, now_ms)
                return
            except _Aborted as aborted:
                error = aborted.error
                if error.code() in REFUSAL_CODES:
                    break
                if attempt == ATTEMPTS or not error.retriable():
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
        self._call(self._producer.begin_transaction)
        for key in keys:
            self._produce(self._marks, None, key)
        self._call(self._producer.commit_transaction, CALL_TIMEOUT_S)

    def _attempt(self, batch: Sequence[Replayable], now_ms: int) -> list[Result]:
        self._call(self._producer.begin_transaction)
        places = self._send_back(batch)
        letters = [replayable.letter for replayable in batch]
        for letter, replayed_as in zip(letters, places, strict=True):
            mark = Mark(now_ms, replayed_as).value(letter)
            self._produce(self._marks, mark, mark_key(self._topic_id, letter.place))
        self._commit(letters)
        return list(zip(batch, places, strict=True))

    def _send_back(self, batch: Sequence[Replayable]) -> list[str]:
        """Return the places of the new ingress records."""
        errors: list[KafkaError] = []
        places: dict[int, str] = {}

        def report(number: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                errors.append(error)
            places[number] = f"{self._ingress}/{message.partition()}/{message.offset()}"

        for number, replayable in enumerate(batch):
            headers: list[Any] = replayable.headers
            self._produce(
                self._ingress,
                replayable.value,
                replayable.letter.key,
                replayable.partition,
                headers=headers,
                on_delivery=partial(report, number),
            )
        self._call(self._producer.flush, CALL_TIMEOUT_S)
        if errors or len(places) < len(batch):
            self._abort(_cause(errors))
        return [places[number] for number in range(len(batch))]

    def _produce(self, *args: Any, **kwargs: Any) -> None:
        while True:
            try:
                return self._call(self._producer.produce, *args, **kwargs)
            except BufferError:
                self._call(self._producer.poll, QUEUE_FULL_WAIT_S)

    def _abort(self, error: KafkaError) -> NoReturn:
        if error.code() in TAKEN_OVER:
            raise ReplayTakenOver(self._dead_letters)
        self._call(self._producer.abort_transaction, CALL_TIMEOUT_S)
        raise _Aborted(error)

    def _commit(self, letters: Sequence[Letter]) -> None:
        started_s = time.monotonic()
        while True:
            try:
                return self._call(self._producer.commit_transaction, CALL_TIMEOUT_S)
            except KafkaException as raised:
                error: KafkaError = raised.args[0]
                if error.txn_requires_abort():
                    self._abort(error)
                waited_s = time.monotonic() - started_s
                if not error.retriable() or waited_s > IN_DOUBT_AT_MOST_S:
                    raise ReplayInDoubt(letters, error.str()) from None

    def _call(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        try:
            call(*args, **kwargs)
        except SystemError:
            # confluent-kafka 2.16 raises this for delivery reports of a lost producer.
            self._tell_loss()
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.code() == KafkaError._FATAL:
                self._tell_loss()
            if error.code() in TAKEN_OVER:
                raise ReplayTakenOver(self._dead_letters) from None
            raise

    def _tell_loss(self) -> None:
        try:
            self._producer.abort_transaction(CALL_TIMEOUT_S)
        except KafkaException as raised:
            if raised.args[0].code() in TAKEN_OVER:
                raise ReplayTakenOver(self._dead_letters) from None
            raise


def _cause(errors: Sequence[KafkaError]) -> KafkaError:
    """Return the first cause. If one record fails, the rest is purged."""
    causes = [error for error in errors if error.code() not in PURGED]
    refused = [error for error in causes if error.code() in REFUSAL_CODES]
    return next(iter([*refused, *causes, TOO_LATE]))


BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 8 * 1024 * 1024
"""A batch is one transaction, and while it is open the proxy cannot read the ingress behind it."""
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
            partial(_refusal, targets),
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
    """Report a replay's decisions, and change nothing. Another replay may add marks meanwhile."""
    partitions = topics.partitions_of(topics.marks_name)
    replayed = topics.replayed(partitions, is_settled=False)
    with replay_planner(topics, options, replayed) as planner:
        for decision in _limited(letters, planner, options.limit):
            on_decision(decision, None)


class Replay:
    """A replay, which takes over from any other."""

    def __init__(self, topics: DeadLetterTopics, options: ReplayOptions) -> None:
        self._topics, self._options = topics, options
        self._sent = 0
        self._started_s = 0.0
        partitions = topics.ensure_marks()
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
            ident = topics.transactional_id
            rights = [Right(one, "transactional-id", ident) for one in ("Write", "Describe")]
            raise BrokerRefused(
                f"The user may not use the transactional id {ident}.",
                grant(rights, topics.settings),
            ) from None
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


def _refusal(targets: Targets, target: str, partition: int) -> Rejection | None:
    """Return the broker's refusal. Missing rights are only the caller's, and the proxy retries for
    an unavailable partition, so neither counts."""
    targets.learn({target}, wall_clock_ms())
    reason = targets.known.refusal_at(target, partition, None)
    passes = reason is not None and reason.code in {"not-authorised", "partition-unavailable"}
    return None if passes else reason


def _producer_config(topics: DeadLetterTopics) -> dict[str, Any]:
    """Return settings without the library's log: losing the producer raises an error."""
    own = client_config(
        topics.settings,
        transactional_id=topics.transactional_id,
        transaction_timeout_ms=transaction_timeout_ms(topics.settings),
        enable_idempotence=True,
        partitioner="murmur2_random",
    )
    return {**TUNED_PRODUCER, **own, "logger": silent_logger()}
