"""Each question gives its exact answer for a place with a chain of audits and others."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.questions import question, questions
from tests.spark.questions.audited_place import UNSEEN, at_ms
from tests.support.verdict_rows import delivered, verdicts

pytestmark = pytest.mark.core

DOCS = Path(__file__).parents[3] / "docs" / "audit.md"
Answer = list[tuple[Any, ...]]
Asked = tuple[str, dict[str, str], tuple[str, ...], Answer]
LINKED = ("partition", "offset", "verdict", "next_offset", "ended_by", "audit")
ORDER_17 = [
    (0, 2, "rolled", 6, None, "a1"),
    (0, 6, "replaced", 13, 13, "a2"),
    (0, 13, "delivered", None, None, "a2"),
]
REQUEUED = [
    (0, 21, "requeued", 22, None, "a2"),
    (0, 22, "requeued", 23, None, "a2"),
    (0, 23, "delivered", None, None, "a2"),
]
ALTERED_ON_ITS_WAY = [
    (1, 18, "altered", 19, None, "a2"),
    (1, 19, "rolled", 20, None, "a2"),
    (1, 20, "pending", None, None, "a2"),
]
BOOKS = [
    (None, "2026-11-24", 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0),
    ("invoices", "2026-11-24", 4, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0),
    ("invoices", "2026-11-25", 4, 0, 1, 0, 1, 0, 0, 2, 0, 0, 0, 0),
    ("invoices", "2026-11-26", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1),
    ("orders", "2026-11-24", 6, 3, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0),
    ("orders", "2026-11-25", 12, 4, 1, 2, 0, 2, 2, 1, 0, 0, 0, 0),
    ("orders", "2026-11-26", 3, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 0),
]
"""target, day, asked, delivered, cancelled, replaced, dead_lettered, rolled_back, expired, waiting,
not_judged, broken, unasked, unaccounted"""
LATE = ("hour_ms", "target", "offset", "delivered_ms", "late_ms")
LATE_RECORDS = [
    (at_ms("24 09:00"), "orders", 1, at_ms("24 09:10") + 90_000, 90_000),
    (at_ms("25 10:00"), "orders", 23, at_ms("25 10:05"), 300_000),
    (at_ms("25 11:00"), "orders", 24, None, 600_000),
    (at_ms("25 11:00"), "orders", 13, at_ms("25 11:02"), 120_000),
]
VIOLATION = ("verdict", "offset", "detail", "audit")
EARLY = ("early", 10, "it arrived 5 ms before its due", "a1")
DUPLICATED = ("duplicated", 3, "this is another end", "a2")
ASKED: list[Asked] = [
    ("what_became_of_id", {"id": "17"}, LINKED, ORDER_17),
    ("what_became_of_record", {"partition": "0", "offset": "2"}, LINKED, ORDER_17),
    ("what_became_of_record", {"partition": "0", "offset": "13"}, LINKED, ORDER_17),
    ("what_became_of_record", {"partition": "0", "offset": "22"}, LINKED, REQUEUED),
    (
        "what_became_of_record",
        {"partition": "0", "offset": "9"},
        LINKED,
        [(0, 9, "pending", None, None, "a1")],
    ),
    ("what_became_of_record", {"partition": "0", "offset": "99"}, LINKED, []),
    ("what_became_of_record", {"partition": "1", "offset": "20"}, LINKED, ALTERED_ON_ITS_WAY),
    ("reconciliation", {}, (), BOOKS),
    ("reconciliation", {"day": "2026-11-25"}, (), [BOOKS[2], BOOKS[5]]),
    (
        "late_by_hour",
        {},
        (),
        [
            (at_ms("24 09:00"), "orders", 3, 1, 0, 90_000),
            (at_ms("25 10:00"), "orders", 1, 1, 0, 300_000),
            (at_ms("25 11:00"), "orders", 1, 1, 1, 600_000),
        ],
    ),
    (
        "late_by_hour",
        {"late_ms": "299999"},
        (),
        [
            (at_ms("25 10:00"), "orders", 1, 1, 0, 300_000),
            (at_ms("25 11:00"), "orders", 1, 0, 1, 600_000),
        ],
    ),
    (
        "how_late",
        {},
        (),
        [
            ("invoices", None, None, 2, -5, 60_000, 60_000),
            ("orders", None, None, 9, 4, 300_000, 300_000),
        ],
    ),
    (
        "how_late",
        {"by": "hour"},
        (),
        [
            ("invoices", at_ms("24 11:00"), "up to 1 s", 2, -5, 60_000, 60_000),
            ("orders", at_ms("24 08:00"), "up to 1 s", 1, 0, 0, 0),
            ("orders", at_ms("24 09:00"), "up to 1 s", 3, 7, 90_000, 90_000),
            ("orders", at_ms("24 10:00"), "up to 1 s", 1, 0, 0, 0),
            ("orders", at_ms("25 08:00"), "up to 1 s", 1, 0, 0, 0),
            ("orders", at_ms("25 09:00"), "longer", 1, 4, 4, 4),
            ("orders", at_ms("25 10:00"), "up to 1 s", 1, 300_000, 300_000, 300_000),
            ("orders", at_ms("25 11:00"), "up to 1 day", 1, 120_000, 120_000, 120_000),
        ],
    ),
    (
        "how_late",
        {"by": "minute"},
        ("target", "due_from_ms", "records", "max_ms"),
        [
            ("invoices", at_ms("24 11:00"), 1, -5),
            ("invoices", at_ms("24 11:30"), 1, 60_000),
            ("orders", at_ms("24 08:00"), 1, 0),
            ("orders", at_ms("24 09:00"), 1, 7),
            ("orders", at_ms("24 09:10"), 1, 90_000),
            ("orders", at_ms("24 09:20"), 1, 0),
            ("orders", at_ms("24 10:00"), 1, 0),
            ("orders", at_ms("25 08:30"), 1, 0),
            ("orders", at_ms("25 09:00"), 1, 4),
            ("orders", at_ms("25 10:00"), 1, 300_000),
            ("orders", at_ms("25 11:00"), 1, 120_000),
        ],
    ),
    ("late_records", {}, LATE, LATE_RECORDS),
    ("late_records", {"late_ms": "300000"}, LATE, LATE_RECORDS[2:3]),
    (
        "taken_back",
        {},
        ("offset", "id", "verdict", "ended_by", "by", "asked_ms", "ahead_ms"),
        [
            (6, "17", "replaced", 13, "record", at_ms("25 09:30"), 1_800_000),
            (14, "18", "cancelled", 15, "cancel", at_ms("25 11:00"), 9 * 3_600_000),
            (5, "5", "replaced", 6, "record", at_ms("25 08:30") - 1000, 12_601_000),
            (16, "h8", "cancelled", 17, "cancel", at_ms("25 07:30"), 1_800_000),
        ],
    ),
    (
        "missed_cancels",
        {},
        ("offset", "id", "record_offset", "verdict", "due_ms", "after_ms", "elsewhere"),
        [
            (5, "1", 0, "delivered", at_ms("24 09:00"), 299_993, 0),
            (16, "77", None, None, None, None, 1),
            (7, "77", 0, "delivered", at_ms("24 08:00"), 5_400_000, 0),
            (12, "nobody", None, None, None, None, 0),
        ],
    ),
    (
        "pending_by_hour",
        {"day": "2026-11-25"},
        (),
        [
            (at_ms("25 11:00"), "orders", 1, 0, 0),
            (at_ms("25 15:00"), "invoices", 1, 0, 0),
            (at_ms("25 18:00"), "invoices", 1, 1, 0),
            (None, "orders", 2, 1, 0),
        ],
    ),
    (
        "pending_by_hour",
        {"day": "2026-11-25", "hours": "48"},
        ("hour_ms", "target"),
        [
            (at_ms("25 11:00"), "orders"),
            (at_ms("25 15:00"), "invoices"),
            (at_ms("25 18:00"), "invoices"),
            (at_ms("26 10:00"), "orders"),
            (at_ms("26 12:00"), "orders"),
        ],
    ),
    (
        "pending_by_hour",
        {"day": "2026-11-26"},
        (),
        [
            (at_ms("26 00:00"), "invoices", 2, 1, 2),
            (at_ms("26 00:00"), "orders", 1, 0, 1),
            (at_ms("26 10:00"), "orders", 1, 1, 0),
            (at_ms("26 12:00"), "orders", 1, 0, 0),
        ],
    ),
    (
        "pending_by_hour",
        {"day": "2026-11-24"},
        (),
        [(None, "invoices", 2, 1, 0), (None, "orders", 3, 1, 0)],
    ),
    (
        "dead_letters",
        {},
        (),
        [
            ("too-large", "invoices", 2, at_ms("24 10:00"), at_ms("25 10:00"), "0/7"),
            ("target-missing", None, 1, at_ms("24 11:31"), at_ms("24 11:31"), "0/11"),
        ],
    ),
    (
        "violations",
        {},
        VIOLATION,
        [
            ("altered", 18, None, "a2"),
            DUPLICATED,
            ("duplicated", 8, None, "a2"),
            EARLY,
            ("missing", 9, None, "a1"),
            ("orphaned", None, "its timer-origin names no record", "a1"),
        ],
    ),
    ("violations", {"verdict": "early"}, VIOLATION, [EARLY]),
    (
        "not_judged",
        {},
        (),
        [
            ("the ingress had deleted partition 1, offsets 1 to 3", None, 3, None, None),
            (
                "it is due, and has not ended",
                "orders",
                1,
                at_ms("25 11:50"),
                at_ms("25 11:50"),
            ),
            (UNSEEN, "invoices", 1, at_ms("24 10:20"), at_ms("24 10:20")),
        ],
    ),
    (
        "half_messages",
        {},
        (),
        [
            ("invoices", "undecided", 1, 1, None, None, at_ms("25 17:59")),
            ("orders", "cancelled", 1, 0, 1_800_000, 1_800_000, at_ms("25 07:00")),
            ("orders", "committed", 2, 1, 3_600_000, 18_000_000, at_ms("24 08:00")),
            ("orders", "expired", 2, 0, 3_600_000, 3_600_000, at_ms("25 07:59")),
            ("orders", "rolled back", 2, 0, 600_000, 600_000, at_ms("25 07:59")),
        ],
    ),
    (
        "lateness_by_audit",
        {},
        (),
        [
            ("a0", at_ms("24 11:00"), "invoices", 1, 3, 3, 3, 0),
            ("a0", at_ms("24 11:00"), "orders", 3, 7, 70_000, 70_000, 1),
            ("a1", at_ms("24 12:00"), "orders", 4, 0, 90_000, 90_000, 1),
            ("a2", at_ms("25 12:00"), "invoices", 1, 60_000, 60_000, 60_000, 0),
            ("a2", at_ms("25 12:00"), "orders", 4, 4, 300_000, 300_000, 2),
        ],
    ),
    (
        "changed_verdicts",
        {},
        ("offset", "before", "before_audit", "verdict", "is_violation", "audit"),
        [
            (8, "delivered", "a0", "unverifiable", False, "a1"),
            (3, "delivered", "a1", "duplicated", True, "a2"),
            (29, "missing", "a1", "delivered", False, "a2"),
            (8, "altered", "a1", "duplicated", True, "a2"),
        ],
    ),
    (
        "claimed_times",
        {},
        (),
        [
            ("orders", 9, 8, 1, at_ms("24 09:10") + 90_000, at_ms("24 09:10") + 90_000),
            ("invoices", 2, 2, 0, None, None),
        ],
    ),
]


@pytest.mark.parametrize(
    ("name", "values", "columns", "answer"), ASKED, ids=[f"{one[0]} {one[1]}" for one in ASKED]
)
def test_a_question_has_the_answer_that_the_audits_give(
    asked: SparkSession,
    name: str,
    values: dict[str, str],
    columns: tuple[str, ...],
    answer: Answer,
) -> None:
    found = question(name).answer(asked, values)
    assert [tuple(row) for row in found.select(*(columns or found.columns)).collect()] == answer


def test_every_question_is_asked_here_and_named_in_the_docs() -> None:
    """The generated reference has its text (tests/unit/repository/test_docs_site.py)."""
    assert {one[0] for one in ASKED} == set(questions())
    page = DOCS.read_text("utf-8")
    for one in questions().values():
        assert f"`{one.name}`" in page


def test_a_violation_comes_with_the_commands_that_show_it(asked: SparkSession) -> None:
    (found,) = question("violations").answer(asked, {"verdict": "early"}).collect()
    assert [
        line.partition(" --max")[0].rpartition("--topic ")[2] for line in found.look.split("\n")
    ] == [
        "timer.ingress --partition 0 --offset 10",
        "invoices --partition 0 --offset 10",
    ]


def test_without_a_day_waiting_records_count_from_this_hour_on(asked: SparkSession) -> None:
    first_ms = _this_hour_ms()
    rows = question("pending_by_hour").answer(asked, {"hours": "1"}).collect()
    assert {row.hour_ms for row in rows} <= {first_ms, _this_hour_ms(), None}
    assert sum(row.records for row in rows) == 5


def _this_hour_ms() -> int:
    return time.time_ns() // 3_600_000_000_000 * 3_600_000


@pytest.mark.parametrize(
    ("delay_ms", "delay"),
    [
        (-5, "at once"),
        (0, "at once"),
        (1_000, "up to 1 s"),
        (1_001, "up to 1 min"),
        (600_000, "up to 10 min"),
        (600_001, "up to 1 h"),
        (86_400_000, "up to 1 day"),
        (86_400_001, "longer"),
    ],
)
def test_lateness_is_told_by_how_long_a_record_was_to_wait(
    spark: SparkSession, delay_ms: int, delay: str
) -> None:
    due_ms = at_ms("25 10:00")
    row = delivered(1, due_ms, timestamp_ms=due_ms - delay_ms)
    verdicts(spark, [row]).createOrReplaceTempView("one_delivery")
    how_late = question("how_late")
    of_one = replace(how_late, sql=how_late.sql.replace("FROM newest", "FROM one_delivery"))
    assert [found.delay for found in of_one.answer(spark, {"by": "hour"}).collect()] == [delay]


def test_views_show_no_audit_that_came_to_no_end(asked: SparkSession) -> None:
    counted = {
        name: {row[0] for row in asked.table(name).select("audit").distinct().collect()}
        for name in ("audits", "chain", "verdicts", "newest", "violations", "lateness")
    }
    whole = {"a-other", "a0", "a1", "a2"}
    chain = {"a1", "a2"}
    assert counted == {
        "audits": whole,
        "chain": chain,
        "verdicts": whole,
        "newest": chain,
        "violations": whole,
        "lateness": whole - {"a-other"},
    }
