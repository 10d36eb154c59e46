"""A store that fetches bodies behaves as one that keeps them, within memory and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from proxy.protocol.body import GONE, Message, delivery_of, is_stub
from proxy.protocol.parsed import Scheduled
from proxy.protocol.policy import Policy
from proxy.protocol.request_reader import ReadersByOffset, RequestReader
from proxy.recovery import local_state as fetched_bodies
from proxy.recovery.local_state import FetchedBodies, _chunk
from storage.store import Entry
from tests.support.simulation.memory_store import MemoryStore
from tests.support.simulation.stand_in import INGRESS, Record, StandInKafka
from tests.support.simulation.world import DEAD_LETTERS, OUTCOMES, World

NOW_MS = 1_000


class Shelf:
    """Ingress records and their store, with a note of every read."""

    def __init__(self) -> None:
        self.kafka = StandInKafka(1)
        self.readers = ReadersByOffset([(0, RequestReader(Policy()))])
        self.inner = MemoryStore()
        self.reads: list[Sequence[int]] = []
        self.read_takes_s = self.now_s = 0.0
        self.gone: set[int] = set()
        self.store = self.wrapped(stores_stubs=True)

    def wrapped(self, *, stores_stubs: bool) -> FetchedBodies:
        return FetchedBodies(
            self.inner,
            self._read_back,
            self.readers.read,
            stores_stubs=stores_stubs,
            now_s=lambda: self.now_s,
        )

    def write(self, due_ms: int, value: bytes | None = b"value") -> Entry:
        headers: list[tuple[str, bytes | None]] = [
            ("timer-topic", b"orders"),
            ("timer-deliver-at", b"%d" % due_ms),
        ]
        record = self.kafka.append(INGRESS, 0, b"key", value, headers)
        parsed = self.readers.read(record)
        assert isinstance(parsed, Scheduled)
        return parsed.entry

    def put(self, *dues_ms: int) -> list[Entry]:
        entries = [self.write(due_ms) for due_ms in dues_ms]
        self.store.put(entries)
        return sorted(entries)

    def _read_back(self, offsets: Sequence[int], _reach: int) -> Mapping[int, Message]:
        assert list(offsets) == sorted(offsets)
        self.reads.append(offsets)
        self.now_s += self.read_takes_s
        log: list[Record] = self.kafka.logs[INGRESS, 0]
        return {offset: log[offset] for offset in offsets if offset not in self.gone}


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def test_what_was_put_comes_back_whole_and_in_due_order(shelf: Shelf) -> None:
    entries = shelf.put(30, 10, 20)
    assert all(is_stub(entry[3]) for entry in shelf.inner.due(NOW_MS, 9).entries)
    assert shelf.store.due(NOW_MS, 9) == (entries, True)
    assert shelf.store.due(NOW_MS, 2) == (entries[:2], False)


def test_a_second_look_reads_nothing_again_until_the_entries_have_ended(shelf: Shelf) -> None:
    entries = shelf.put(30, 10, 20)
    shelf.store.due(20, 9)
    shelf.store.due(20, 9)
    assert shelf.reads == [[1, 2]]
    shelf.store.advance(*entries[0][:2])
    assert list(shelf.store._held.values()) == [entries[1]]
    assert shelf.store.due(NOW_MS, 9).entries == entries[1:]
    assert shelf.reads == [[1, 2], [0]]


def test_nothing_due_reads_nothing(shelf: Shelf) -> None:
    shelf.put(30)
    assert shelf.store.due(20, 9) == ([], True)
    assert shelf.reads == []


def test_full_bodies_of_before_are_used_as_they_are(shelf: Shelf) -> None:
    kept = shelf.write(10)
    shelf.inner.put([kept])
    (read,) = shelf.put(20)
    assert shelf.store.due(NOW_MS, 9).entries == [kept, read]
    assert shelf.reads == [[1]]


def test_stubs_of_before_are_read_back_when_bodies_are_kept_again(shelf: Shelf) -> None:
    (older,) = shelf.put(10)
    store = shelf.wrapped(stores_stubs=False)
    newer = shelf.write(20)
    store.put([newer])
    assert store.due(NOW_MS, 9).entries == [older, newer]
    assert shelf.reads == [[0]]


def test_bodies_come_in_pieces_that_memory_can_hold(shelf: Shelf) -> None:
    entries = [shelf.write(due_ms, bytes(size)) for due_ms, size in enumerate([900] * 5 + [9_000])]
    shelf.store.put(entries)
    counts = []
    while shelf.store.pending():
        found = shelf.store.due(NOW_MS, 9, 2_500)
        counts.append(len(found.entries))
        assert found.is_all is (shelf.store.pending() == counts[-1])
        shelf.store.advance(*found.entries[-1][:2])
    assert counts == [2, 2, 1, 1]


def test_newcomers_due_earlier_do_not_make_memory_grow(shelf: Shelf) -> None:
    for due_ms in range(20, 0, -1):
        shelf.store.put([shelf.write(due_ms, bytes(1_000))])
        shelf.store.due(NOW_MS, 9, 2_500)
        assert len(shelf.store._held) <= 6


def test_slow_reading_gives_what_is_there_and_goes_on_at_the_next_look(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_bodies, "JUMP_RECORDS", 1)
    monkeypatch.setattr(fetched_bodies, "JUMP_S", 0.05)
    entries = shelf.put(*range(400))
    shelf.read_takes_s = 0.7
    first = shelf.store.due(NOW_MS, 9_999)
    assert len(shelf.reads) == 2
    assert not first.is_all
    assert first.entries == entries[: sum(map(len, shelf.reads))]
    assert len(shelf.store.due(NOW_MS, 9_999).entries) > len(first.entries)
    assert len(set().union(*shelf.reads)) == sum(map(len, shelf.reads))


def test_what_needs_no_reading_does_not_overtake_what_does(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_bodies, "JUMP_S", 9.0)
    entries = shelf.put(*range(100))
    kept = shelf.write(200)
    shelf.inner.put([kept])
    shelf.read_takes_s = 1.5
    assert shelf.store.due(NOW_MS, 999) == (entries[:50], False)
    assert shelf.store.due(NOW_MS, 999) == ([*entries, kept], True)


def test_records_far_apart_are_read_a_few_at_a_time_and_dense_ones_together() -> None:
    apart = [(n, n * 10_000, "orders", b"\x05") for n in range(4_000)]
    dense = [(n, n, "orders", b"\x05") for n in range(4_000)]
    assert len(_chunk(apart, 2_000, 1.0)) == 500
    assert _chunk(dense, 2_000, 1.0) == dense
    assert len(_chunk(apart, 2_000, 0.001)) == 62


def test_a_record_that_is_gone_keeps_its_place_and_asks_for_an_impossible_partition(
    shelf: Shelf,
) -> None:
    entries = shelf.put(10, 20, 30)
    shelf.gone = {1}
    found = shelf.store.due(NOW_MS, 9).entries
    assert [entry[:3] for entry in found] == [entry[:3] for entry in entries]
    gone = delivery_of(found[1])
    assert (gone.partition, gone.key, gone.value, gone.headers) == (GONE, None, None, [])


def test_another_record_in_its_place_is_never_delivered(shelf: Shelf) -> None:
    shelf.put(10)
    shelf.kafka.logs[INGRESS, 0][0].headers_[1] = ("timer-deliver-at", b"11")
    with pytest.raises(AssertionError):
        shelf.store.due(NOW_MS, 9)


def test_a_deleted_record_ends_as_a_dead_letter_and_the_others_arrive() -> None:
    world = World(partitions=1)
    world.bodies = "kafka"
    for _ in range(4):
        world.send({"timer-topic": "orders", "timer-delay": "1000"})
    world.settle()
    world.kafka.log_starts[0] = 2
    world.time.pass_ms(2_000)
    world.settle()
    assert world.origins() == ["timer.ingress/0/2", "timer.ingress/0/3"]
    letters = world.kafka.read(DEAD_LETTERS)
    assert [letter.header("timer-error") for letter in letters] == [b"body-gone"] * 2
    assert [(letter.key(), letter.value()) for letter in letters] == [(None, None)] * 2
    assert world.origins(DEAD_LETTERS) == ["timer.ingress/0/0", "timer.ingress/0/1"]
    assert [b"body-gone: " in (r.value() or b"") for r in world.kafka.read(OUTCOMES)] == [True] * 2
