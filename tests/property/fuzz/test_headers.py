"""Random header bytes get an answer in range, never an exception.

Cases found once, and likely cases, are kept as examples.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.protocol.aliases import ALIASES
from proxy.protocol.body import delivery_of
from proxy.protocol.headers import KNOWN, UNREADABLE
from proxy.protocol.outcomes import REASONS, Rejection
from proxy.protocol.parsed import ParsedRecord, Prepare, Scheduled
from proxy.protocol.policy import Policy
from proxy.protocol.request_reader import RequestReader
from tests.support.any_foreign_requests import FOREIGN
from tests.support.any_requests import OWN

MOST_MS = 2**63 - 1
LARGE_BYTES = 2**20
LONGEST_DETAIL = 1_000
SLOWEST = timedelta(seconds=1)
"""Time for two parses of a record of 1 MB or more on a busy machine."""
Value = bytes | None
Headers = list[tuple[str, Value]]

plain, knowing = RequestReader(Policy()), RequestReader(Policy(aliases=tuple(ALIASES)))
meaningful = [value for values in OWN.values() for value in values if value]
values = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.sampled_from(meaningful),
    st.builds(lambda raw, more: raw + more, st.sampled_from(meaningful), st.binary(max_size=4)),
    st.builds(
        lambda raw, times: raw * times, st.binary(min_size=1, max_size=3), st.integers(0, 500)
    ),
    st.integers(-(2**70), 2**70).map(lambda number: b"%d" % number),
)
names = st.one_of(
    st.sampled_from(sorted(KNOWN | {UNREADABLE, "timer-", "timer-\x00", "TIMER-ID"})),
    st.sampled_from(sorted(FOREIGN)),
    st.text(max_size=30).map(lambda text: "timer-" + text),
    st.text(max_size=300),
)
headers = st.lists(st.tuples(names, values), max_size=12)
timestamps = st.one_of(st.integers(-1, MOST_MS), st.sampled_from([-1, 0, MOST_MS, -MOST_MS - 1]))


@settings(deadline=SLOWEST)
@given(headers, st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20), timestamps)
@example([("timer-topic", b"t"), ("timer-delay", b"9" * 18)], None, None, MOST_MS)
@example([("timer-topic", b"t"), ("timer-delay", b"1")], None, None, MOST_MS)
@example([("timer-topic", b"t"), ("timer-delay", b"1")], None, None, -1)
@example([("timer-topic", b"t"), ("timer-delay", b"1" * LARGE_BYTES)], None, None, 0)
@example([("timer-topic", b"\xff" * LARGE_BYTES)], None, None, 0)
@example([("timer-topic", b"orders\x00")], None, None, 0)
@example([("timer-topic", "\U0001f40c".encode() * 300)], b"", b"", 0)
@example([("timer-" + "x" * LARGE_BYTES, b"")], None, None, 0)
@example([("timer-\x00", None), (UNREADABLE, b"")], None, None, 0)
@example([("timer-hop-from", b"9" * 40), ("timer-first-origin", b"x")], None, None, 0)
@example([("timer-transaction", b"expire"), ("timer-id", b"\x00")], None, None, MOST_MS)
@example([("timer-retry-group", b"g" * 250), ("timer-attempt", b"9" * 999)], None, None, 0)
def test_any_headers_have_an_answer(
    headers: Headers, key: Value, value: Value, timestamp_ms: int
) -> None:
    """Invariant: no headers raise. Refusals have a known reason, and times fit 64 bits."""
    for reader in (plain, knowing):
        judge(reader.read(list(headers), key, value, timestamp_ms, 0, 7), key, value)


def judge(parsed: ParsedRecord, key: Value, value: Value) -> None:
    if isinstance(parsed, Rejection):
        assert parsed.code in REASONS
        assert parsed.code != "defect", parsed.detail
        assert parsed.detail
        assert len(parsed.detail) <= LONGEST_DETAIL
    if isinstance(parsed, Scheduled | Prepare):
        assert all(0 <= moment <= MOST_MS for moment in _moments(parsed))
        delivery = delivery_of(parsed.entry)
        assert (delivery.offset, delivery.value) == (7, value)
        assert delivery.target.isascii()
        assert len(delivery.target) <= 249


def _moments(parsed: Any) -> list[int]:
    checks = [parsed.first_check_ms, parsed.interval_ms] if isinstance(parsed, Prepare) else []
    return [parsed.due_ms, parsed.entry[0], *checks]
