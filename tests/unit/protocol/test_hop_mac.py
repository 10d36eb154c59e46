"""The MAC of the proxy's ingress records is valid for one record at one place only."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.protocol.body import Headers
from proxy.protocol.proofs import HopAuthenticator, HopKey

BY = HopAuthenticator(HopKey(b"k" * 32), "topic-id")
HEADERS: Headers = [("timer-hop-from", b"3"), ("trace", None), ("", b"\x00\xff")]
BYTES = st.none() | st.binary(max_size=5)
ANY_HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=4)
RECORDS = st.tuples(st.integers(0, 2), BYTES, BYTES, ANY_HEADERS)


def test_what_was_signed_is_its_own() -> None:
    signed = BY.signed(1, b"key", b"value", HEADERS)
    assert signed[:-1] == HEADERS
    assert BY.is_own(1, b"key", b"value", signed)


@pytest.mark.parametrize(
    ("partition", "key", "value", "headers"),
    [
        (2, b"key", b"value", HEADERS),
        (1, None, b"value", HEADERS),
        (1, b"", b"value", HEADERS),
        (1, b"key", None, HEADERS),
        (1, b"key", b"value2", HEADERS),
        (1, b"key", b"value", HEADERS[::-1]),
        (1, b"key", b"value", [*HEADERS, ("more", b"")]),
        (1, b"key", b"value", HEADERS[1:]),
    ],
)
def test_no_other_record_has_its_mac(
    partition: int, key: bytes | None, value: bytes | None, headers: Headers
) -> None:
    mac = BY.signed(1, b"key", b"value", HEADERS)[-1]
    assert not BY.is_own(partition, key, value, [*headers, mac])


def test_mac_counts_under_its_key_for_its_topic_and_as_the_last_header_alone() -> None:
    signed = BY.signed(0, None, None, HEADERS)
    assert not HopAuthenticator(HopKey(b"o" * 32), "topic-id").is_own(0, None, None, signed)
    assert not HopAuthenticator(BY.key, "other-id").is_own(0, None, None, signed)
    assert not BY.is_own(0, None, None, [signed[-1], *signed[:-1]])
    for mac in (None, b"", b"\xff"):
        assert not BY.is_own(0, None, None, [*HEADERS, ("timer-hop-mac", mac)])
    assert not BY.is_own(0, None, None, HEADERS)
    assert not BY.is_own(0, None, None, [])


@given(st.lists(RECORDS, min_size=2, max_size=2))
def test_records_that_differ_have_different_macs(records: Sequence[tuple[object, ...]]) -> None:
    """Invariant: two records have the same MAC if and only if they are equal."""
    one, other = (BY.signed(*record)[-1] for record in records)  # type: ignore[arg-type]
    assert (one == other) == (records[0] == records[1])


def test_digest_names_a_key_and_tells_nothing_of_it() -> None:
    key, other = HopKey.new(), HopKey.new()
    assert key.digest != other.digest
    assert key.secret.hex()[:16] != key.digest
