"""The logical clock never goes back, and is ahead of the broker's by one step at most."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.clock import CONFIRMED_AFTER_MS, Clock
from tests.support.simulation.manual_clock import START_MS, ManualTime


def test_it_follows_the_wall_clock() -> None:
    time = ManualTime()
    clock = a_clock(time)
    time.pass_ms(1_234)
    assert clock.now_ms() == START_MS + 1_234


def test_it_stands_still_while_the_wall_clock_is_behind() -> None:
    time = ManualTime()
    clock = a_clock(time)
    time.step_ms(-10_000)
    assert clock.now_ms() == START_MS
    assert clock.offset_ms == -10_000
    time.pass_ms(10_001)
    assert clock.now_ms() == START_MS + 1


def test_a_jump_is_held_at_the_pace_of_the_monotonic_clock() -> None:
    time = ManualTime()
    clock = a_clock(time, max_step_ms=5_000)
    time.step_ms(3_600_000)
    time.pass_ms(100)
    assert clock.now_ms() == START_MS + 100
    assert clock.stands_still


def test_a_small_step_is_taken_as_it_is() -> None:
    time = ManualTime()
    clock = a_clock(time, max_step_ms=5_000)
    time.step_ms(5_000)
    assert clock.now_ms() == START_MS + 5_000
    assert not clock.is_held


def test_a_jump_that_stays_is_believed_after_a_while_where_no_broker_is_asked() -> None:
    time = ManualTime()
    clock = a_clock(time)
    time.step_ms(3_600_000)
    clock.now_ms()
    time.pass_ms(CONFIRMED_AFTER_MS)
    assert clock.now_ms() == START_MS + 3_600_000 + CONFIRMED_AFTER_MS


def test_a_stamp_of_the_broker_confirms_a_jump() -> None:
    time = ManualTime()
    clock = a_clock(time)
    time.step_ms(3_600_000)
    assert clock.now_ms() == START_MS
    clock.observe_broker(START_MS + 3_599_000)
    assert clock.now_ms() == START_MS + 3_600_000


def test_a_jump_taken_back_leaves_no_trace() -> None:
    time = ManualTime()
    clock = a_clock(time)
    time.step_ms(3_600_000)
    clock.now_ms()
    time.step_ms(-3_600_000)
    time.pass_ms(50)
    assert clock.now_ms() == START_MS + 50
    assert not clock.is_held


def test_a_clock_that_is_ahead_at_the_start_goes_by_the_broker_s() -> None:
    time = ManualTime()
    time.step_ms(3_600_000)
    clock = asked(time)
    assert clock.now_ms() == START_MS
    assert (clock.is_held, clock.stands_still, clock.lead_ms) == (True, False, 3_600_000)
    time.pass_ms(1_000)
    assert clock.now_ms() == START_MS + 1_000


def test_time_alone_confirms_nothing_that_the_broker_contradicts() -> None:
    time = ManualTime()
    time.step_ms(3_600_000)
    clock = asked(time)
    clock.now_ms()
    time.pass_ms(10 * CONFIRMED_AFTER_MS)
    assert clock.now_ms() == START_MS + 10 * CONFIRMED_AFTER_MS


def test_a_clock_that_is_set_right_is_believed_at_once() -> None:
    time = ManualTime()
    time.step_ms(-3_600_000)
    clock = asked(time)
    assert clock.now_ms() == START_MS - 3_600_000
    time.step_ms(3_600_000)
    assert clock.now_ms() == START_MS


def test_a_machine_that_has_slept_goes_on_once_the_broker_is_asked_again() -> None:
    time = ManualTime()
    clock = asked(time)
    clock.now_ms()
    time.sleep_ms(3_600_000)
    assert clock.now_ms() == START_MS
    clock.set_broker_time(time.broker_time())
    assert clock.now_ms() == START_MS + 3_600_000


def test_a_newer_stamp_of_the_broker_corrects_what_it_had_answered() -> None:
    time = ManualTime()
    clock = asked(time)
    time.sleep_ms(3_600_000)
    clock.observe_broker(time.broker_now_ms)
    assert clock.now_ms() == START_MS + 3_600_000


def test_what_lies_ahead_is_told_by_the_broker_s_clock() -> None:
    time = ManualTime()
    time.step_ms(-60_000)
    assert time.clock().ahead_ms(START_MS) == 60_000
    assert asked(time).ahead_ms(START_MS) == 0
    assert asked(time).ahead_ms(START_MS + 5) == 5


@given(st.lists(st.tuples(st.booleans(), st.integers(-50_000, 100_000)), max_size=50))
def test_it_never_goes_back_and_never_runs_ahead(moves: list[tuple[bool, int]]) -> None:
    """Invariant: time never goes back, and never passes the latest wall time."""
    time = ManualTime()
    clock = time.clock()
    latest_wall_ms = last_ms = clock.now_ms()
    for is_step, move_ms in moves:
        (time.step_ms if is_step else time.pass_ms)(move_ms if is_step else abs(move_ms))
        now_ms = clock.now_ms()
        latest_wall_ms = max(latest_wall_ms, time.wall_now_ms)
        assert last_ms <= now_ms <= latest_wall_ms
        last_ms = now_ms


@given(
    st.integers(-200_000, 200_000),
    st.lists(st.tuples(st.sampled_from("psaz"), st.integers(-50_000, 100_000)), max_size=50),
)
def test_it_is_never_ahead_of_the_broker_by_more_than_a_step(
    lead_ms: int, moves: list[tuple[str, int]]
) -> None:
    """Invariant: time never goes back, and is at most `max_step` ahead of the broker's clock."""
    time = ManualTime()
    time.step_ms(lead_ms)
    clock = asked(time)
    last_ms = -1
    for what, move_ms in moves:
        match what:
            case "p":
                time.pass_ms(abs(move_ms))
            case "z":
                time.sleep_ms(abs(move_ms))
            case "s":
                time.step_ms(move_ms)
            case _:
                clock.set_broker_time(time.broker_time())
        now_ms = clock.now_ms()
        assert last_ms <= now_ms <= time.broker_now_ms + clock.max_step_ms
        last_ms = now_ms


def a_clock(time: ManualTime, max_step_ms: int = 5_000) -> Clock:
    clock = time.clock(max_step_ms)
    clock.now_ms()
    return clock


def asked(time: ManualTime) -> Clock:
    clock = time.clock()
    clock.set_broker_time(time.broker_time())
    return clock
