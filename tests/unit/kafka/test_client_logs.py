"""Repeated log messages of the Kafka client are logged rarely, with a count."""

from proxy.kafka.client_settings import LOG_EVERY_S, MOST_KINDS, RepeatFilter

REFUSED = "FAIL [thrd:127.0.0.1:9092/1]: Connect to 127.0.0.1:9092 failed (after {}ms in state)"


def test_same_complaint_is_logged_once_in_ten_seconds_with_how_many_were_left_out() -> None:
    lines = RepeatFilter()
    assert lines.left_out(REFUSED.format(0), 0.0) == 0
    assert [lines.left_out(REFUSED.format(n), n / 10) for n in range(1, 40)] == [None] * 39
    assert lines.left_out(REFUSED.format(7), LOG_EVERY_S) == 39
    assert lines.left_out(REFUSED.format(8), 2 * LOG_EVERY_S) == 0


def test_another_complaint_is_logged_at_once() -> None:
    lines = RepeatFilter()
    assert lines.left_out(REFUSED.format(0), 0.0) == 0
    assert lines.left_out("TERMINATE", 0.1) == 0


def test_memory_of_complaints_has_a_bound_and_the_oldest_is_forgotten() -> None:
    lines = RepeatFilter()
    for number in range(MOST_KINDS + 1):
        assert lines.left_out("x" * number, 1.0) == 0
    assert lines.left_out("x" * MOST_KINDS, 1.1) is None
    assert lines.left_out("", 1.1) == 0
