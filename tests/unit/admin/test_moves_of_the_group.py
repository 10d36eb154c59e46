"""`POST /moves` at any instance moves the records of all, each once, and says who is silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from proxy.admin import moves as moves_module
from proxy.admin.queries import NextOffsets
from proxy.dispatch.hops import Moving
from proxy.protocol.body import Headers, Message
from proxy.scheduling.batch import OutgoingRecord
from proxy.scheduling.pending import END, PendingPiece, PendingRecord
from storage.store import Key
from tests.support.simulation import admin_api
from tests.support.simulation.admin_api import INGRESS, MadeUpWorkers
from tests.unit.admin.test_peers import Instance, hostile, two_instances

HALF = 7
"""The offset of an undecided half message in each partition with records."""
BODY: dict[str, Any] = {"targets": "*", "deliver_at": 4_102_444_800_000}
Group = tuple[Instance, Instance]


class Workers(MadeUpWorkers):
    """Workers that serve the partitions of their instance."""

    def __init__(self, instance: Instance) -> None:
        super().__init__()
        self.instance = instance

    def ask(self, query: Any) -> Any:
        if isinstance(query, NextOffsets):
            shards = [shard for one in self.instance.statuses() for shard in one.shards]
            return [(shard.partition, shard.next_offset) for shard in shards]
        return super().ask(query)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    """Partitions 1 and 4 have records at offsets 1 to 3, due in turns, and a half message. A moved
    record is at a higher offset."""
    moved = set[tuple[int, int]]()

    def piece(partition: int, after: Key) -> PendingPiece:
        origin = f"{INGRESS}/{partition}"
        records = [
            PendingRecord(due, n, f"{origin}/{n}", None, due, "orders", 9, "scheduled")
            for n, due in ((n, n * 1_000 + partition) for n in (1, 2, 3))
        ]
        half = f"{origin}/{HALF}"
        records += [PendingRecord(1_500, HALF, half, None, 1_500, "orders", 9, "undecided")]
        here = partition in {1, 4}
        records = [one for one in records if here and (partition, one.offset) not in moved]
        left = [one for one in records if (one.fires_ms, one.offset) > after]
        return PendingPiece(partition, left, END)

    def moving(record: Message, deliver_at_ms: int) -> Moving:
        place = record.partition() or 0, record.offset() or 0
        assert place not in moved
        moved.add(place)
        headers: Headers = [("timer-deliver-at", b"%d" % deliver_at_ms)]
        made = OutgoingRecord(INGRESS, None, None, place[0], headers, ("moved", place[1]))
        return Moving("pending", place[1], made)

    monkeypatch.setattr(admin_api, "_piece", piece)
    monkeypatch.setattr(admin_api, "_moving", moving)
    with two_instances() as made:
        for instance in made:
            instance.workers = instance.site.workers = Workers(instance)
        yield made


def ask(instance: Instance, **more: Any) -> Any:
    code, said = instance.get("/moves", "POST", {**BODY, **more})
    assert code == 200, said
    return said


def count(instance: Instance, **more: Any) -> Any:
    return ask(instance, dry_run=True, **more)


def moved(*instances: Instance) -> list[tuple[int | None, int]]:
    found = [one for instance in instances for one in instance.broker.moves]
    return sorted((one.partition, one.ref[1]) for one in found if one.ref is not None)


def test_a_dry_run_counts_the_records_of_all(group: Group) -> None:
    for asked in group:
        said = count(asked)
        assert (said["records"], said["left_out"]) == (6, {"half-message": 2})
        assert (said["first_due"], said["last_due"]) == (1_001, 3_004)
        assert [one["due"] for one in said["sample"]] == [1_001, 1_004, 2_001, 2_004, 3_001, 3_004]
        assert (said["partitions"], said["complete"]) == ([0, 1, 2, 3, 4, 5], True)
        assert (said["cut"], said["unanswered"]) == (False, [])
        assert not {"cursors", "dues"} & {*said}
    assert moved(*group) == []


def test_each_instance_moves_its_own_records_once(group: Group) -> None:
    one, other = group
    confirm = count(one)["confirm"]
    said = ask(other, dry_run=False, confirm=confirm)
    assert (said["records"], said["outcomes"]) == (6, {"replaced": 6})
    assert (said["confirm"], said["complete"]) == (None, True)
    assert moved(one) == [(1, 1), (1, 2), (1, 3)]
    assert moved(other) == [(4, 1), (4, 2), (4, 3)]
    assert ask(one, dry_run=False, confirm=confirm)["records"] == 0


def test_records_are_moved_call_by_call_and_reasons_count_once(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves_module, "MOVED_AT_ONCE", 2)
    monkeypatch.setattr(moves_module, "PIECE", 1)
    confirm, records, left_out = count(group[0])["confirm"], list[int](), 0
    while confirm is not None:
        said = ask(group[0], dry_run=False, confirm=confirm)
        confirm = said["confirm"]
        records.append(said["records"])
        left_out += said["left_out"].get("half-message", 0)
    assert (records, left_out, len(moved(*group))) == ([4, 2], 2, 6)


def test_a_token_has_the_first_records_of_the_group(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves_module, "MOST_MOVED", 3)
    said = count(group[1])
    assert (said["records"], said["cut"], said["last_due"]) == (3, True, 2_001)
    assert ask(group[0], dry_run=False, confirm=said["confirm"])["records"] == 3
    assert moved(*group) == [(1, 1), (1, 2), (4, 1)]


def test_a_partition_is_counted_at_its_instance_and_elsewhere_is_nothing(group: Group) -> None:
    said = count(group[0], partition=4)
    assert (said["records"], said["complete"]) == (3, True)
    assert ask(group[0], partition=4, dry_run=False, confirm=said["confirm"])["records"] == 3
    assert moved(group[0]) == []
    code, said = group[0].get("/moves", "POST", {**BODY, "partition": 9, "dry_run": True})
    assert (code, said["error"]) == (404, "not-served-here")


def test_a_partition_at_two_instances_is_counted_once(group: Group) -> None:
    group[1].first = 1
    said = count(group[0])
    assert (said["records"], said["complete"]) == (3, False)


def test_an_instance_that_is_silent_in_the_dry_run_is_named_and_not_moved(group: Group) -> None:
    one, other = group
    count(one)
    other.server.close()
    said = count(one)
    assert (said["records"], said["complete"], len(said["unanswered"])) == (3, False, 1)
    done = ask(one, dry_run=False, confirm=said["confirm"])
    assert (done["confirm"], done["complete"], done["unanswered"]) == (None, True, [])
    one.first = 3
    assert ask(one, dry_run=False, confirm=count(one)["confirm"])["records"] == 3


def test_the_part_of_a_silent_instance_stays_until_its_successor_moves_it(group: Group) -> None:
    one, other = group
    confirm = count(one)["confirm"]
    other.server.close()
    said = ask(one, dry_run=False, confirm=confirm)
    assert (said["records"], said["complete"], len(said["unanswered"])) == (3, False, 1)
    again = ask(one, dry_run=False, confirm=said["confirm"])
    assert (again["records"], again["confirm"]) == (0, said["confirm"])
    one.first = 3
    for token in (said["confirm"], said["confirm"]):
        assert ask(one, dry_run=False, confirm=token)["confirm"] is None
    assert moved(one) == [(p, n) for p in (1, 4) for n in (1, 2, 3)]


def test_an_answer_that_does_not_fit_takes_nothing_from_the_token(group: Group) -> None:
    one, other = group
    confirm = count(one)["confirm"]
    said = (
        b'{"dry_run":false,"records":9,"cut":false,"first_due":null,"last_due":null,"sample":[],'
        b'"outcomes":{},"left_out":{},"partitions":[3,4,5],"confirm":"1;4:9;-;1.1.1.1;%s"}'
    ) % (b"0" * 32)
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\ndelay-proxy-instance: x/y\r\n"
        b"delay-proxy-group: a-cluster/delay-proxy\r\n\r\n"
    )
    url, _, listener = hostile(lambda to: to.sendall(head % len(said) + said))
    with closing(listener):
        one.lead_to(url)
        done = ask(one, dry_run=False, confirm=confirm)
    assert (done["records"], done["complete"], len(done["unanswered"])) == (3, False, 1)
    one.lead_to(other.url)
    assert ask(one, dry_run=False, confirm=done["confirm"])["records"] == 3


def test_a_partition_that_nobody_serves_or_has_read_far_enough_is_not_passed_over(
    group: Group,
) -> None:
    one, other = group
    confirm = count(one, partition=4)["confirm"]
    other.next_offsets = [9]
    asked = {**BODY, "partition": 4, "dry_run": False, "confirm": confirm}
    for asking in group:
        code, said = asking.get("/moves", "POST", asked)
        assert (code, said["error"], moved(*group)) == (409, "moved-away", [])
    other.next_offsets = [10]
    assert one.get("/moves", "POST", asked)[1]["records"] == 3


def test_instances_that_ask_each_other_do_not_lock_each_other_out(group: Group) -> None:
    one, other = group
    with other.site.free_moves:
        assert "running" in count(one)["unanswered"][0]["reason"]
    seen = list[bool]()
    read_statuses = other.site.read_statuses

    def statuses() -> Any:
        seen.append(one.site.free_moves.acquire(blocking=False))
        if seen[-1]:
            one.site.free_moves.release()
        return read_statuses()

    other.site.read_statuses = statuses
    assert count(one)["records"] == 6
    assert set(seen) == {True}, "the called instance waits for others without its own place"
