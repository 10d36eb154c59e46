"""Limits on pending records in a whole proxy on the stand-in Kafka."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from structlog.testing import capture_logs

from proxy.config.settings import AdmissionSettings, Resumed
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import SETTINGS, World
from tests.unit.session.test_pipeline_recalls import outcomes, recall

HOUR = "1h"
DAY_MS = 86_400_000


def limited(**admission: Any) -> World:
    """Return a world that reads one by one, so that no limit is exceeded."""
    world = World(targets=("orders", "bills"))
    world.admission = AdmissionSettings(**admission)
    world.batch_records = 1
    world.settle()
    return world


def send(
    world: World, target: str = "orders", delay: str = HOUR, size_bytes: int = 5, **more: str
) -> None:
    asked = {f"timer-{name}": text for name, text in more.items()}
    headers: dict[str, str | bytes] = {"timer-topic": target, "timer-delay": delay, **asked}
    world.send(headers, value=bytes(size_bytes))


def unread(world: World) -> int:
    return world.kafka.end(0) - world.shards[0].next_offset


def test_at_the_limit_nothing_is_read_and_what_is_due_goes_out_and_makes_room() -> None:
    world = limited(records=8)
    for number in range(12):
        send(world, delay=f"{number + 1}s")
    world.settle()
    assert (world.shards[0].pending(), unread(world)) == (8, 4)
    assert world.pipeline.back_pressure.is_full(0)
    world.time.pass_ms(1_000)
    world.settle()
    assert (len(world.delivered()), unread(world)) == (1, 4), "an eighth must be free"
    world.time.pass_ms(1_000)
    world.settle()
    assert (len(world.delivered()), unread(world)) == (2, 2)
    world.time.pass_ms(60_000)
    world.settle()
    assert (len(world.delivered()), unread(world)) == (12, 0)
    assert not world.pipeline.back_pressure.is_full(0)


def test_the_log_names_the_limit_once_and_says_when_reading_goes_on() -> None:
    world = limited(records=2)
    with capture_logs() as logs:
        for _ in range(4):
            send(world, delay="1s")
        world.settle()
        world.time.pass_ms(2_000)
        world.settle()
    said = [one for one in logs if "reading" in one["event"]]
    assert [one["log_level"] for one in said] == ["warning", "info"]
    assert said[0]["why"] == "2 records are pending, and admission.records is 2"


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (
            {"per_target": {"ord*": 2}},
            "2 records for orders are pending, and admission.per_target is 2",
        ),
        ({"size_bytes": 700}, "bytes are pending, and admission.bytes is 700"),
        ({"bytes_per_target": {"orders": 700}}, "bytes for orders are pending"),
    ],
)
def test_each_limit_holds_reading_and_is_named(limits: dict[str, Any], why: str) -> None:
    world = limited(**limits)
    with capture_logs() as logs:
        for _ in range(3):
            send(world, size_bytes=400)
        world.settle()
    (said,) = [one for one in logs if "reading" in one["event"]]
    assert why in said["why"]
    assert (world.shards[0].pending(), unread(world)) == (2, 1)


@pytest.mark.parametrize("limits", [{"size_bytes": 1_200}, {"bytes_per_target": {"o*": 1_200}}])
def test_what_a_resumed_target_left_behind_on_disk_holds_no_reading(limits: dict[str, Any]) -> None:
    """Parked records stay in the store for days after they were moved."""
    world = limited(**limits)
    world.release.pause(["orders"])
    for _ in range(6):
        send(world, delay="0", size_bytes=400)
    world.settle()
    world.release.pause([])
    world.settle()
    world.time.pass_ms(1_000)
    world.settle()
    send(world, delay="1s")
    world.time.pass_ms(1_000)
    world.settle()
    assert (len(world.delivered()), unread(world)) == (7, 0)


def test_a_target_that_its_own_limit_does_not_fit_fills_nothing() -> None:
    world = limited(per_target={"bills": 1})
    for _ in range(5):
        send(world)
    world.settle()
    assert unread(world) == 0


def test_whoever_takes_over_reads_to_the_end_first_so_that_a_cancel_there_counts() -> None:
    world = limited(records=2)
    for ident in "abcd":
        send(world, delay="1s", id=ident)
    world.send({"timer-cancel": "a"})
    world.settle()
    assert unread(world) == 3
    world.crash()
    world.time.pass_ms(2_000)
    world.settle()
    assert sorted(world.origins()) == [f"{INGRESS}/0/{offset}" for offset in (1, 2, 3)]
    assert outcomes(world)[0] == ("cancelled", "")


def test_what_is_read_beyond_the_limit_at_a_takeover_holds_reading_afterwards() -> None:
    world = limited(records=2)
    for _ in range(6):
        send(world)
    world.settle()
    world.crash()
    world.settle()
    assert (world.shards[0].pending(), unread(world)) == (6, 0)
    send(world)
    world.settle()
    assert unread(world) == 1


def test_a_limit_that_was_raised_lets_reading_go_on() -> None:
    world = limited(records=2)
    for _ in range(4):
        send(world)
    world.settle()
    world.stop()
    world.admission = AdmissionSettings(records=10)
    send(world)
    world.settle()
    assert unread(world) == 0


def test_half_messages_take_no_room_since_only_reading_decides_them() -> None:
    world = limited(records=2)
    for ident in "abc":
        send(world, id=ident, delay="0", transaction="prepare")
    for ident in "abc":
        world.send({"timer-id": ident, "timer-transaction": "commit"})
    world.settle()
    world.time.pass_ms(10)
    world.settle()
    assert len(world.delivered()) == 3


def test_what_was_cancelled_takes_no_room_of_records() -> None:
    world = limited(records=2)
    for ident in "abc":
        send(world, id=ident)
        world.send({"timer-cancel": ident})
    world.settle()
    assert unread(world) == 0


def test_a_resumed_target_leaves_a_partition_that_its_records_have_filled() -> None:
    """Held records leave only when their moves are read, which lie behind the unread records."""
    world = limited(records=3)
    world.release.pause(["orders"])
    for _ in range(3):
        send(world, delay="1s")
    world.time.pass_ms(2_000)
    world.settle()
    assert world.pipeline.back_pressure.is_full(0)
    for _ in range(4):
        send(world, "bills")
    world.settle()
    assert unread(world) == 4
    world.release.pause([], {"orders": Resumed(world.time.wall_now_ms, None)})
    world.turn()
    world.settle()
    assert len(world.delivered()) == 3
    assert world.pipeline.back_pressure.is_full(0), "with the others, that were read on the way"
    send(world, "bills")
    world.settle()
    assert unread(world) == 1


def test_a_full_partition_holds_up_no_other() -> None:
    world = World(2)
    world.admission = AdmissionSettings(records=1)
    world.batch_records = 1
    world.settle()
    for partition in (0, 0, 0, 1):
        world.send({"timer-topic": "orders", "timer-delay": "1s"}, partition=partition)
    world.settle()
    assert [shard.next_offset for shard in world.shards.values()] == [1, 1]


def shed_by_an_older_version(world: World, *offsets: int) -> None:
    """Commit a position of an older version, whose limits shed these offsets."""
    bitmap = bytearray(8_192)
    for offset in offsets:
        bitmap[offset // 8] |= 1 << offset % 8
    next_offset, metadata = world.kafka.committed[0]
    said = {
        "topic_id": world.topic_id,
        "next_offset": next_offset,
        "chunks": [0],
        "offsets": base64.b64encode(zlib.compress(bytes(bitmap))).decode(),
    }
    key = f"shed/{SETTINGS.group_id}/{INGRESS}/0/0".encode()
    world.kafka.append(SETTINGS.topics.settings, 0, key, json.dumps(said).encode(), [])
    fields = {**json.loads(metadata), "v": 3, "r": next_offset}
    world.kafka.committed[0] = next_offset, json.dumps(fields)


def test_what_an_older_version_has_shed_is_not_delivered_by_this_one() -> None:
    """Its records are dead letters, as the committed metadata say. They stay so in any replay, also
    after this version's first commit."""
    world = World()
    for _ in range(3):
        send(world)
    world.settle()
    world.stop()
    shed_by_an_older_version(world, 1)
    world.settle()
    send(world)
    world.settle()
    recall(world, 1)
    world.settle()
    assert outcomes(world)[4][0] == "missed"
    world.crash()
    world.time.pass_ms(DAY_MS)
    world.settle()
    assert world.origins() == [f"{INGRESS}/0/{offset}" for offset in (0, 2, 3)]
