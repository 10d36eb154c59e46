"""Times of the client, read by the proxy from the header."""

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_delay.errors import RequestRefused
from kafka_delay.request import EPOCH, time_headers
from proxy.protocol.times import parse_delay_ms, parse_instant_ms

INDIA = timezone(timedelta(hours=5, minutes=30))
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOON_MS = 1_795_262_400_000
FAR_MS = 4_102_444_800_000
"""A time in the year 2100: a number in the past is refused."""


def header(**asked: Any) -> tuple[str, bytes]:
    ((name, value),) = time_headers(**{"delay": None, "deliver_at": None, "level": None, **asked})
    return name, value or b""


def refusal(**asked: Any) -> str:
    with pytest.raises(RequestRefused) as raised:
        header(**asked)
    return str(raised.value)


@pytest.mark.parametrize(
    ("delay", "text"),
    [
        (timedelta(seconds=30), b"30000"),
        (timedelta(microseconds=1), b"1"),
        (timedelta(0), b"0"),
        ("30s", b"30s"),
        ("PT30S", b"PT30S"),
    ],
)
def test_a_delay_may_be_a_timedelta_or_text(delay: Any, text: bytes) -> None:
    assert header(delay=delay) == ("timer-delay", text)


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (NOON, b"%d" % NOON_MS),
        (NOON.astimezone(INDIA), b"%d" % NOON_MS),
        (NOON + timedelta(microseconds=1), b"%d" % (NOON_MS + 1)),
        (FAR_MS, b"%d" % FAR_MS),
        (str(FAR_MS), b"%d" % FAR_MS),
        ("2026-11-21T12:00:00Z", b"2026-11-21T12:00:00Z"),
    ],
)
def test_an_instant_may_be_a_datetime_epoch_milliseconds_or_text(moment: Any, text: bytes) -> None:
    assert header(deliver_at=moment) == ("timer-deliver-at", text)


def test_a_level_is_sent_as_its_number() -> None:
    assert header(level=0) == ("timer-level", b"0")
    assert header(level=99) == ("timer-level", b"99")


def test_without_a_time_no_header_asks_for_one() -> None:
    assert time_headers(None, None, None) == []


@pytest.mark.parametrize("delay", [30, 0, -1, 1.5, 10**15, "30", "1500", "-1", "1.5"])
def test_a_number_without_a_unit_is_refused_and_told_how_to_write_it(delay: Any) -> None:
    said = refusal(delay=delay)
    assert "a number without a unit" in said
    assert f"'{delay}s' for seconds or '{delay}ms' for milliseconds" in said


@pytest.mark.parametrize("delay", [timedelta(seconds=-1), True, [30]])
def test_a_delay_that_is_negative_or_no_length_of_time_is_refused(delay: Any) -> None:
    assert refusal(delay=delay).startswith("delay is ")


@pytest.mark.parametrize("text", ["", "soon", "-5s", "30 s", "1.5h", "P1M", "0x1F"])
def test_a_delay_in_words_the_proxy_cannot_read_is_refused_with_examples(text: str) -> None:
    assert "write a number with a unit (500ms 30s" in refusal(delay=text)


def test_a_datetime_without_a_zone_is_refused_and_told_how_to_get_one() -> None:
    told = refusal(deliver_at=datetime(2026, 11, 21, 12, 0))  # noqa: DTZ001
    assert "without a zone" in told
    assert "astimezone()" in told


@pytest.mark.parametrize(
    "moment", [-1, False, 1.5, datetime(1969, 12, 31, tzinfo=UTC), "1969-12-31T00:00:00Z"]
)
def test_an_instant_before_the_epoch_or_of_another_kind_is_refused(moment: Any) -> None:
    assert "after 1970" in refusal(deliver_at=moment)


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-11-21T12:00:00", "2026-11-21"])
def test_an_instant_in_words_needs_a_zone(text: str) -> None:
    assert "RFC 3339 with a zone" in refusal(deliver_at=text)


@pytest.mark.parametrize("moment", [1_767_258_000, "1767258000", 0, 86_400_000])
def test_a_number_that_lies_more_than_a_year_back_is_refused_for_it_may_mean_seconds(
    moment: Any,
) -> None:
    said = refusal(deliver_at=moment)
    assert "more than a year ago" in said
    assert "If it means seconds, multiply it by 1000" in said
    assert "1970-01-" in said


@pytest.mark.parametrize("moment", [datetime(1999, 1, 1, tzinfo=UTC), "1999-01-01T00:00:00Z"])
def test_a_time_in_the_past_whose_unit_is_certain_is_taken(moment: Any) -> None:
    assert header(deliver_at=moment)[0] == "timer-deliver-at"


def test_a_number_that_lies_a_little_back_is_taken() -> None:
    """A program that was away sends its late requests."""
    a_day_ago_ms = int(time.time() * 1000) - 86_400_000
    assert header(deliver_at=a_day_ago_ms)[1] == b"%d" % a_day_ago_ms


@pytest.mark.parametrize("level", [-1, True, "3", 1.0])
def test_a_level_is_a_whole_number_from_nought(level: Any) -> None:
    assert "a delay level from 0" in refusal(level=level)


def test_two_times_at_once_are_refused_by_name() -> None:
    assert "delay and level contradict each other" in refusal(delay="1s", level=1)


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=300_000)))
def test_any_timedelta_is_read_as_no_shorter_and_less_than_a_millisecond_longer(
    delay: timedelta,
) -> None:
    """Invariant: the proxy reads any timedelta rounded up to the millisecond."""
    read_ms = parse_delay_ms(header(delay=delay)[1].decode())
    assert timedelta(0) <= timedelta(milliseconds=read_ms) - delay < timedelta(milliseconds=1)


@given(st.datetimes(min_value=datetime(1970, 1, 2), timezones=st.timezones()))  # noqa: DTZ001
def test_any_aware_datetime_is_read_as_no_earlier_and_less_than_a_millisecond_later(
    moment: datetime,
) -> None:
    """Invariant: the proxy reads any aware datetime rounded up to the millisecond."""
    read = EPOCH + timedelta(milliseconds=parse_instant_ms(header(deliver_at=moment)[1].decode()))
    assert timedelta(0) <= read - moment < timedelta(milliseconds=1)
