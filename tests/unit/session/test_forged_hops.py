"""Forged records of the proxy, and records from before signatures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.protocol.policy import Policy
from proxy.protocol.position import PolicyFrom, Position
from proxy.protocol.request_reader import DueTimes
from tests.support.simulation.manual_clock import START_MS
from tests.support.simulation.stand_in import INGRESS
from tests.support.simulation.world import DEAD_LETTERS, World

FORGED: dict[str, str | bytes] = {
    "timer-topic": "orders",
    "timer-hop-from": "0",
    "timer-first-origin": "timer.ingress/0/0",
}


def reasons(world: World) -> list[bytes | None]:
    return [letter.header("timer-error") for letter in world.kafka.read(DEAD_LETTERS)]


@pytest.mark.parametrize(
    "more", [{}, {"timer-delay": "999999999999d"}, {"timer-hop-mac": "0" * 32}]
)
def test_forged_hop_is_refused_whatever_it_asks_for(more: dict[str, str]) -> None:
    world = World()
    world.send({"timer-topic": "orders"})
    world.send({**FORGED, **more})
    world.send({"timer-topic": "orders"})
    world.settle()
    assert world.origins() == ["timer.ingress/0/0", "timer.ingress/0/2"]
    assert reasons(world) == [b"hop-bad"]


def test_forged_hop_ends_nothing_and_holds_no_floor() -> None:
    world = World()
    world.send({"timer-topic": "orders", "timer-id": "a", "timer-delay": "5s"})
    for _ in range(3):
        world.send({**FORGED, "timer-id": "a", "timer-delay": "1h"})
    world.settle()
    world.time.pass_ms(5_000)
    world.settle()
    assert world.origins() == ["timer.ingress/0/0"]
    world.send({"timer-topic": "orders"})
    world.settle()
    assert [position.floor for position in world.positions()] == [world.kafka.end(0) - 1]


def test_copy_of_a_hop_in_another_partition_is_refused() -> None:
    world = World(partitions=2, targets=())
    world.send({"timer-topic": "orders"})
    world.settle()
    (_, hop) = world.kafka.read(INGRESS)
    world.send(hop.headers_, hop.key(), hop.value(), partition=1)
    for _ in range(4):
        world.send({"timer-topic": "orders", "timer-delay": "1h"}, partition=1)
    world.settle()
    world.send(hop.headers_, hop.key(), hop.value(), partition=1)
    world.settle()
    assert set(reasons(world)) == {b"hop-bad"}


def test_hop_written_before_hops_were_signed_goes_on_after_the_upgrade() -> None:
    world = World(targets=())
    world.send({"timer-topic": "orders"})
    while world.kafka.end(0) == 1:
        world.turn()
    world.crash()
    _as_before_signing(world)
    world.kafka.topics = {"orders": 1}
    world.send(FORGED)
    world.settle()
    world.send(FORGED)
    world.time.pass_ms(3_600_000)
    world.settle()
    assert b"timer.ingress/0/0" in [r.header("timer-first-origin") for r in world.delivered()]
    assert reasons(world) == [b"hop-bad"]


def _as_before_signing(world: World) -> None:
    older = world.policies.ensure(Policy())
    for record in world.kafka.read(INGRESS):
        record.headers_ = [one for one in record.headers_ if one[0] != "timer-hop-mac"]
    next_offset, metadata = world.kafka.committed[0]
    position = Position.from_metadata(next_offset, metadata)
    position = replace(position, policies=(PolicyFrom(0, older),))
    world.kafka.committed[0] = next_offset, position.to_metadata()


def test_record_at_which_the_proxy_itself_fails_ends_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = DueTimes.due_ms

    def fails(self: DueTimes, asked: dict[str, bytes | None], *rest: int) -> object:
        if asked.get("timer-deliver-at") == b"13":
            raise ZeroDivisionError("by nobody foreseen")
        return read(self, asked, *rest)

    monkeypatch.setattr(DueTimes, "due_ms", fails)
    world = World()
    for at in ("0", "13", str(START_MS), "13"):
        world.send({"timer-topic": "orders", "timer-deliver-at": at})
    world.settle()
    assert world.origins() == ["timer.ingress/0/0", "timer.ingress/0/2"]
    assert reasons(world) == [b"defect", b"defect"]
    detail = world.kafka.read(DEAD_LETTERS)[0].header("timer-error-detail") or b""
    assert b"ZeroDivisionError in test_forged_hops.py:" in detail


def test_memory_that_runs_out_is_no_fault_of_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> object:
        raise MemoryError

    monkeypatch.setattr(DueTimes, "due_ms", fails)
    world = World()
    world.send({"timer-topic": "orders", "timer-delay": "1s"})
    with pytest.raises(MemoryError):
        world.settle()
