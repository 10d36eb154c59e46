"""Caps, pauses and overdue rules in a whole proxy on the stand-in Kafka."""

import pytest
from confluent_kafka import KafkaError

from proxy.dispatch.release_control import BURST_MS, OverdueRule, ReleaseControl, WorkerRateLimit
from proxy.session.pipeline import LONGEST_WAIT_MS
from tests.support.simulation.stand_in import kafka_error
from tests.support.simulation.world import DEAD_LETTERS, World

MINUTE_MS = 60_000


def a_world(release: ReleaseControl | None = None, cap: WorkerRateLimit | None = None) -> World:
    world = World(targets=("orders", "bills"))
    world.release = release or world.release
    world.cap = cap or world.cap
    return world


def send(world: World, target: str, delay: str = "1s", count: int = 1) -> None:
    for _ in range(count):
        world.send({"timer-topic": target, "timer-delay": delay})


def pass_by(world: World, elapsed_ms: int, step_ms: int = 10) -> None:
    for _ in range(elapsed_ms // step_ms):
        world.time.pass_ms(step_ms)
        world.turn()


def outcomes(world: World) -> list[str]:
    return sorted(what for _, what, _ in world.ends())


def test_a_cap_lets_out_what_waited_through_a_downtime_at_its_rate() -> None:
    world = a_world(cap=WorkerRateLimit(100))
    send(world, "orders", "0s")
    world.settle()
    send(world, "orders", count=300)
    world.time.pass_ms(MINUTE_MS)
    world.turn(3)
    assert len(world.delivered()) - 1 == 100 * BURST_MS // 1000
    before = len(world.delivered())
    pass_by(world, 1_000)
    assert len(world.delivered()) - before <= 100
    assert len(world.delivered()) - before >= 90
    pass_by(world, 2_500)
    assert len(world.delivered()) == 301


def test_a_cap_holds_back_newcomers_that_are_due_at_once_over_all_partitions() -> None:
    world = World(partitions=3)
    world.cap = WorkerRateLimit(100)
    world.turn()
    for number in range(300):
        world.send({"timer-topic": "orders"}, partition=number % 3)
    world.turn(5)
    assert len(world.delivered()) == 100 * BURST_MS // 1000
    pass_by(world, 3_200)
    assert len(world.delivered()) == 300


def test_a_cap_that_is_used_up_makes_the_loop_wait() -> None:
    world = a_world(cap=WorkerRateLimit(100))
    send(world, "orders", count=100)
    world.settle()
    world.time.pass_ms(1_000)
    world.turn(2)
    assert world.pipeline._wait_ms() == LONGEST_WAIT_MS
    send(world, "orders", "0s", 10)
    world.turn(2)
    assert world.pipeline._wait_ms() == LONGEST_WAIT_MS


def test_a_paused_target_holds_up_no_other() -> None:
    world = a_world()
    world.release.pause(["ord*"])
    send(world, "orders")
    send(world, "bills")
    world.time.pass_ms(1_000)
    world.settle()
    assert (len(world.delivered("orders")), len(world.delivered("bills"))) == (0, 1)
    world.time.pass_ms(2 * MINUTE_MS)
    world.settle()
    assert world.delivered("orders") == []
    assert set(outcomes(world)) == {"delivered", "requeued"}


def test_a_target_that_is_resumed_gets_its_records_within_a_minute_with_their_own_due() -> None:
    world = a_world()
    world.release.pause(["orders"])
    send(world, "orders")
    first_due_ms = world.time.wall_now_ms + 1_000
    pass_by(world, 30 * MINUTE_MS, 5_000)
    world.release.pause([])
    pass_by(world, MINUTE_MS, 5_000)
    (record,) = world.delivered("orders")
    assert record.header("timer-due") == str(first_due_ms).encode()
    assert record.header("timer-first-origin") == b"timer.ingress/0/0"


def test_a_record_of_a_paused_target_can_still_be_cancelled() -> None:
    world = a_world()
    world.release.pause(["orders"])
    world.send({"timer-topic": "orders", "timer-delay": "1s", "timer-id": "a"})
    pass_by(world, 3_000, 500)
    world.send({"timer-cancel": "a"})
    world.release.pause([])
    pass_by(world, 2 * MINUTE_MS, 5_000)
    assert world.delivered("orders") == []
    assert "cancelled" in outcomes(world)


def test_what_exceeds_a_targets_rate_is_sent_back_once_and_arrives_in_time() -> None:
    world = a_world(ReleaseControl({"orders": 40}))
    send(world, "orders", count=100)
    send(world, "bills", count=100)
    world.settle()
    world.time.pass_ms(1_000)
    world.turn(2)
    assert len(world.delivered("bills")) == 100
    assert len(world.delivered("orders")) == 10
    pass_by(world, 2_300)
    assert len(world.delivered("orders")) == 100
    assert outcomes(world).count("requeued") == 90


@pytest.mark.parametrize(("action", "end"), [("drop", "expired"), ("dead-letter", "dead-lettered")])
def test_an_overdue_record_ends_as_its_target_wants_it(action: str, end: str) -> None:
    rule = OverdueRule("orders", 10_000, "drop" if action == "drop" else "dead-letter")
    world = a_world(ReleaseControl(overdue=[rule]))
    send(world, "orders")
    send(world, "bills")
    world.settle()
    world.time.pass_ms(MINUTE_MS)
    world.settle()
    assert outcomes(world) == sorted(["delivered", end])
    assert len(world.kafka.read(DEAD_LETTERS)) == (action == "dead-letter")


def test_a_transaction_made_again_gives_nobody_a_second_place_in_line() -> None:
    world = a_world(ReleaseControl({"orders": 40}))
    send(world, "orders", count=100)
    world.settle()
    world.time.pass_ms(1_000)
    aborted = kafka_error(KafkaError._TIMED_OUT, txn_requires_abort=True)
    world.kafka.commit_faults.append(("before", aborted))
    world.turn(2)
    assert len(world.delivered("orders")) == 10
    pass_by(world, 2_300)
    assert len(world.delivered("orders")) == 100


def test_a_downtime_does_not_let_out_at_once_those_whose_places_have_passed_meanwhile() -> None:
    world = a_world(ReleaseControl({"orders": 40}))
    send(world, "orders", count=300)
    world.settle()
    world.time.pass_ms(1_000)
    world.turn(2)
    before = len(world.delivered("orders"))
    world.time.pass_ms(10_000)
    world.turn(2)
    assert len(world.delivered("orders")) - before == 2 * 10
    pass_by(world, 7_000)
    assert len(world.delivered("orders")) == 300


def test_a_record_between_two_attempts_is_known_by_target_reason_and_its_own_due() -> None:
    world = a_world()
    due_ms = world.time.wall_now_ms
    world.send({"timer-topic": "nowhere"})
    world.settle()
    world.time.pass_ms(MINUTE_MS)
    world.settle()
    (one,) = world.metrics.refused.now()
    assert (one.target, one.reason, one.oldest_due_ms) == ("nowhere", "target-unknown", due_ms)
    assert "attempt 2 of 16" in one.detail
