"""Sends letters back to the ingress: each with its mark, in one transaction.

Why no letter is replayed twice, however often a replay is killed and whoever else replays:

1. The transactional id belongs to the dead-letter topic. Whoever starts a replay takes it over:
   the broker ends the transaction that another has open, and takes nothing from that one any more.
2. Only then are the marks read, to their end. Nobody else can add one from here on.
3. A letter and its mark are committed together or not at all.
4. A commit whose end is not known is asked for again; if it stays unknown the replay ends, and
   the next one finds out by 1 and 2.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, NoReturn

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from proxy.dead_letters.letters.letter import Letter
from proxy.dead_letters.letters.marks import Mark, mark_key
from proxy.dead_letters.letters.replay_planner import Replayable
from proxy.errors import ProxyError
from proxy.publishing.tracked_sender import REFUSAL_CODES

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
    KafkaError._TIMED_OUT, "the ingress topic took no records in time", retriable=True
)


class ReplayTakenOver(ProxyError):
    """Another replay of the same dead-letter topic has begun."""

    def __init__(self, dead_letters: str) -> None:
        super().__init__(
            f"Another replay from {dead_letters} has begun, so this one has ended; no letter was "
            "replayed by both.",
            "Run it again when the other is done, if anything is left. (A replay that was "
            "suspended in mid-batch for more than ten seconds ends in this way too.)",
        )


class ReplayInDoubt(ProxyError):
    """The broker has not said whether the last batch was committed."""

    def __init__(self, letters: Sequence[Letter], detail: str) -> None:
        super().__init__(
            f"It is not known whether the last batch, {len(letters)} letters from "
            f"{letters[0].place} to {letters[-1].place}, was replayed: {detail}.",
            "Run the same command again: it finds out, and replays what is left.",
        )


class Done(NamedTuple):
    """A letter that has been replayed, and the ingress record that it is now."""

    replayable: Replayable
    replayed_as: str


class Failed(NamedTuple):
    """A letter that the ingress topic does not take, and what the broker says."""

    replayable: Replayable
    error: KafkaError


class _Aborted(Exception):
    """The transaction was aborted because of this error."""

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


class Replayer:
    """One replay's transactional producer. Taking it in hand fences any other (`take_over`)."""

    def __init__(
        self, producer: Producer, dead_letters: str, topic_id: str, ingress: str, marks: str
    ) -> None:
        self._producer = producer
        self._dead_letters, self._topic_id = dead_letters, topic_id
        self._ingress, self._marks = ingress, marks

    def take_over(self) -> None:
        """End any other replay. Marks are to be read after this.

        Raises KafkaException.
        """
        self._producer.init_transactions(CALL_TIMEOUT_S * 3)

    def send(self, batch: Sequence[Replayable], now_ms: int) -> Iterator[Done | Failed]:
        """Replay the batch in one transaction, and say of each letter what became of it.

        A batch with a record that the ingress does not take is sent again in halves: the broker
        blames a whole batch for one. Raises ReplayTakenOver, ReplayInDoubt, KafkaException.
        """
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
            yield Failed(batch[0], error)
            return
        middle = len(batch) // 2
        yield from self.send(batch[:middle], now_ms)
        yield from self.send(batch[middle:], now_ms)

    def forget(self, outdated: Iterable[bytes]) -> None:
        """Take back the marks of letters that are gone."""
        keys = sorted(outdated)
        if not keys:
            return
        self._call(self._producer.begin_transaction)
        for key in keys:
            self._produce(self._marks, None, key)
        self._call(self._producer.commit_transaction, CALL_TIMEOUT_S)

    def _attempt(self, batch: Sequence[Replayable], now_ms: int) -> list[Done]:
        self._call(self._producer.begin_transaction)
        done = self._send_back(batch)
        for replayable, replayed_as in done:
            letter = replayable.letter
            mark = Mark(now_ms, replayed_as).value(letter)
            self._produce(self._marks, mark, mark_key(self._topic_id, letter.place))
        self._commit([replayable.letter for replayable in batch])
        return done

    def _send_back(self, batch: Sequence[Replayable]) -> list[Done]:
        """Produce the letters to the ingress; the reports say where they will be."""
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
        return [Done(replayable, places[number]) for number, replayable in enumerate(batch)]

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
        """Ask until the answer is known."""
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
            # confluent-kafka 2.16: once the producer is lost, serving a delivery report fails so
            self._tell_loss()
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if error.code() == KafkaError._FATAL:
                self._tell_loss()
            if error.code() in TAKEN_OVER:
                raise ReplayTakenOver(self._dead_letters) from None
            raise

    def _tell_loss(self) -> None:
        """Raise the error because of which the producer takes nothing any more."""
        try:
            self._producer.abort_transaction(CALL_TIMEOUT_S)
        except KafkaException as raised:
            if raised.args[0].code() in TAKEN_OVER:
                raise ReplayTakenOver(self._dead_letters) from None
            raise


def _cause(errors: Sequence[KafkaError]) -> KafkaError:
    """The error that caused the others: where one record fails, the rest of the batch is purged."""
    causes = [error for error in errors if error.code() not in PURGED]
    refused = [error for error in causes if error.code() in REFUSAL_CODES]
    return next(iter([*refused, *causes, TOO_LATE]))
