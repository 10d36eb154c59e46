"""The logical clock never goes back, and believes no jump without confirmation."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.clock import CONFIRMED_AFTER_MS
from tests.support.simulation.manual_clock import START_MS, ManualTime


def test_it_follows_the_wall_clock() -> None:
    time = ManualTime()
    clock = time.clock()
    time.pass_ms(1_234)
    assert clock.now_ms() == START_MS + 1_234


def test_it_stands_still_while_the_wall_clock_is_behind() -> None:
    time = ManualTime()
    clock = time.clock()
    time.step_ms(-10_000)
    assert clock.now_ms() == START_MS
    assert clock.offset_ms == -10_000
    time.pass_ms(10_001)
    assert clock.now_ms() == START_MS + 1


def test_a_jump_is_held_at_the_pace_of_the_monotonic_clock() -> None:
    time = ManualTime()
    clock = time.clock(max_step_ms=5_000)
    time.step_ms(3_600_000)
    time.pass_ms(100)
    assert clock.now_ms() == START_MS + 100
    assert clock.is_held


def test_a_small_step_is_taken_as_it_is() -> None:
    time = ManualTime()
    clock = time.clock(max_step_ms=5_000)
    time.step_ms(5_000)
    assert clock.now_ms() == START_MS + 5_000
    assert not clock.is_held


def test_a_jump_that_stays_is_believed_after_a_while() -> None:
    time = ManualTime()
    clock = time.clock()
    time.step_ms(3_600_000)
    clock.now_ms()
    time.pass_ms(CONFIRMED_AFTER_MS)
    assert clock.now_ms() == START_MS + 3_600_000 + CONFIRMED_AFTER_MS


def test_the_broker_s_time_confirms_a_jump() -> None:
    time = ManualTime()
    clock = time.clock()
    time.step_ms(3_600_000)
    assert clock.now_ms() == START_MS
    clock.observe_broker(START_MS + 3_599_000)
    assert clock.now_ms() == START_MS + 3_600_000


def test_a_jump_taken_back_leaves_no_trace() -> None:
    time = ManualTime()
    clock = time.clock()
    time.step_ms(3_600_000)
    clock.now_ms()
    time.step_ms(-3_600_000)
    time.pass_ms(50)
    assert clock.now_ms() == START_MS + 50
    assert not clock.is_held


@given(st.lists(st.tuples(st.booleans(), st.integers(-50_000, 100_000)), max_size=50))
def test_it_never_goes_back_and_never_runs_ahead(moves: list[tuple[bool, int]]) -> None:
    """Whatever the wall clock does, time never goes back, nor beyond the latest wall time seen."""
    time = ManualTime()
    clock = time.clock()
    latest_wall_ms = last_ms = clock.now_ms()
    for is_step, move_ms in moves:
        (time.step_ms if is_step else time.pass_ms)(move_ms if is_step else abs(move_ms))
        now_ms = clock.now_ms()
        latest_wall_ms = max(latest_wall_ms, time.wall_now_ms)
        assert last_ms <= now_ms <= latest_wall_ms
        last_ms = now_ms
