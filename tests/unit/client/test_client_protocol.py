"""The client's part of the protocol equals the proxy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_delay import protocol
from proxy.config.settings import TopicSettings
from proxy.protocol import headers, policy, times

ELSEWHERE = {"TIMER_ATTEMPT": "ATTEMPT", "ATTEMPT": "RETRY_ATTEMPT", "EXCEPTION": "RETRY_EXCEPTION"}
OF_THE_CLIENT_ALONE = {"SIGNATURE", "INGRESS", "ID_BYTES", "MAX_DIGITS", "TOPIC_NAME_RULE"}
NAMES = sorted(name for name in vars(protocol) if name.isupper() and name[0] != "_")
texts = st.text() | st.from_regex(r"\A(P?[0-9]{1,16}(ms|[smhdSMHDW])?|PT[0-9.]{1,9}S)\Z")
instants = st.text() | st.from_regex(
    r"\A[0-9]{4}-[01][0-9]-[0-3][0-9][Tt ][0-2][0-9]:[0-5][0-9]:[0-6][0-9](\.[0-9]{1,9})?"
    r"([Zz]|[+-][0-2][0-9]:[0-5][0-9])\Z"
)


def result(call: Callable[[str], Any], text: str) -> Any:
    try:
        return call(text)
    except ValueError:
        return ValueError


@pytest.mark.parametrize("name", sorted(set(NAMES) - OF_THE_CLIENT_ALONE))
def test_each_header_has_the_name_that_the_proxy_reads(name: str) -> None:
    assert getattr(protocol, name) == getattr(headers, ELSEWHERE.get(name, name))


def test_limits_and_the_ingress_are_the_proxy_s() -> None:
    assert protocol.MAX_DIGITS == times.MAX_DIGITS
    assert protocol.TOPIC_NAME_RULE == policy.TOPIC_NAME_RULE
    assert TopicSettings().ingress == protocol.INGRESS


@given(texts)
@example("P1DT2H3M4.5S")
@example("2h")
def test_any_delay_is_read_as_the_proxy_reads_it(text: str) -> None:
    """Invariant: both give the same milliseconds or refuse the text."""
    assert result(protocol.parse_delay_ms, text) == result(times.parse_delay_ms, text)


@given(instants)
@example("2026-01-01T10:00:00.250+01:00")
def test_any_instant_is_read_as_the_proxy_reads_it(text: str) -> None:
    """Invariant: both give the same milliseconds or refuse the text."""
    assert result(protocol.parse_instant_ms, text) == result(times.parse_instant_ms, text)


@given(st.lists(texts, max_size=5).map(" ".join))
@example("1s 5s 1m")
def test_any_table_of_delays_is_read_as_the_proxy_reads_it(text: str) -> None:
    """Invariant: both give the same table or refuse the text."""
    assert result(protocol.parse_levels, text) == result(times.parse_levels, text)


@given(st.text() | st.from_regex(r"\A[a-zA-Z0-9._-]{1,255}\Z"))
@example("..")
def test_any_topic_is_legal_for_both_or_for_none(name: str) -> None:
    """Invariant: both take the name or refuse it."""
    assert protocol.is_legal_topic(name) == policy.is_legal_topic(name)
