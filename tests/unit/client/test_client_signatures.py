"""The group's own retries are told from forged ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_delay import AsyncRetryConsumer, ConfigRefused, RetryConsumer
from kafka_delay.kafka import Place
from kafka_delay.protocol import SIGNATURE
from kafka_delay.request import WireHeaders
from kafka_delay.retries import (
    Failure,
    Received,
    RetryPlan,
    Signer,
    SigningKey,
)

GROUP, RETRY = "billing", "retry.billing"
KEY, OTHER_KEY = "a key of the group, at random", b"another key of the group"
PLACE, AGAIN = Place("orders", 2, 41), Place(RETRY, 0, 7)
NO = Failure("ValueError: no")
RECORD = Received(PLACE, PLACE, 0, b"k", b"v", [("trace", b"7")], 0)


def believed(key: SigningKey | None, *topics: str) -> RetryPlan:
    signer = None if key is None else Signer(GROUP, key)
    return RetryPlan(GROUP, topics or ["orders"], RETRY, signer=signer)


def delivered(failed: Received, key: SigningKey | None, failure: Failure = NO) -> Received:
    headers = believed(key).request(failed, failure).headers
    own = [header for header in headers if not header[0].startswith("timer-")]
    return replace(failed, read_from=AGAIN, attempt=failed.attempt + 1, headers=own)


def replayed(letter: Received) -> Received:
    gone = {"retry-attempt", "retry-exception"}
    kept: WireHeaders = [header for header in letter.headers if header[0] not in gone]
    return replace(letter, attempt=0, headers=kept)


@pytest.mark.parametrize("key", [KEY, KEY.encode(), [KEY, OTHER_KEY], [OTHER_KEY, KEY]])
def test_a_retry_that_a_member_with_one_of_the_keys_has_signed_is_believed(key: Any) -> None:
    assert believed(key).refusal(delivered(RECORD, KEY)) is None
    assert believed(key).refusal(delivered(replace(RECORD, attempt=4), KEY)) is None
    assert believed(key).refusal(delivered(replace(RECORD, key=None, value=None), KEY)) is None


def test_it_is_signed_anew_each_time_and_headers_do_not_grow() -> None:
    first = delivered(RECORD, KEY)
    second = delivered(first, KEY)
    assert believed(KEY).refusal(second) is None
    names = [name for name, _ in second.headers]
    assert names == [name for name, _ in first.headers]
    assert names.count(SIGNATURE) == 1


@pytest.mark.parametrize(
    "forged",
    [
        {"original": Place("orders", 2, 42)},
        {"original": Place("orders", 3, 41)},
        {"original": Place("payments", 2, 41)},
        {"attempt": 0},
        {"attempt": 2},
        {"key": b"K"},
        {"key": None},
        {"value": b"V"},
        {"value": None},
        {"value": b""},
    ],
)
def test_a_signed_retry_that_was_changed_is_refused(forged: dict[str, Any]) -> None:
    assert "signature of the retry is wrong" in (
        believed(KEY).refusal(replace(delivered(RECORD, KEY), **forged)) or ""
    )


def test_parts_cannot_be_moved_from_the_key_to_the_value() -> None:
    signer = Signer(GROUP, KEY)
    signed = signer.signature(PLACE, 1, b"ab", b"c")
    assert signer.is_valid(signed, PLACE, 1, b"ab", b"c")
    assert not signer.is_valid(signed, PLACE, 1, b"a", b"bc")
    assert signer.signature(PLACE, 1, b"", None) != signer.signature(PLACE, 1, None, b"")


def test_so_is_one_that_another_group_or_another_key_has_signed() -> None:
    for signer in (Signer("other", KEY), Signer(GROUP, OTHER_KEY)):
        signed = signer.signature(PLACE, 1, b"k", b"v")
        assert not Signer(GROUP, KEY).is_valid(signed, PLACE, 1, b"k", b"v")


@pytest.mark.parametrize("signature", [b"", b"1", b"1 " + b"0" * 64, b"\xff" * 80, b"9" * 5_000])
def test_what_is_no_signature_is_refused(signature: bytes) -> None:
    retry = delivered(RECORD, None)
    signed = replace(retry, headers=[*retry.headers, (SIGNATURE, signature)])
    assert "signature of the retry is wrong" in (believed(KEY).refusal(signed) or "")


def test_an_unsigned_retry_is_refused_where_there_is_a_key() -> None:
    assert "the retry is not signed, so it may be forged" in (
        believed(KEY).refusal(delivered(RECORD, None)) or ""
    )
    assert "not signed" in (
        believed([KEY, OTHER_KEY]).refusal(replace(RECORD, read_from=AGAIN, original=AGAIN)) or ""
    )


def test_unless_it_is_to_be_taken_while_the_members_get_their_first_key() -> None:
    assert believed([KEY, None]).refusal(delivered(RECORD, None)) is None
    assert "wrong" in (believed([KEY, None]).refusal(delivered(RECORD, OTHER_KEY)) or "")


def test_a_dead_letter_that_is_replayed_is_believed_and_begins_to_count_again() -> None:
    letter = delivered(replace(RECORD, attempt=16), KEY, Failure("no", is_final=True))
    assert believed(KEY).refusal(replayed(letter)) is None


def test_a_forged_one_is_not_laundered_by_a_replay() -> None:
    refused = Failure("not signed", is_final=True, is_refused=True)
    letter = delivered(replace(RECORD, original=AGAIN), KEY, refused)
    assert "not signed" in (believed(KEY).refusal(replayed(letter)) or "")


def test_without_a_key_a_retry_is_believed_of_topics_that_the_consumer_reads() -> None:
    retry = delivered(RECORD, None)
    assert believed(None).refusal(retry) is None
    assert believed(None, "^ord.*").refusal(retry) is None
    assert believed(None).refusal(replace(retry, original=AGAIN)) is None
    for topics in (["payments"], ["^pay.*"], ["^rders"]):
        assert "came from 'orders', which this consumer does not" in (
            believed(None, *topics).refusal(retry) or ""
        )


def test_records_of_other_topics_need_no_signature() -> None:
    assert believed(KEY).refusal(RECORD) is None


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("short", "a key of 5 bytes: use 16 or more"),
        ("", "a key of 0 bytes"),
        (5, "signing_key has a int"),
        ([], "no key at its first place"),
        ([None, KEY], "no key at its first place"),
        ([KEY, "short"], "a key of 5 bytes"),
    ],
)
def test_a_key_that_protects_nothing_is_refused(key: Any, said: str) -> None:
    config = {"bootstrap.servers": "localhost:9"}
    with pytest.raises(ConfigRefused, match=said):
        RetryConsumer(config, GROUP, ["orders"], print, signing_key=key)
    with pytest.raises(ConfigRefused, match=said):
        AsyncRetryConsumer(config, GROUP, ["orders"], Handler(), signing_key=key)


class Handler:
    async def __call__(self, _record: Received) -> None:
        """Do nothing."""
