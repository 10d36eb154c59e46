"""Requests in a record's headers (docs/guide.md)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.body import delivery_of
from proxy.protocol.outcomes import REASONS, Rejection
from proxy.protocol.parsed import Cancel, Scheduled
from proxy.protocol.policy import Policy
from proxy.protocol.request_reader import MOST_USUAL_NAMES, RequestReader
from storage.store import Entry

TIMESTAMP_MS = 1_800_000_000_000
Headers = list[tuple[str, bytes | None]]


def read(
    *asked: tuple[str, bytes | None],
    target: bytes | None = b"orders",
    policy: Policy | None = None,
    timestamp_ms: int = TIMESTAMP_MS,
) -> Entry | Rejection:
    headers: Headers = [*([("timer-topic", target)] if target is not None else []), *asked]
    reader = RequestReader(policy or Policy())
    parsed = reader.read(headers, b"key", b"value", timestamp_ms, 0, 7)
    if isinstance(parsed, Rejection):
        return parsed
    assert isinstance(parsed, Scheduled), parsed
    return parsed.entry


def due_ms(*asked: tuple[str, bytes | None], **rest: int) -> object:
    found = read(*asked, **rest)  # type: ignore[arg-type]
    assert not isinstance(found, Rejection), found
    return found[0]


def code(*asked: tuple[str, bytes | None], **rest: object) -> str:
    found = read(*asked, **rest)  # type: ignore[arg-type]
    assert isinstance(found, Rejection), found
    assert found.code in REASONS
    assert len(found.detail) > 20
    return found.code


def test_a_record_without_a_time_fires_at_once() -> None:
    assert due_ms() == TIMESTAMP_MS


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        (b"1500", 1_500),
        (b"0", 0),
        (b"500ms", 500),
        (b"30s", 30_000),
        (b"5m", 300_000),
        (b"2h", 7_200_000),
        (b"7d", 604_800_000),
        (b"PT30S", 30_000),
        (b"P1DT2H", 93_600_000),
        (b"PT0.0001S", 1),
    ],
)
def test_a_delay_counts_from_the_record_s_timestamp(text: bytes, delay_ms: int) -> None:
    assert due_ms(("timer-delay", text)) == TIMESTAMP_MS + delay_ms


@pytest.mark.parametrize(
    "text",
    [b"", b"-5", b"5x", b"1.5s", b"PT", b"P1Y", b"soon", b"\xff\xfe", b"9" * 400, b" 5s", None],
)
def test_an_unreadable_delay_is_refused(text: bytes | None) -> None:
    assert code(("timer-delay", text)) == "time-unreadable"


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        (b"1800000000123", 1_800_000_000_123),
        (b"2027-01-15T08:00:00Z", 1_800_000_000_000),
        (b"2027-01-15T09:00:00.5+01:00", 1_800_000_000_500),
        (b"2027-01-15t08:00:00.0001z", 1_800_000_000_001),
        (b"1000", 1_000),
    ],
)
def test_an_absolute_time_is_epoch_ms_or_rfc_3339(text: bytes, expected_ms: int) -> None:
    assert due_ms(("timer-deliver-at", text)) == expected_ms


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"tomorrow",
        b"2027-01-15T08:00:00",
        b"2027-13-01T08:00:00Z",
        b"-1",
        b"1e9",
        b"\x80",
        None,
    ],
)
def test_an_unreadable_absolute_time_is_refused(text: bytes | None) -> None:
    assert code(("timer-deliver-at", text)) == "time-unreadable"


@pytest.mark.parametrize(
    ("level", "delay_ms"), [(b"0", 0), (b"1", 1_000), (b"18", 7_200_000), (b"99", 7_200_000)]
)
def test_a_level_is_looked_up_and_clamped(level: bytes, delay_ms: int) -> None:
    assert due_ms(("timer-level", level)) == TIMESTAMP_MS + delay_ms


@pytest.mark.parametrize("level", [b"", b"-1", b"high", b"1.5", b"\xff", None])
def test_an_unknown_level_is_refused(level: bytes | None) -> None:
    assert code(("timer-level", level)) == "level-unknown"


def test_absolute_beats_relative_beats_level() -> None:
    level, delay = ("timer-level", b"2"), ("timer-delay", b"3s")
    assert due_ms(level, delay) == TIMESTAMP_MS + 3_000
    assert due_ms(level, delay, ("timer-deliver-at", b"1800000000001")) == 1_800_000_000_001


def test_of_a_repeated_header_the_last_counts() -> None:
    assert due_ms(("timer-delay", b"junk"), ("timer-delay", b"1s")) == TIMESTAMP_MS + 1_000


def test_a_due_beyond_max_delay_is_refused() -> None:
    policy = Policy(max_delay_ms=1_000)
    assert code(("timer-delay", b"1001"), policy=policy) == "delay-too-long"
    assert due_ms(("timer-delay", b"1000")) == TIMESTAMP_MS + 1_000
    far = str(TIMESTAMP_MS + 1_001).encode()
    assert code(("timer-deliver-at", far), policy=policy) == "delay-too-long"


def test_a_record_without_timestamp_takes_only_an_absolute_time() -> None:
    assert code(("timer-delay", b"1s"), timestamp_ms=-1) == "time-unreadable"
    assert due_ms(("timer-deliver-at", b"5"), timestamp_ms=-1) == 5
    assert due_ms(timestamp_ms=-1) == 0


def test_a_missing_target_is_refused_and_a_misspelt_one_named() -> None:
    assert code(target=None) == "target-missing"
    found = read(("Timer-Topic", b"orders"), target=None)
    assert isinstance(found, Rejection)
    assert "lower case" in found.detail


@pytest.mark.parametrize("target", [b"", b"a b", b".", b"..", b"x" * 250, b"\xff\xfe", b"a/b"])
def test_an_illegal_topic_name_is_refused(target: bytes) -> None:
    assert code(target=target) == "target-illegal"


@pytest.mark.parametrize(
    "target",
    [
        b"timer.ingress",
        b"timer.dead-letters",
        b"timer.outcomes",
        b"timer.settings",
        b"__consumer_offsets",
        b"__transaction_state",
    ],
)
def test_the_proxy_s_own_and_the_broker_s_topics_are_always_refused(target: bytes) -> None:
    assert code(target=target, policy=Policy(allow=("*",))) == "target-refused"


def test_deny_beats_allow() -> None:
    policy = Policy(allow=("shop.*",), deny=("shop.secret",))
    assert code(target=b"shop.secret", policy=policy) == "target-refused"
    assert code(target=b"other", policy=policy) == "target-refused"
    assert not isinstance(read(target=b"shop.orders", policy=policy), Rejection)


@pytest.mark.parametrize("text", [b"", b"-1", b"one", b"2147483648", b"9" * 99, b"\xb2", None])
def test_an_unreadable_partition_is_refused(text: bytes | None) -> None:
    assert code(("timer-partition", text)) == "partition-bad"


def test_key_and_partition_of_the_target_can_be_asked_for() -> None:
    found = read(("timer-key", b"other"), ("timer-partition", b"3"))
    assert not isinstance(found, Rejection)
    assert delivery_of(found)[3:5] == (3, b"other")


def test_a_misspelt_request_is_refused_with_the_nearest_name_and_never_fires_early() -> None:
    found = read(("timer-dealy", b"30s"))
    assert isinstance(found, Rejection)
    assert found.code == "header-unknown"
    assert "timer-delay" in found.detail


def test_stamps_of_an_earlier_delivery_ask_for_nothing() -> None:
    assert due_ms(("timer-origin", b"timer.ingress/0/1"), ("timer-due", b"5")) == TIMESTAMP_MS


def test_answers_are_the_same_from_a_full_cache() -> None:
    reader = RequestReader(Policy())
    for number in range(25_000):
        headers: Headers = [("timer-topic", b"t%d" % number), ("timer-delay", b"%d" % number)]
        parsed = reader.read(headers, None, None, TIMESTAMP_MS, 0, number)
        assert isinstance(parsed, Scheduled)
        assert parsed.entry[:3] == (TIMESTAMP_MS + number, number, f"t{number}")


@pytest.mark.parametrize("names_a_record", [1, 3 * MOST_USUAL_NAMES])
def test_headers_met_before_change_no_answer_and_few_are_remembered(names_a_record: int) -> None:
    reader = RequestReader(Policy())
    for number in range(3 * MOST_USUAL_NAMES // names_a_record):
        own: Headers = [(f"trace-{number}-{place}", b"x") for place in range(names_a_record)]
        asked: Headers = [("timer-topic", b"orders"), *own]
        for _ in range(2):
            assert not isinstance(reader.read(asked, None, None, 1, 0, number), Rejection)
        misspelt = reader.read([*asked, ("timer-dealy", b"5s")], None, None, 1, 0, number)
        assert isinstance(misspelt, Rejection)
        cancel = reader.read([*asked, ("timer-cancel", b"id")], None, None, 1, 0, number)
        assert cancel == Cancel(b"id")
    assert len(reader._usual) <= MOST_USUAL_NAMES


TIMES = st.sampled_from(["timer-deliver-at", "timer-delay", "timer-level"])
TEXTS = st.sampled_from(
    [None, b"", b"3", b"30s", b"soon", b"-1", b"1800000000500", b"01800000000500", b"9" * 30]
)
TARGETS = st.tuples(st.just("timer-topic"), st.sampled_from([b"orders"] * 4 + [None, b"a b"]))
OTHERS = st.tuples(st.sampled_from(["timer-id", "timer-cancel", "trace"]), TEXTS)


@given(
    st.tuples(TARGETS, st.tuples(TIMES, TEXTS) | OTHERS).flatmap(st.permutations)
    | st.lists(TARGETS | st.tuples(TIMES, TEXTS) | OTHERS, max_size=3),
    st.sampled_from([-1, 0, TIMESTAMP_MS, 2**62]),
    st.sampled_from([None, 20_000]),
)
def test_a_header_of_its_own_changes_nothing_of_what_a_record_asks_for(
    headers: Headers, timestamp_ms: int, roll_after_ms: int | None
) -> None:
    """Invariant: the fast path gives the same request and keeps every header."""
    reader = RequestReader(Policy(roll_after_ms=roll_after_ms))
    own = ("own", b"1")
    short = reader.read(headers, b"key", b"value", timestamp_ms, 0, 7)
    long = reader.read([*headers, own], b"key", b"value", timestamp_ms, 0, 7)
    if not isinstance(short, Scheduled) or not isinstance(long, Scheduled):
        assert short == long
        return
    assert short._replace(entry=long.entry) == long
    delivery = delivery_of(short.entry)
    assert delivery.headers == headers
    assert delivery._replace(headers=[*headers, own]) == delivery_of(long.entry)


def test_a_point_in_time_in_milliseconds_is_not_kept_beside_the_due() -> None:
    asked = ("timer-deliver-at", b"1800000000500")
    entry = read(asked)
    assert not isinstance(entry, Rejection)
    assert entry[3].endswith(b"value\xc0")
    assert delivery_of(entry).headers == [("timer-topic", b"orders"), asked]


@pytest.mark.parametrize("when", ["timer-deliver-at", "timer-delay", "timer-level"])
def test_the_headers_of_a_record_with_a_target_and_a_time_alone_are_not_kept(when: str) -> None:
    entry = read((when, b"3"))
    assert not isinstance(entry, Rejection)
    assert b"timer-" not in entry[3]
    assert delivery_of(entry).headers == [("timer-topic", b"orders"), (when, b"3")]
