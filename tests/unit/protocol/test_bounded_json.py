"""Untrusted JSON gives a value or one error, at the proxy and in the audit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.protocol import bounded_json
from proxy.protocol.position import MetadataUnreadable, Position
from spark_jobs.kafka.snapshot import Committed
from spark_jobs.records import bounded_json as of_audit
from tests.support.hostile_json import HOSTILE


def _of_proxy(text: bytes) -> object:
    try:
        return bounded_json.read_json(text)
    except bounded_json.JsonRefused:
        return ValueError


def _of_audit(text: bytes) -> object:
    try:
        return of_audit.read_json(text, object)
    except of_audit.JsonRefused:
        return ValueError


READERS = pytest.mark.parametrize("reading", [_of_proxy, _of_audit])
MOST = 2**63 - 1
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-MOST, MOST) | st.floats(-1e300, 1e300) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@READERS
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused(name: str, reading: Callable[[bytes], object]) -> None:
    assert reading(HOSTILE[name]) is ValueError


@pytest.mark.parametrize("name", HOSTILE)
def test_offset_metadata_that_is_hostile_is_called_unreadable(name: str) -> None:
    text = HOSTILE[name].decode("utf-8", "replace")
    whole = {"v": 1, "t": 0, "c": None, "f": 0, "s": [[0, "x"]], "i": "id"}
    fields = [
        json.dumps({**whole, field: "here"}).replace('"here"', text)
        for field in whole
        if name not in {"a name twice", "no UTF-8", "UTF-16"}
    ]
    for metadata in (text, *fields):
        with pytest.raises(MetadataUnreadable):
            Position.from_metadata(10, metadata)
        with pytest.raises(ValueError):  # noqa: PT011
            Committed.from_metadata(0, 10, metadata)


@READERS
@given(VALUES.filter(lambda value: _depth(value) <= bounded_json.MOST_DEPTH))
def test_what_json_can_say_is_read_as_it_was_written(
    reading: Callable[[bytes], object], value: object
) -> None:
    """Invariant: any JSON value within the limits is returned unchanged."""
    assert reading(json.dumps(value).encode()) == value


@READERS
def test_brackets_in_texts_nest_nothing_and_what_stands_side_by_side_neither(
    reading: Callable[[bytes], object],
) -> None:
    texts = '\\"' * 100, "[" * 1_000, '"[' * 1_000
    values: tuple[object, ...] = (*texts, [*texts], [[]] * 1_000)
    for value in values:
        assert reading(json.dumps(value).encode()) == value


@READERS
def test_as_deep_as_is_read_and_one_deeper(reading: Callable[[bytes], object]) -> None:
    deepest = b"[" * bounded_json.MOST_DEPTH + b"]" * bounded_json.MOST_DEPTH
    assert isinstance(reading(deepest), list)
    assert reading(b"[" + deepest + b"]") is ValueError


@READERS
@given(st.binary() | st.text(alphabet='[]{}",:\\0123456789eE+-.nulaNIftys ').map(str.encode))
@example(b'{"a": "\\ud83d\\ude00"}')
@example(b"-")
def test_any_bytes_give_a_value_that_can_be_written_or_the_one_error(
    reading: Callable[[bytes], object], text: bytes
) -> None:
    """Invariant: any bytes give a value or the one error."""
    found = reading(text)
    if found is not ValueError:
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()


def _depth(value: object) -> int:
    inner = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(inner, list) else 0
