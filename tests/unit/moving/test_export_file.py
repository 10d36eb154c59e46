"""An export is read as it was written, or refused as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.moving.export_file import (
    ExportDamaged,
    ExportedPartition,
    ExportedRecord,
    ExportHeader,
    ExportReader,
    ExportWriter,
)

HEADER = ExportHeader("cluster", "in", "id", "group", (ExportedPartition(0, 7, 9, 8),), False)

raw = st.none() | st.binary(max_size=20)
records = st.builds(
    ExportedRecord,
    st.just("timer.ingress"),
    st.integers(0, 9),
    st.integers(0, 2**40),
    st.integers(-(2**40), 2**50),
    st.sampled_from(["orders", "bills"]),
    raw,
    raw,
    st.lists(st.tuples(st.text(max_size=8).filter(str.isprintable), raw), max_size=4),
)


def written(found: list[ExportedRecord]) -> list[bytes]:
    lines: list[bytes] = []
    writer = ExportWriter(lines.append, HEADER)
    for record in found:
        writer.add(record)
    writer.end()
    return lines


def read(lines: list[bytes]) -> list[ExportedRecord]:
    given: Iterator[bytes] = iter(b"".join(lines).splitlines(keepends=True))
    reader = ExportReader(given, "it")
    found = list(reader)
    assert reader.header == HEADER
    assert reader.sha256
    return found


@given(st.lists(records, max_size=5))
def test_records_come_back_as_they_were(found: list[ExportedRecord]) -> None:
    """Any record that a writer has written equals the record that a reader returns."""
    assert read(written(found)) == found


@given(st.lists(records, min_size=2, max_size=5), st.data())
def test_any_changed_byte_or_missing_part_is_noticed(
    found: list[ExportedRecord], data: st.DataObject
) -> None:
    """A reader raises ExportDamaged before it returns the end of a changed export."""
    whole = bytearray(b"".join(written(found)))
    at = data.draw(st.integers(0, len(whole) - 2))
    if data.draw(st.booleans()):
        del whole[at:]
    else:
        whole[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ExportDamaged):
        read([bytes(whole)])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b'{"origin":"t/0/1"}',
        b'{"origin":7,"due":1,"target":"t","key":null,"value":null,"headers":[]}',
        b'{"origin":"t/0/x","due":1,"target":"t","key":null,"value":null,"headers":[]}',
        b'{"origin":"t/0/1","due":true,"target":"t","key":null,"value":null,"headers":[]}',
        b'{"origin":"t/0/1","due":1,"target":"t","key":"%","value":null,"headers":[]}',
        b'{"origin":"t/0/1","due":1,"target":"t","key":7,"value":null,"headers":[]}',
        b'{"origin":"t/0/1","due":1,"target":"t","key":null,"value":null,"headers":[[]]}',
        b'{"origin":"t/0/1","due":1,"target":"t","key":null,"value":null,"headers":7}',
        b"[" * 100,
    ],
)
def test_hostile_line_is_refused_in_a_sentence(line: bytes) -> None:
    with pytest.raises(ExportDamaged, match="is not a whole export"):
        read([written([])[0], line + b"\n"])


def test_record_shows_its_id_to_people() -> None:
    record = ExportedRecord("t", 0, 1, 5, "orders", b"k", None, [("timer-id", b"\xff 7")])
    assert json.loads(record.to_json())["id"] == "\\xff 7"
