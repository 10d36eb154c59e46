"""The register on disk against dicts, through memtables, merges, restarts and crashes."""

from __future__ import annotations

import errno
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from storage.errors import StorageFull
from storage.ids.layout import Hashing, IdHash, Words, padded
from storage.ids.memtable import Link, Links
from storage.ids.register import Register, open_register
from storage.options import IdOptions
from storage.store import Committed, Key, Named
from tests.property.storage.test_store_against_model import DyingFiles, Killed
from tests.support.simulation.memory_register import MemoryRegister, lowered_by

Change: TypeAlias = tuple[int, Callable[[Register], None]]

END: Key = (10**12, 10**12)
NEVER_SEEN = b"never seen"
IDS = st.one_of(
    st.integers(0, 30).map(lambda number: b"id %d" % number),
    st.sampled_from([b"", b"\0", b"\0" * 8, b"8 bytes.", b"8 bytes.\0", b"long" * 40, b"x" * 65]),
)
TARGETS = st.sampled_from(["orders", "mail", "", "ünïcode"])
hashes_of = IdHash(b"a seed")
HASHINGS: list[Hashing] = [
    hashes_of,
    lambda idents: np.full(idents.sizes.size, 2**63 + 5, np.uint64),
    lambda idents: hashes_of(idents) & np.uint64(3 << 62),
]


