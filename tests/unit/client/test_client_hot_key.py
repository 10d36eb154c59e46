"""A key with many records and a slow handler, and the records read with it."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from kafka_delay import consumer_loop
from tests.unit.client.group_runs import World

MANY = 300
FEW_BYTES = 30
READ_AT_MOST = 20

in_both_modes = pytest.mark.parametrize("is_orderly", [False, True])


def work_beside_the_first(world: World, turns: int) -> None:
    member = world.members[0]
    for _ in range(turns):
        member.turn()
        while len(member.running) > 1:
            member.end(1)


@in_both_modes
def test_many_records_of_one_key_do_not_keep_others_from_being_read(is_orderly: bool) -> None:
    world = World([[b"slow"] * MANY, [b"a", b"b", None]], {}, is_orderly=is_orderly)
    with patch.multiple(consumer_loop, LOOK_EVERY_S=0, SETTLE_EVERY_S=0):
        world.share_out((0, 0))
        work_beside_the_first(world, turns=20)
    assert world.members[0].consumer.positions[0] == MANY
    assert world.group.committed[1].offset == 3


@in_both_modes
def test_their_bytes_are_bounded_by_partition(is_orderly: bool) -> None:
    world = World([[b"slow"] * MANY, [b"a", b"b", None]], {}, is_orderly=is_orderly)
    with patch.multiple(consumer_loop, LOOK_EVERY_S=0, SETTLE_EVERY_S=0, MOST_HELD_BYTES=FEW_BYTES):
        world.share_out((0, 0))
        work_beside_the_first(world, turns=20)
    assert 1 < world.members[0].consumer.positions[0] <= READ_AT_MOST
    assert world.group.committed[1].offset == 3
