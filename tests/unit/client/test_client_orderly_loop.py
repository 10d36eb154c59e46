"""Reading of an orderly consumer while a key is blocked by its failed record."""

from __future__ import annotations

from unittest.mock import patch

from kafka_delay import consumer_loop
from tests.unit.client.group_runs import World

FEW_BYTES = 30
READ_AT_MOST = 20


def test_a_partition_with_much_that_is_held_back_is_paused_and_others_are_read() -> None:
    world = World([[b"a"], []], {(0, 0): 1}, is_orderly=True)
    member = world.members[0]
    with patch.multiple(consumer_loop, LOOK_EVERY_S=0, MOST_HELD_BYTES=FEW_BYTES):
        world.share_out((0, 0))
        member.turn()
        member.end(0)
        member.turn()
        world.group.keys[0].extend([b"a"] * 200)
        world.group.keys[1].extend([b"b"] * 5)
        for _ in range(20):
            member.turn()
            member.end(0)
        assert 10 < member.consumer.positions[0] <= READ_AT_MOST
        assert world.group.committed[1].offset == 5
        world.finish()
    assert len(world.story.over) == 206