class RegisterAgainstModel(RuleBasedStateMachine):
    """Invariant: the register answers as dicts with all changes do. After a crash it answers as
    dicts with the committed changes. Only ids that may be forgotten may be missing."""

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory()
        self.folder = Path(self.home.name) / "ids"
        self.next_at = 0
        self.log: list[Change] = []
        self.seen: set[bytes] = {NEVER_SEEN}
        self.tombstones: set[Key] = set()
        self.committed = 0
        self.ended: Key = (0, -1)
        self.floor = 0
        self.settled = 0
        self.files = DyingFiles()
        self.model = MemoryRegister()

    @initialize(
        hashing=st.sampled_from(HASHINGS),
        memtable_entries=st.integers(1, 12),
        step_entries=st.integers(1, 9),
        few_ids=st.integers(1, 6),
        replayed_offsets=st.integers(1, 40),
        merged_runs=st.sampled_from([2, 3, 8]),
        most_runs=st.sampled_from([8, 64]),
    )
    def begin(
        self,
        hashing: Hashing,
        memtable_entries: int,
        step_entries: int,
        few_ids: int,
        replayed_offsets: int,
        merged_runs: int,
        most_runs: int,
    ) -> None:
        self.hashing = hashing
        self.options = IdOptions(
            most_names=2,
            memtable_entries=memtable_entries,
            replayed_offsets=replayed_offsets,
            few_ids=few_ids,
            write_entries=step_entries,
            merge_entries=step_entries,
            merged_runs=merged_runs,
            most_runs=most_runs,
        )
        self.register = self.open()

    def open(self) -> Register:
        self.files.dies_at = ("never", 0)
        at = Committed(*self.ended, self.floor, self.committed)
        register = open_register(
            self.folder, at, self.options, files=self.files, hashing=self.hashing
        )
        assert register.report.state != "put aside", register.report
        assert register.covered <= self.committed
        self.settled = register.covered
        for caused_at, change in self.log:
            if caused_at >= register.covered:
                register.maintain(caused_at, self.floor)
                change(register)
        return register

    def change(self, gap: int, *changes: Callable[[Register], None]) -> None:
        at = self.next_at + gap
        self.next_at = at + 1
        for change in changes:
            self.log.append((at, change))
            change(self.register)
            change(self.model)

    @property
    def at(self) -> int:
        return self.next_at

    @rule(
        ids=st.lists(IDS, min_size=1, max_size=12),
        fires_ms=st.integers(1, 300),
        topic=TARGETS,
        kind=st.integers(0, 3),
        gap=st.integers(0, 5),
    )
    def name(self, ids: list[bytes], fires_ms: int, topic: str, kind: int, gap: int) -> None:
        for ident in ids:
            at = self.at + gap
            due_ms = self.ended[0] + fires_ms
            self.put(gap, ident, Named(at, due_ms, at, at - gap, due_ms + 7, topic, kind))

    @rule(
        ids=st.lists(IDS, min_size=1, max_size=12, unique=True),
        fires_ms=st.lists(st.integers(1, 300), min_size=12, max_size=12),
        topics=st.lists(TARGETS, min_size=12, max_size=12),
        gap=st.integers(0, 5),
    )
    def name_new(self, ids: list[bytes], fires_ms: list[int], topics: list[str], gap: int) -> None:
        known = self.register.find(ids)
        new = ids if not known else [ident for ident in ids if ident not in known]
        if not new:
            return
        offsets = range(self.at + gap, self.at + gap + len(new))
        dues_ms = [self.ended[0] + later_ms for later_ms in fires_ms[: len(new)]]
        self.seen.update(new)
        were_new: list[bool] = []

        def name_each(register: Register) -> None:
            were_new.append(register.put_if_new(new, dues_ms, offsets, topics[: len(new)]))
            if not were_new[-1]:
                for ident, due_ms, at, topic in zip(new, dues_ms, offsets, topics, strict=False):
                    register.put(at, ident, Named(at, due_ms, at, at, due_ms, topic))

        self.change(gap, name_each)
        assert were_new[0] or self.hashing is not hashes_of
        self.next_at = offsets[-1] + 1

    @rule(
        ids=st.lists(IDS, min_size=1, max_size=12),
        fires_ms=st.lists(st.integers(1, 300), min_size=12, max_size=12),
        topic=TARGETS,
    )
    def what_is_known_or_there_twice_is_not_put(
        self, ids: list[bytes], fires_ms: list[int], topic: str
    ) -> None:
        if len(set(ids)) == len(ids) and not self.register.find(ids):
            return
        offsets = range(self.at, self.at + len(ids))
        assert not self.register.put_if_new(ids, fires_ms[: len(ids)], offsets, [topic] * len(ids))

    @rule(
        ident=IDS,
        fires_ms=st.integers(0, 300),
        topic=TARGETS,
        low=st.integers(0, 9),
        lasts_ms=st.none() | st.integers(0, 99),
    )
    def take_back(
        self, ident: bytes, fires_ms: int, topic: str, low: int, lasts_ms: int | None
    ) -> None:
        at = self.at
        named = Named(at)
        known = self.model.find([ident]).get(ident)
        from_offset = max(self.floor, at - low)
        until_ms = None if lasts_ms is None else self.ended[0] + lasts_ms
        key = (self.ended[0] + fires_ms, at) if known is None or known.offset < 0 else known.key
        if key in self.tombstones:
            return
        self.tombstones.add(key)
        self.seen.add(ident)
        self.change(
            0,
            lambda register: register.put(at, ident, named),
            lambda register: register.add_tombstone(at, key, topic),
            lambda register: register.link(at, from_offset, at, until_ms),
        )

    def put(self, gap: int, ident: bytes, named: Named) -> None:
        at = self.at + gap
        self.seen.add(ident)
        self.change(gap, lambda register: register.put(at, ident, named))

    @rule(later_ms=st.integers(0, 60), kept_offsets=st.integers(0, 60))
    def commit(self, later_ms: int, kept_offsets: int) -> None:
        self.committed = self.next_at
        self.ended = max(self.ended, (self.ended[0] + later_ms, self.next_at))
        self.floor = max(self.floor, self.register.lowered(self.committed - kept_offsets))
        self.register.advance(*self.ended)
        self.model.advance(*self.ended)

    @rule(gap=st.integers(1, 100))
    def records_without_an_id_pass(self, gap: int) -> None:
        self.next_at += gap
        self.committed = self.next_at

    @rule(times=st.integers(1, 30), share=st.floats(0, 1))
    def maintain(self, times: int, share: float) -> None:
        self.settled += int(share * (self.committed - self.settled))
        for _ in range(times):
            self.register.maintain(self.settled, self.floor)

    @rule()
    def reopen_cleanly(self) -> None:
        self.register.flush(self.committed, self.floor)
        if self.committed == self.next_at:
            assert self.register.covered == self.committed
        self.crash()

    @rule()
    def crash(self) -> None:
        self.register.close()
        self.lose_what_is_not_committed()

    @rule(
        kind=st.sampled_from(["write", "rename", "remove", "resize"]),
        nth=st.integers(1, 12),
        times=st.integers(1, 40),
    )
    def die_while_maintaining(self, kind: str, nth: int, times: int) -> None:
        self.files.dies_at = (kind, nth)
        with suppress(Killed):
            self.maintain(times, 1.0)
            self.register.flush(self.committed, self.floor)
        self.lose_what_is_not_committed()

    @rule(nth=st.integers(1, 12), times=st.integers(1, 40))
    def find_the_disk_full(self, nth: int, times: int) -> None:
        self.files.dies_at = ("write", nth)
        self.files.death = OSError(errno.ENOSPC, "No space left on device")
        with suppress(StorageFull):
            self.maintain(times, 1.0)
        self.files.death = Killed()
        self.files.dies_at = ("never", 0)

    def lose_what_is_not_committed(self) -> None:
        self.log = [(at, change) for at, change in self.log if at < self.committed]
        self.next_at = self.committed
        self.model = MemoryRegister()
        self.model.advance(*self.ended)
        for _, change in self.log:
            change(self.model)
        self.register = self.open()

    @rule(after_ms=st.integers(0, 300), width_ms=st.integers(0, 300), cursor=st.integers(0, 200))
    def ask_what_is_deleted(self, after_ms: int, width_ms: int, cursor: int) -> None:
        after = max(self.ended, (self.ended[0] + after_ms - 100, cursor))
        upto = (after[0] + width_ms, cursor)
        assert self.register.tombstones(after, upto) == self.model.tombstones(after, upto)
        near = sorted(
            {(ms, at) for ms in range(*(after[0], upto[0])) for at in (cursor, cursor + 1)}
        )
        asked = sorted({*self.tombstones, *near})
        assert self.register.deleted(asked) == self.model.deleted(asked)
        assert self.register.deleted(asked[1:-1]) == self.model.deleted(asked[1:-1])

    @invariant()
    def ids_are_known_unless_they_may_be_forgotten(self) -> None:
        found, expected = self.register.find(self.seen), self.model.find(self.seen)
        assert found.keys() <= expected.keys()
        for ident, named in expected.items():
            if ident in found or not self.is_useless(named):
                assert found.get(ident) == named, ident

    def is_useless(self, named: Named) -> bool:
        has_ended = named.offset < 0 or named.key <= self.ended
        return has_ended and max(named.latest, named.offset) < self.floor

    @invariant()
    def all_that_is_deleted_is_known(self) -> None:
        assert self.register.tombstones(self.ended, END) == self.model.tombstones(self.ended, END)
        counts, truth = self.register.tombstones_by_target(), self.model.tombstones_by_target()
        assert counts.total == truth.total
        assert counts.by_name == {name: truth.by_name.get(name, 0) for name in counts.by_name}
        assert counts.others or counts.by_name == truth.by_name
        assert len(counts.by_name) <= self.options.most_names

    @invariant()
    def kinds_are_found(self) -> None:
        for bit in (1, 2):
            found = list(self.register.of_kind(bit))
            assert Counter(found) == Counter(self.model.of_kind(bit))

    @invariant()
    def floors_are_lowered(self) -> None:
        for floor in (self.floor, self.floor + 3, self.next_at):
            lowered = self.register.lowered(floor)
            live = [link for link in self.model._links if link[2] >= self.ended[0]]
            assert lowered_by(live, lowered) == lowered
            assert lowered >= lowered_by(self.model._links, floor)

    @invariant()
    def covered_is_settled(self) -> None:
        assert self.register.covered <= self.committed

    def teardown(self) -> None:
        self.register.close()
        self.home.cleanup()


RegisterAgainstModel.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestRegisterAgainstModel = RegisterAgainstModel.TestCase


@settings(deadline=None)
@given(
    links=st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(0, 3)), max_size=40
    ),
    floors=st.lists(st.integers(0, 70), min_size=1),
)
def test_joined_links_forbid_the_same_floors(links: list[Link], floors: list[int]) -> None:
    """Invariant: links joined at their ends forbid the same floors as the single links."""
    joined = Links(links)
    assert [joined.lowered(floor) for floor in floors] == [
        lowered_by(links, floor) for floor in floors
    ]


@settings(deadline=None)
@given(
    ids=st.lists(st.binary(max_size=100), min_size=1, max_size=30),
    others=st.lists(st.binary(max_size=200), max_size=5),
)
def test_an_id_has_one_hash_in_every_batch(ids: list[bytes], others: list[bytes]) -> None:
    """Invariant: the hash of an id depends on its bytes only, not on the batch."""
    together: Words = hashes_of(padded([*ids, *others]))
    alone: Sequence[int] = [int(hashes_of(padded([ident]))[0]) for ident in ids]
    assert together[: len(ids)].tolist() == alone
    assert len(set(alone)) == len(set(ids))
