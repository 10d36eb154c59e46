"""The proxy reads each record of the conformance table as the guide says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from proxy.protocol.aliases import ALIASES
from proxy.protocol.headers import HOPS, PURGES, REQUESTS, STAMPS
from proxy.protocol.request_reader import RequestReader
from tests.support.conformance import ANSWERS, Row, policies_of_table, rows, signer
from tests.support.proxy_reading import told

FEWEST_ROWS = 550
GUIDE = Path(__file__).parents[3] / "docs" / "guide.md"
LAST_CODE_OF_A_READER = "partition-bad"


def _param(row: Row) -> object:
    why = row.fails.get("proxy")
    marks = [pytest.mark.xfail(reason=why)] if why else []
    return pytest.param(row, id=row.where, marks=marks)


@pytest.mark.parametrize("row", [_param(row) for row in rows()])
def test_the_proxy_reads_a_record_as_the_guide_says(row: Row) -> None:
    reader = RequestReader(row.policy, signer() if row.policy.hop_key else None)
    headers = row.headers_in_python
    read = reader.read(headers, row.key, row.value, row.timestamp_ms, row.partition, row.offset)
    assert not (wrong := row.difference(told(read))), wrong


def test_there_are_many_rows_and_no_two_ask_the_same() -> None:
    asked = Counter(
        (row.settings, row.headers, row.key, row.value, row.timestamp_ms) for row in rows()
    )
    assert len(asked) >= FEWEST_ROWS
    assert not (twice := [one for one, times in asked.items() if times > 1]), twice


def test_every_code_that_is_decided_when_a_record_is_read_occurs() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \|", _codes_of_the_guide(), re.MULTILINE)
    codes = set(listed[: listed.index(LAST_CODE_OF_A_READER) + 1])
    codes.remove("record-unreadable")  # no readable record has it
    assert len(codes) > 10
    assert codes == {row.expected["code"] for row in rows()} - {None}


def _codes_of_the_guide() -> str:
    return GUIDE.read_text("utf-8").partition("| `timer-error` | what is wrong |")[2]


def test_every_kind_of_answer_occurs_with_and_without_each_of_its_columns() -> None:
    kinds = {row.expected["kind"] for row in rows()}
    assert kinds == {
        "record",
        "prepare",
        "purge",
        "commit",
        "rollback",
        "expire",
        "cancel",
        "recall",
        "refused",
    }
    for column in set(ANSWERS.values()) - {"kind"}:
        told_by_rows = {row.expected[column] is None for row in rows()}
        assert told_by_rows == {False, True}, column


def test_every_header_and_every_alias_occurs() -> None:
    names = {name.decode("utf-8", "replace") for row in rows() for name, _ in row.headers}
    assert names >= REQUESTS | STAMPS | HOPS | PURGES
    for alias in ALIASES.values():
        assert names >= alias.headers
    alone = {row.policy.aliases[0] for row in rows() if len(row.policy.aliases) == 1}
    assert alone == ALIASES.keys()


def test_every_setting_of_the_table_is_used() -> None:
    assert {row.settings for row in rows()} == policies_of_table().keys()
