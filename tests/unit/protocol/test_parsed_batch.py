"""A batch gives the same answers as its records one by one."""

from __future__ import annotations

from proxy.protocol.body import Message
from proxy.protocol.outcomes import Rejection
from proxy.protocol.parsed import Cancel, Prepare, Scheduled
from proxy.protocol.policy import Policy
from proxy.protocol.request_reader import ParsedBatch, RequestReader
from tests.support.simulation.stand_in import INGRESS, StandInKafka

PLAIN = {"timer-delay": "1h"}
NAMED = {"timer-delay": "2h", "timer-id": "a"}
ROLLED = {"timer-delay": "5d"}
ROLLED_WITH_ID = {"timer-delay": "5d", "timer-id": "r"}
HALF_MESSAGE = {"timer-id": "t", "timer-transaction": "prepare"}
CANCEL = {"timer-cancel": "a"}
BAD = {"timer-delay": "soon"}
DAY_MS = 86_400_000


def parsed(*asked: dict[str, str]) -> tuple[ParsedBatch, list[Message]]:
    kafka = StandInKafka(1)
    for one in asked:
        headers = {"timer-topic": "orders", **one}.items()
        kafka.append(INGRESS, 0, b"key", b"value", [(n, v.encode()) for n, v in headers])
    messages: list[Message] = list(kafka.logs[INGRESS, 0])
    return RequestReader(Policy(roll_after_ms=DAY_MS)).read_batch(messages), messages


def test_each_record_of_a_batch_is_what_it_is_alone() -> None:
    batch, messages = parsed(PLAIN, NAMED, ROLLED, ROLLED_WITH_ID, HALF_MESSAGE, CANCEL, BAD)
    reader = RequestReader(Policy(roll_after_ms=DAY_MS))
    alone = [
        reader.read(m.headers() or [], m.key(), m.value(), m.timestamp()[1], 0, m.offset())
        for m in messages
    ]
    assert [batch[number] for number in range(len(batch))] == alone
    kinds = [Scheduled] * 4 + [Prepare, Cancel, Rejection]
    assert [type(one) for one in alone] == kinds


def test_a_record_with_and_one_without_an_id_say_the_same_of_their_entry() -> None:
    batch, _messages = parsed(ROLLED, ROLLED_WITH_ID)
    without, with_id = batch[0], batch[1]
    assert isinstance(without, Scheduled)
    assert isinstance(with_id, Scheduled)
    assert (without.ident, with_id.ident) == (None, b"r")
    assert (without.due_ms, without.rolls) == (with_id.due_ms, with_id.rolls)
    assert without.due_ms - without.entry[0] == 4 * DAY_MS
    assert without.rolls


def test_usual_records_come_as_columns_and_others_keep_the_batch_from_it() -> None:
    batch, _messages = parsed(PLAIN, NAMED, PLAIN, {**NAMED, "timer-id": "b"})
    waiting = batch.usual()
    assert waiting is not None
    assert [entry[1] for entry in waiting.entries] == [0, 1, 2, 3]
    assert [entry[1] for entry in waiting.named] == [1, 3]
    assert list(waiting.idents) == [b"a", b"b"]
    for other in (ROLLED_WITH_ID, HALF_MESSAGE, CANCEL, BAD):
        assert parsed(PLAIN, NAMED, other)[0].usual() is None


def test_columns_of_records_all_with_ids_and_all_without() -> None:
    alike = {"timer-id": "c", **PLAIN}
    all_named, none_named = parsed(NAMED, alike)[0].usual(), parsed(PLAIN, ROLLED)[0].usual()
    assert all_named is not None
    assert none_named is not None
    assert list(all_named.entries) == list(all_named.named)
    assert list(all_named.idents) == [b"a", b"c"]
    assert (len(none_named.entries), list(none_named.named), list(none_named.idents)) == (2, [], [])


def test_producers_own_records_are_walked_in_order_and_others_are_left_out() -> None:
    batch, _messages = parsed(PLAIN, CANCEL, NAMED, BAD, ROLLED_WITH_ID, HALF_MESSAGE)
    walked = [(entry and entry[1], ident) for entry, ident, _due_ms in batch.own()]
    others = (None, None)
    assert walked == [(0, None), others, (2, b"a"), others, (4, b"r"), others]
    dues_ms = [due_ms for entry, ident, due_ms in batch.own() if ident is not None]
    alone = [one.due_ms for one in (batch[2], batch[4]) if isinstance(one, Scheduled)]
    assert dues_ms == alone


def test_ids_are_those_that_records_have_or_name() -> None:
    batch, _messages = parsed(PLAIN, CANCEL, NAMED, BAD, HALF_MESSAGE, ROLLED_WITH_ID)
    assert sorted(batch.idents()) == [b"a", b"a", b"r", b"t"]


def test_what_a_batch_asks_for_is_the_same_for_usual_records_alone_and_among_others() -> None:
    at_once: dict[str, str] = {}
    alone = parsed(PLAIN, NAMED, at_once)[0].asked(0, 3)
    mixed = parsed(PLAIN, NAMED, at_once, ROLLED, ROLLED_WITH_ID, HALF_MESSAGE, CANCEL, BAD)[0]
    assert alone.delays_ms == [DAY_MS // 24, DAY_MS // 12, 0]
    assert alone.targets == ["orders"] * 3
    assert mixed.asked(0, 3) == alone
    assert mixed.asked(0, 4).delays_ms[3] == 5 * DAY_MS
    assert mixed.asked(3, 8).delays_ms == [5 * DAY_MS, 5 * DAY_MS, 0]


def test_what_consumers_have_sent_back_is_told_by_group_and_failures() -> None:
    retries = [{"timer-retry-group": "g", "timer-attempt": str(failed)} for failed in (0, 20)]
    batch = parsed(PLAIN, *retries, {"timer-retry-group": "g", "timer-attempt": "x"})[0]
    assert list(batch.asked(0, 4).retries) == [("g", 1), ("g", 21)]
