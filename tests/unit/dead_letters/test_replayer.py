"""No letter is replayed twice, after any kill and with any concurrent replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given
from hypothesis import strategies as st

from proxy.dead_letters.letter import Place
from proxy.dead_letters.replay import Replayer, ReplayInDoubt, ReplayTakenOver
from proxy.dead_letters.replay_plan import NotReplayed, Replayable, Replayed
from proxy.publishing.fenced_producer import FencedProducer
from tests.support.dead_letters import a_letter

LETTERS = 7
BATCH = 3


class Killed(BaseException):
    """SIGKILL at a broker call."""


@dataclass
class Broker:
    """Broker with two topics and one transactional id, owned by the latest producer.

    `at_call` acts at the n-th call of any producer, before it takes effect or after.
    """

    logs: dict[str, list[tuple[bytes, bytes | None]]] = field(default_factory=dict)
    owner: int = 0
    calls: int = 0
    before: dict[int, Callable[[], None]] = field(default_factory=dict)
    after: dict[int, Callable[[], None]] = field(default_factory=dict)
    too_large: bytes = b"nothing"

    def log(self, topic: str) -> list[tuple[bytes, bytes | None]]:
        return self.logs.setdefault(topic, [])


class Report:
    """The part of a delivery report that a replay reads."""

    def __init__(self, offset: int) -> None:
        self.partition, self.offset = lambda: 0, lambda: offset


class TransactionalProducer:
    """The part of a producer that a replay uses. `call` is one request to the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._epoch = broker, -1
        self._sent: list[tuple[str, bytes, bytes | None]] = []
        self._reports: list[Callable[[], None]] = []

    def init_transactions(self, _timeout_s: float) -> None:
        self._trip(self._own)

    def begin_transaction(self) -> None:
        self._sent, self._reports = [], []

    def produce(self, topic: str, value: Any, key: Any, *_: Any, **named: Any) -> None:
        offset = len(self._broker.log(topic)) + len(self._sent)
        self._sent.append((topic, key, value))
        if "on_delivery" in named:
            large = value is not None and self._broker.too_large in value
            error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE) if large else None
            self._reports.append(partial(named["on_delivery"], error, Report(offset)))

    def flush(self, _timeout_s: float) -> None:
        self._trip(self._check)
        for report in self._reports:
            report()

    def commit_transaction(self, _timeout_s: float) -> None:
        self._trip(self._commit)

    def abort_transaction(self, _timeout_s: float) -> None:
        self._trip(self._check)
        self._sent = []

    def _own(self) -> None:
        self._broker.owner += 1
        self._epoch = self._broker.owner

    def _check(self) -> None:
        if self._epoch != self._broker.owner:
            raise KafkaException(KafkaError(KafkaError._FENCED, "made", fatal=True))

    def _commit(self) -> None:
        self._check()
        for topic, key, value in self._sent:
            self._broker.log(topic).append((key, value))
        self._sent = []

    def _trip(self, effect: Callable[[], None]) -> None:
        self._broker.calls += 1
        number = self._broker.calls
        self._broker.before.pop(number, lambda: None)()
        effect()
        self._broker.after.pop(number, lambda: None)()


def a_replayer(broker: Broker) -> Replayer:
    producer = cast(Any, TransactionalProducer(broker))
    fenced = FencedProducer(producer, partial(ReplayTakenOver, "dead"))
    fenced.take_over()
    return Replayer(fenced, "id", "ingress", "marks")


def goes(offset: int, value: bytes = b"v") -> Replayable:
    letter = a_letter(offset, key=b"%d" % offset)
    return Replayable(letter, "orders", 0, 0, value, [])


def replay_all(broker: Broker) -> None:
    replayer = a_replayer(broker)
    replayed = Replayed("id", {0: range(LETTERS)})
    for key, value in broker.log("marks"):
        replayed.note(key, value)
    left = [goes(n) for n in range(LETTERS) if Place(0, n) not in replayed]
    for start in range(0, len(left), BATCH):
        list(replayer.send(left[start : start + BATCH], 0))


def kill() -> None:
    raise Killed


@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.sampled_from(["kill", "other"]), st.booleans()),
        max_size=6,
    )
)
def test_no_letter_goes_twice_and_in_the_end_each_has_gone(
    events: list[tuple[int, str, bool]],
) -> None:
    """Invariant: each letter is sent at most once, and exactly once by a finished replay."""
    broker = Broker()
    ended = 0

    def other() -> None:
        nonlocal ended
        try:
            replay_all(broker)
            ended += 1
        except (Killed, ReplayTakenOver):
            pass

    number = 0
    for steps, what, is_after in events:
        number += steps
        (broker.after if is_after else broker.before)[number] = kill if what == "kill" else other
    while not ended:
        other()
    times = Counter(key for key, _ in broker.log("ingress"))
    assert max(times.values()) == 1
    assert len(times) == LETTERS
    assert len(broker.log("marks")) == LETTERS


def test_letter_and_its_mark_say_the_same_record() -> None:
    broker = Broker()
    replayer = a_replayer(broker)
    ((_, replayed_as),) = replayer.send([goes(4)], 1_000)
    assert replayed_as == "ingress/0/0"
    ((key, value),) = broker.log("marks")
    assert key == b"id 0/4"
    assert b'"at":1000,"as":"ingress/0/0"' in (value or b"")


def test_record_that_the_ingress_does_not_take_holds_back_no_other() -> None:
    broker = Broker(too_large=b"LARGE")
    replayer = a_replayer(broker)
    batch = [goes(n, b"LARGE" if n == 3 else b"v") for n in range(LETTERS)]
    results = list(replayer.send(batch, 0))
    (failed,) = [decision for decision, replayed_as in results if replayed_as is None]
    assert isinstance(failed, NotReplayed)
    assert failed.letter is batch[3].letter
    assert len(results) == LETTERS
    assert len(broker.log("ingress")) == len(broker.log("marks")) == LETTERS - 1


def test_commit_whose_answer_is_lost_is_asked_for_again() -> None:
    broker = Broker()
    replayer = a_replayer(broker)

    def lose_the_answer() -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "made", retriable=True))

    broker.after[3] = lose_the_answer
    assert len(list(replayer.send([goes(0)], 0))) == 1
    assert len(broker.log("ingress")) == 1


def test_commit_whose_end_stays_unknown_ends_the_replay_with_a_sentence() -> None:
    broker = Broker()
    replayer = a_replayer(broker)

    def break_down() -> None:
        raise KafkaException(KafkaError(KafkaError._STATE, "made"))

    broker.before[3] = break_down
    with pytest.raises(ReplayInDoubt, match=r"2 letters from 0/1 to 0/2.*Run the same command"):
        list(replayer.send([goes(1), goes(2)], 0))


def test_replay_that_was_taken_over_says_so() -> None:
    broker = Broker()
    first = a_replayer(broker)
    a_replayer(broker)
    with pytest.raises(ReplayTakenOver, match="Another replay from dead has begun"):
        list(first.send([goes(0)], 0))
    assert not broker.log("ingress")


def test_outdated_marks_are_taken_back() -> None:
    broker = Broker()
    replayer = a_replayer(broker)
    replayer.forget([b"id 0/2", b"id 0/1"])
    assert broker.log("marks") == [(b"id 0/1", None), (b"id 0/2", None)]
