"""Recalled records are read back from the ingress in portions."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.protocol.body import BY_KEY, IngressPartition, packer
from proxy.protocol.parsed import ParsedRecord, Recall, Scheduled
from proxy.protocol.position import Position
from proxy.scheduling.half_messages import HalfMessages
from proxy.scheduling.identities import MOST_READ, Identities, Recalls
from proxy.scheduling.missed_moves import MissedMoves, MissedPlace
from proxy.scheduling.purges import Purges
from tests.support.simulation.memory_register import MemoryRegister

DUE_MS = 5_000


def test_what_many_recalls_name_is_read_in_a_few_pieces_in_a_replay_too() -> None:
    pieces: list[Sequence[int]] = []

    def read_back(offsets: Sequence[int]) -> dict[int, ParsedRecord]:
        pieces.append(offsets)
        body = packer()((BY_KEY, None, None, []))
        entries = ((DUE_MS, offset, "orders", body) for offset in offsets)
        return {entry[1]: Scheduled(entry, None, None, DUE_MS, rolls=False) for entry in entries}

    position = Position.start(0, "digest", "topic-id")
    halves = HalfMessages(read_back, position)
    register = MemoryRegister()
    purges = Purges(IngressPartition("timer.ingress", 0), register, position)
    identities = Identities(register, halves, purges, position)
    recalls = Recalls(read_back, identities, MissedMoves(MissedPlace("settings", "", "topic-id")))
    named = list(range(3 * MOST_READ, 0, -1))
    recalls.expect(named)
    said = [recalls.apply(1_000 + at, Recall(offset)) for at, offset in enumerate(named)]
    assert {tuple(one.what for one in outcomes) for outcomes in said} == {("cancelled", "applied")}
    assert [len(piece) for piece in pieces] == [MOST_READ] * 3
    assert all(list(piece) == sorted(piece) for piece in pieces)
