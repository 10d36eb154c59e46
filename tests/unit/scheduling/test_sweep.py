"""A sweep visits the entries of a purge once, and loses none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.protocol.body import IngressPartition, packer
from proxy.protocol.parsed import Purge
from proxy.protocol.position import Position, PurgeProgress, Watermark
from proxy.scheduling.purges import Purges, Sweep
from storage.store import Key
from tests.support.simulation.memory_register import MemoryRegister
from tests.support.simulation.memory_store import MemoryStore

BEGUN = Watermark(0, 0)
BODY = packer()((-1, None, None, []))


class Swept:
    """Entries due at 50, 60 and 70, a purge behind them, and its recorded progress."""

    def __init__(self, told: PurgeProgress | None) -> None:
        start = Position.start(0, "digest", "topic-id")
        position = replace(start, next_offset=9, purge=told)
        store, register = MemoryStore(), MemoryRegister()
        store.put((10 * (5 + offset), offset, "orders", BODY) for offset in range(3))
        self.deleted: list[Key] = []
        self.purges = Purges(IngressPartition("timer.ingress", 0), register, position)
        self.purges.add(3, Purge("orders", 0, 100))
        self.sweep = Sweep(
            self.purges, store.scan, lambda key, _: self.deleted.append(key), lambda _: {}
        )

    def look(self, beyond: Watermark, most: int = 10) -> list[Key]:
        return [one.key for one in self.sweep.piece(BEGUN, beyond, most)]


def test_what_a_plan_would_pass_is_deleted_though_the_plan_is_never_committed() -> None:
    swept = Swept(told=None)
    while swept.purges.first_unswept is not None:
        assert swept.look(beyond=Watermark(50, 0)) == []
    assert swept.deleted == [(50, 0), (60, 1), (70, 2)]


def test_what_a_plan_would_pass_is_told_if_the_plan_is_never_committed() -> None:
    swept = Swept(told=PurgeProgress(3, Watermark(-1, -1)))
    assert swept.look(beyond=Watermark(50, 0)) == [(60, 1), (70, 2)]
    assert swept.look(beyond=BEGUN) == [(50, 0), (60, 1), (70, 2)]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_each_is_told_once_however_few_fit(most: int) -> None:
    swept = Swept(told=PurgeProgress(3, Watermark(50, 0)))
    told: list[Key] = []
    while swept.purges.first_unswept is not None:
        piece = swept.sweep.piece(BEGUN, BEGUN, most)
        assert len(piece) <= most
        told += [one.key for one in piece]
        swept.sweep.note_written(piece)
    assert told == [(60, 1), (70, 2)]
    assert sorted(swept.deleted) == [(50, 0), (60, 1), (70, 2)]
    assert swept.purges.progress is None
