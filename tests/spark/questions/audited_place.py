"""A folder with hand-made audits of two days.

a-other: an audit of another ingress topic.
a0: a complete audit at 11 o'clock of the 24th. No audit continues it.
a1: a complete audit at noon of the 24th.
a2: an audit at noon of the 25th. It continues a1.
a3: an audit that did not finish. It has verdicts and no row in `audits`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.histories.reader import ReadSoFar, Unverifiable
from spark_jobs.results.result_tables import write_tables
from spark_jobs.results.summary import Audited, History, MadeAudit, Summary, row_of
from spark_jobs.runtime.frames import Location
from spark_jobs.verdicts.rules import RECORD_DELETED
from tests.support.verdict_rows import delivered, undelivered, verdicts

Row = dict[str, Any]
READ = ReadSoFar("timer.ingress", "id", "group", {}, {})


def at_ms(text: str) -> int:
    return round(datetime.fromisoformat(f"2026-11-{text}:00+00:00").timestamp() * 1000)


def arrived(offset: int, due: str, lateness_ms: int = 0, **more: Any) -> Row:
    return delivered(offset, at_ms(due), lateness_ms, **{"is_attested": True, **more})


def without(offset: int, verdict: str, due: str | None, **more: Any) -> Row:
    due_ms = None if due is None else at_ms(due)
    written_ms = None if due_ms is None else due_ms - 60_000
    return undelivered(offset, verdict, **{"due_ms": due_ms, "timestamp_ms": written_ms, **more})


def control(
    offset: int, kind: str, name: str, written: str, verdict: str = "applied", **more: Any
) -> Row:
    of_it = {"kind": kind, "id": name, "target": None, "timestamp_ms": at_ms(written)}
    return without(offset, verdict, None, **of_it, **more)


UNSEEN = "it should have ended: orders, partition 0, has deleted records of that time"
BROKEN = {"is_violation": True}
ELSEWHERE: Row = {"partition": 1}
HALF = {"kind": "prepare", "id": "h1", "timestamp_ms": at_ms("24 08:00")}
NAMELESS = {
    "verdict": "orphaned",
    "detail": "its timer-origin names no record",
    "target": "orders",
    "delivered_ms": at_ms("24 08:00"),
    "ended_ms": at_ms("24 08:00"),
    "at_topic": "orders",
    "at_partition": 0,
    "at_offset": 500,
    **BROKEN,
}
"""An end whose origin is unknown."""
LETTER = without(
    7,
    "dead_lettered",
    "24 10:00",
    target="invoices",
    detail="too-large: 9 bytes",
    ended_ms=at_ms("24 10:00"),
)
SEVENTY_SEVEN = arrived(0, "24 08:00", id="77", at_offset=400, **ELSEWHERE)
COMMITTED = {"kind": "prepare", "id": "h5", "timestamp_ms": at_ms("24 10:00"), "ended_by": 11}
WITHDRAWN = {"kind": "prepare", "id": "h8", "timestamp_ms": at_ms("25 07:00"), "ended_by": 17}
OF_ANOTHER_TOPIC = (without(0, "missing", "24 09:00", **BROKEN),)
OLDER = (
    arrived(0, "24 09:00", 7, id="1"),
    without(2, "pending", "25 10:00", id="17"),
    arrived(8, "24 10:20", 3, target="invoices", at_topic="invoices"),
    LETTER,
    SEVENTY_SEVEN,
    arrived(90, "24 09:00", 70_000),
    without(91, "cancelled", "24 10:00", ended_by=92),
    without(93, "unverifiable", "24 10:00", detail=UNSEEN),
    without(99, "missing", "24 09:00", **BROKEN),
)
FIRST = (
    arrived(0, "24 09:00", 7, id="1"),
    arrived(1, "24 09:10", 90_000, is_attested=False),
    without(2, "rolled", "25 10:00", id="17", next_offset=6, ended_ms=at_ms("24 08:00")),
    arrived(3, "24 09:20"),
    without(4, "pending", "25 09:00", **HALF),
    control(5, "cancel", "1", "24 09:05", "missed"),
    without(6, "pending", "25 10:00", id="17"),
    LETTER,
    without(8, "unverifiable", "24 10:20", target="invoices", detail=UNSEEN),
    without(9, "pending", "25 15:30", target="invoices"),
    arrived(
        10,
        "24 11:00",
        -5,
        target="invoices",
        at_topic="invoices",
        verdict="early",
        detail="it arrived 5 ms before its due",
        **BROKEN,
    ),
    without(
        11,
        "dead_lettered",
        None,
        kind="refused",
        target=None,
        timestamp_ms=at_ms("24 11:30"),
        detail="target-missing: no timer-topic",
        ended_ms=at_ms("24 11:31"),
    ),
    SEVENTY_SEVEN,
    NAMELESS,
    without(29, "missing", "24 11:30", target="invoices", **BROKEN),
    without(5, "replaced", "25 12:00", id="5", ended_by=6, next_offset=6, **ELSEWHERE),
    without(6, "pending", "25 08:30", id="5", **ELSEWHERE),
    control(7, "cancel", "77", "24 09:30", "missed", **ELSEWHERE),
    arrived(8, "24 10:00", verdict="altered", at_offset=403, **BROKEN, **ELSEWHERE),
    without(9, "missing", "24 11:00", **BROKEN, **ELSEWHERE),
    without(10, "pending", "26 10:00", **COMMITTED, **ELSEWHERE),
    control(11, "commit", "h5", "24 11:00", "pending", **ELSEWHERE),
    control(12, "cancel", "nobody", "24 11:10", "missed", **ELSEWHERE),
)
SECOND = (
    arrived(3, "24 09:20", verdict="duplicated", detail="this is another end", **BROKEN),
    arrived(4, "25 09:00", 4, **{**HALF, "ended_by": 12, "at_offset": 401}),
    without(
        6, "replaced", "25 10:00", id="17", next_offset=13, ended_by=13, ended_ms=at_ms("25 09:30")
    ),
    control(12, "commit", "h1", "24 13:00"),
    arrived(13, "25 11:00", 120_000, id="17", timestamp_ms=at_ms("25 09:30")),
    without(14, "cancelled", "25 20:00", id="18", target="invoices", ended_by=15),
    control(15, "cancel", "18", "25 11:00"),
    control(16, "cancel", "77", "25 11:05", "missed"),
    without(17, "expired", "25 08:00", kind="prepare", id="h2", ended_by=18),
    control(18, "expire", "h2", "25 08:59"),
    without(19, "rolled_back", "25 08:00", kind="prepare", id="h3", ended_by=20),
    control(20, "rollback", "h3", "25 08:09"),
    without(21, "requeued", "25 10:00", next_offset=22),
    without(22, "requeued", "25 10:00", next_offset=23),
    arrived(23, "25 10:00", 300_000, at_offset=402),
    without(24, "pending", "25 11:50", overdue_ms=600_000, is_late=True),
    without(25, "pending", "25 18:00", kind="prepare", id="h4", target="invoices"),
    without(
        26,
        "dead_lettered",
        "25 10:00",
        target="invoices",
        detail="too-large: 8 bytes",
        ended_ms=at_ms("25 10:00"),
    ),
    without(27, "rolled", "26 10:00", target="invoices", next_offset=28),
    arrived(29, "24 11:30", 60_000, target="invoices", at_topic="invoices"),
    without(2, "unverifiable", None, kind=None, target=None, detail=RECORD_DELETED, **ELSEWHERE),
    arrived(6, "25 08:30", id="5", at_offset=404, **ELSEWHERE),
    arrived(8, "24 10:00", verdict="duplicated", at_offset=403, **BROKEN, **ELSEWHERE),
    without(10, "pending", "26 10:00", **COMMITTED, **ELSEWHERE),
    control(11, "commit", "h5", "24 11:00", **ELSEWHERE),
    without(13, "rolled_back", "25 08:00", kind="prepare", id="h6", **ELSEWHERE),
    without(15, "expired", "25 08:00", kind="prepare", id="h7", **ELSEWHERE),
    without(16, "cancelled", "25 08:00", **WITHDRAWN, **ELSEWHERE),
    control(17, "cancel", "h8", "25 07:30", **ELSEWHERE),
    without(18, "altered", "26 10:00", next_offset=19, **BROKEN, **ELSEWHERE),
    without(19, "rolled", "26 12:00", next_offset=20, **ELSEWHERE),
    without(20, "pending", "26 12:00", **ELSEWHERE),
)
UNFINISHED = (without(13, "missing", "25 11:00", id="17", **BROKEN),)
GONE = (Unverifiable(1, 1, 4, "aged out"),)


def write_audits(spark: SparkSession, place: Location) -> None:
    history = History(spark, place)
    _add(history, "a-other", "24 10:00", OF_ANOTHER_TOPIC, GONE, ingress="other.ingress")
    _add(history, "a0", "24 11:00", OLDER)
    _add(history, "a1", "24 12:00", FIRST)
    _add(history, "a2", "25 12:00", SECOND, GONE, MadeAudit("a1", READ, 0))
    _write(history, "a3", Audited("here:9092", "timer.ingress", at_ms("25 13:00"), ()), UNFINISHED)


def _add(
    history: History,
    name: str,
    at: str,
    rows: tuple[Row, ...],
    gone: tuple[Unverifiable, ...] = (),
    before: MadeAudit | None = None,
    ingress: str = "timer.ingress",
) -> None:
    audited = Audited("here:9092", ingress, at_ms(at), (), gone)
    history.add(row_of(name, _write(history, name, audited, rows), "", before))


def _write(history: History, name: str, audited: Audited, rows: tuple[Row, ...]) -> Summary:
    frame = verdicts(history.audits.sparkSession, rows)
    return write_tables(frame, audited, name, history.tables).summary
