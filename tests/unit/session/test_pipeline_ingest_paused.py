"""Paused ingest in a whole proxy on the stand-in Kafka: O stops, delivery continues."""

from __future__ import annotations

from tests.support.simulation.world import World


def send(world: World, delay: str, ident: str | None = None) -> None:
    asked: dict[str, str | bytes] = {"timer-topic": "orders", "timer-delay": delay}
    if ident is not None:
        asked["timer-id"] = ident
    world.send(asked)


def pass_seconds(world: World, seconds: int) -> None:
    for _ in range(seconds):
        world.time.pass_ms(1_000)
        world.settle()


def read(world: World) -> int:
    (shard,) = world.shards.values()
    return shard.position.next_offset


def test_what_waits_is_delivered_on_time_and_nothing_new_is_read() -> None:
    world = World()
    send(world, "3s")
    world.settle()
    world.pause_ingest(True)
    send(world, "1s")
    send(world, "0")
    pass_seconds(world, 3)
    assert (read(world), world.origins()) == (1, ["timer.ingress/0/0"])
    world.pause_ingest(False)
    pass_seconds(world, 2)
    assert (read(world), len(world.origins())) == (3, 3)


def test_a_taken_over_shard_reads_to_the_end_it_saw_then_delivers_and_reads_no_further() -> None:
    world = World()
    send(world, "3s", "a")
    send(world, "3s", "b")
    world.settle()
    world.pause_ingest(True)
    world.send({"timer-cancel": "a"})
    send(world, "4s")
    world.crash()
    world.settle()
    world.send({"timer-cancel": "b"})
    send(world, "1s")
    pass_seconds(world, 10)
    assert read(world) == 4
    assert world.origins() == ["timer.ingress/0/1", "timer.ingress/0/3"]
    world.pause_ingest(False)
    pass_seconds(world, 2)
    ends = {origin: end for origin, end, _detail in world.ends()}
    assert ends["timer.ingress/0/0"] == "cancelled"
    assert ends["timer.ingress/0/4"] == "missed"
    assert ends["timer.ingress/0/5"] == "delivered"
    assert len(world.ends()) == len(ends) == 6


def test_what_is_rewritten_meanwhile_waits_in_the_ingress_and_goes_on_after() -> None:
    world = World()
    send(world, "2s")
    world.settle()
    world.release.pause({"orders"})
    world.pause_ingest(True)
    pass_seconds(world, 120)
    world.release.pause(())
    pass_seconds(world, 120)
    assert [end[:2] for end in world.ends()] == [("timer.ingress/0/0", "requeued")]
    world.pause_ingest(False)
    pass_seconds(world, 5)
    assert [end[1] for end in world.ends()] == ["delivered", "requeued", "requeued"]
