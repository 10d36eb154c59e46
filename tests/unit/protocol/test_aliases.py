"""Rules of all header aliases: own headers win, contradictions, unchanged bytes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.protocol.aliases import ALIASES, KNOWN_ALIASES, Translator
from proxy.protocol.body import Headers
from proxy.protocol.outcomes import REASONS, Rejection
from proxy.protocol.parsed import Scheduled
from proxy.protocol.policy import Policy
from proxy.protocol.request_reader import RequestReader

ALL = Translator(KNOWN_ALIASES)
KEY = b"id-1"
ETF1: Headers = [("scheduler-epoch", b"1893456000"), ("scheduler-target-topic", b"videos")]


def added(headers: Headers, *, value: bytes | None = b"body", key: bytes | None = KEY) -> Headers:
    answer = ALL.translate(headers, key, value)
    assert not isinstance(answer, Rejection), answer
    read, *rest = answer
    assert rest == [key, value]
    assert read[: len(headers)] == headers
    return read[len(headers) :]


def refusal(headers: Headers, *, value: bytes | None = b"body") -> Rejection:
    answer = ALL.translate(headers, KEY, value)
    assert isinstance(answer, Rejection), answer
    assert answer.code in REASONS
    return answer


@pytest.mark.parametrize(
    "own", [("timer-deliver-at", b"1"), ("timer-delay", b"5s"), ("timer-level", b"3")]
)
def test_an_own_time_beats_every_foreign_one_and_the_rest_still_counts(
    own: tuple[str, bytes],
) -> None:
    assert dict(added([own, *ETF1])).keys() == {"timer-topic", "timer-key", "timer-id"}


def test_an_unreadable_foreign_time_beside_an_own_one_is_not_looked_at() -> None:
    assert added([("timer-delay", b"5s"), ("x-delay", b"soon")]) == []


def test_an_own_target_beats_a_foreign_one_even_an_illegal_one() -> None:
    headers = [("timer-topic", b"orders"), ETF1[0], ("scheduler-target-topic", b"no topic!")]
    assert "timer-topic" not in dict(added(headers))


def test_an_own_id_key_and_partition_beat_foreign_ones() -> None:
    headers: Headers = [
        ("schedule_source_type", b"schedule"),
        ("schedule_target_epoch", b"5"),
        ("schedule_target_topic", b"events"),
        ("schedule_target_partition", b"many"),
        ("schedule_target_partition_key", b"other"),
        ("timer-id", b"mine"),
        ("timer-key", None),
        ("timer-partition", b"3"),
    ]
    assert dict(added(headers, key=None)).keys() == {"timer-topic", "timer-deliver-at"}


def test_an_own_cancel_leaves_everything_else_unread() -> None:
    headers: Headers = [("timer-cancel", b"x"), ("x-delay", b"soon"), ("Nats-Schedule", b"@daily")]
    assert added(headers) == []


def test_a_retry_group_decides_time_and_target() -> None:
    headers: Headers = [("timer-retry-group", b"g"), ("cesium-delay-ms", b"5"), *ETF1]
    assert dict(added(headers)).keys() == {"timer-key", "timer-id"}


def test_the_last_value_of_a_repeated_header_counts() -> None:
    assert added([("x-delay", b"1"), ("x-delay", b"2")]) == [("timer-delay", b"2")]


def test_header_names_count_as_their_projects_write_them() -> None:
    assert added([("nats-schedule", b"@daily"), ("X-Delay", b"soon"), ("delay", b"x")]) == []


def test_a_stamp_of_an_earlier_delivery_is_no_own_request() -> None:
    headers: Headers = [("timer-origin", b"timer.ingress/0/7")]
    assert added(headers, value=None) == [("timer-cancel", KEY)]


def test_aliases_that_agree_are_one_request() -> None:
    agreeing: Headers = [("x-delay", b"5000"), ("cesium-delay-ms", b"5000")]
    assert added([*agreeing, ("TIMER_DELAY_SEC", b"5")]) == [("timer-delay", b"5000")]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ([("x-delay", b"5000"), ("cesium-delay-ms", b"5001")], "time-unreadable"),
        ([("x-delay", b"5000"), ("cesium-deliver-at", b"5000")], "time-unreadable"),
        ([("DELAY", b"2"), ("x-delay", b"5000")], "time-unreadable"),
        (
            [
                *ETF1,
                ("Nats-Schedule", b"@at 2030-01-01T00:00:00Z"),
                ("Nats-Schedule-Target", b"orders"),
            ],
            "target-illegal",
        ),
        ([("TIMER_DEL_UNIQKEY", b"AC11"), ("x-delay", b"5000")], "header-unreadable"),
        ([("x-delay", b"5000"), ("TIMER_DEL_UNIQKEY", b"AC11")], "header-unreadable"),
    ],
)
def test_aliases_that_contradict_each_other_are_refused_by_name(
    headers: Headers, code: str
) -> None:
    answer = refusal(headers)
    assert answer.code == code
    named = [name for name, _ in headers if f"{name} asks for" in answer.detail]
    assert len(named) == 2, answer.detail


def test_a_number_of_milliseconds_under_a_name_for_seconds_is_refused_not_guessed() -> None:
    answer = refusal([("scheduler-epoch", b"1767258000000"), ETF1[1]])
    assert answer.code == "time-unreadable"
    assert "scheduler-epoch is 1767258000000 and counts seconds" in answer.detail


def test_an_alias_that_is_not_enabled_is_not_read() -> None:
    headers: Headers = [("x-delay", b"soon"), *ETF1]
    answer = Translator(("cesium",)).translate(headers, KEY, None)
    assert isinstance(answer, tuple)
    assert answer[0] is headers


def test_only_etf1_takes_a_bare_null_value_for_a_cancel() -> None:
    others = tuple(name for name in KNOWN_ALIASES if name != "etf1")
    assert Translator(others).translate([], KEY, None) == ([], KEY, None)


def test_a_null_value_in_another_alias_s_words_is_no_deletion() -> None:
    assert added([("cesium-delay-ms", b"5")], value=None) == [("timer-delay", b"5")]


def test_the_order_in_which_aliases_are_enabled_means_nothing() -> None:
    headers: Headers = [("x-delay", b"1"), ("cesium-delay-ms", b"2"), *ETF1]
    backwards = Translator(KNOWN_ALIASES[::-1])
    assert backwards.translate(headers, KEY, b"") == ALL.translate(headers, KEY, b"")


def test_an_unknown_alias_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ValueError, match=r"'rabbit' is no header alias: did you mean rabbitmq\?"):
        Translator(("cesium", "rabbit"))


def test_no_alias_reads_the_header_of_another() -> None:
    headers = [name for alias in ALIASES.values() for name in alias.headers]
    assert len(headers) == len(set(headers))
    assert not [name for name in headers if name.startswith("timer-")]


def test_what_is_added_is_what_the_proxy_s_own_reader_takes() -> None:
    headers: Headers = [
        ("timer-topic", b"orders"),
        ("retry_topic-backoff-timestamp", (1_767_258_000_123).to_bytes(6, "big")),
    ]
    answer = ALL.translate(headers, KEY, b"body")
    assert isinstance(answer, tuple)
    parsed = RequestReader(Policy()).read(*answer, 1_767_258_000_000, 0, 7)
    assert isinstance(parsed, Scheduled)
    assert parsed.entry[0] == 1_767_258_000_123


FOREIGN = sorted({name for alias in ALIASES.values() for name in alias.headers})
OWN = [
    "timer-topic",
    "timer-deliver-at",
    "timer-delay",
    "timer-level",
    "timer-id",
    "timer-cancel",
    "timer-key",
    "timer-partition",
    "timer-retry-group",
    "timer-attempt",
    "timer-transaction",
    "timer-origin",
]
VALUES = st.one_of(
    st.none(),
    st.binary(max_size=24),
    st.integers(-(10**20), 10**20).map(lambda number: b"%d" % number),
    st.sampled_from(
        [b"schedule", b"cancel", b"1.0.0", b"orders", b"@at 2030-01-01T00:00:00Z", b"purge"]
    ),
)
HEADERS = st.lists(st.tuples(st.sampled_from(FOREIGN) | st.sampled_from(OWN), VALUES), max_size=8)
PLAIN = st.lists(st.tuples(st.text(max_size=12).filter(lambda t: t not in FOREIGN), VALUES))
BYTES = st.none() | st.binary(max_size=8)
CHOICES = st.lists(st.sampled_from(KNOWN_ALIASES), unique=True).map(tuple)


@given(HEADERS | PLAIN, BYTES, BYTES, CHOICES)
@example([("DELAY", b"9" * 5000)], None, None, KNOWN_ALIASES)
@example([("Nats-Schedule", b"@at 0001-01-01T00:00:00+23:59")], None, b"", KNOWN_ALIASES)
def test_translate_never_raises_and_refuses_with_a_documented_code(
    headers: Headers, key: bytes | None, value: bytes | None, names: tuple[str, ...]
) -> None:
    """Invariant: any record is translated, or refused with a code of REASONS."""
    answer = Translator(names).translate(headers, key, value)
    if isinstance(answer, Rejection):
        assert answer.code in REASONS
        assert len(answer.detail) < 400
    else:
        assert answer[0][: len(headers)] == headers
        assert answer[1:] == (key, value)


@given(PLAIN, BYTES, st.binary(max_size=8), CHOICES)
def test_a_record_without_foreign_headers_comes_back_as_the_same_object(
    headers: Headers, key: bytes | None, value: bytes, names: tuple[str, ...]
) -> None:
    """Invariant: a record without foreign headers is returned as the same object."""
    answer = Translator(names).translate(headers, key, value)
    assert isinstance(answer, tuple)
    assert answer[0] is headers


@given(HEADERS, BYTES, BYTES, CHOICES)
def test_translating_twice_is_translating_once(
    headers: Headers, key: bytes | None, value: bytes | None, names: tuple[str, ...]
) -> None:
    """Invariant: a translated record is not translated further."""
    translator = Translator(names)
    once = translator.translate(headers, key, value)
    if not isinstance(once, Rejection):
        again = translator.translate(*once)
        assert isinstance(again, tuple)
        assert again[0] is once[0]


@given(HEADERS, BYTES, BYTES, CHOICES)
def test_nothing_is_added_that_the_record_said_itself(
    headers: Headers, key: bytes | None, value: bytes | None, names: tuple[str, ...]
) -> None:
    """Invariant: a translation adds no name twice and no second time header."""
    answer = Translator(names).translate(headers, key, value)
    if not isinstance(answer, Rejection):
        before = {name for name, _ in headers}
        new = [name for name, _ in answer[0][len(headers) :]]
        times = {"timer-deliver-at", "timer-delay", "timer-level"}
        assert len(new) == len(set(new))
        assert not before & set(new)
        assert len(times & set(new)) + bool(times & before) <= 1
