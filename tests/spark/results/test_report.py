"""The report is one file with clear findings for any topic contents."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.audit_scope import LatenessLimits
from spark_jobs.histories.reader import Unverifiable
from spark_jobs.results.formatting import milliseconds, moment, sentence, thousands
from spark_jobs.results.report import report_page
from spark_jobs.results.result_tables import write_tables
from spark_jobs.results.summary import Audited, AuditedRange
from spark_jobs.runtime.frames import location
from spark_jobs.tables import Tables
from tests.support.verdict_rows import delivered, undelivered, verdicts

NOW_MS = 1_795_300_000_000
UP_TO = f"Judged up to {moment(NOW_MS)}"
AUDITED = Audited(
    "here:9092",
    "timer.ingress",
    NOW_MS,
    (AuditedRange(0, 0, 6, 6, NOW_MS, 0, 6), AuditedRange(1, 0, 0, 0, -1, 0, 0)),
)


def _page(
    spark: SparkSession, folder: Path, rows: list[dict[str, object]], audited: Audited = AUDITED
) -> str:
    tables = Tables(spark, location(folder))
    return report_page(write_tables(verdicts(spark, rows), audited, "one", tables))


def _text(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<(style|svg).*?</\1>|<[^>]*>", " ", page, flags=re.DOTALL))


def test_report_of_a_clean_audit_says_that_it_held_and_needs_no_network(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        delivered(offset, NOW_MS + offset, lateness_ms=offset, is_attested=True)
        for offset in range(5)
    ]
    audited = replace(AUDITED, limits=LatenessLimits(2_000))
    page = _page(spark, tmp_path, [*rows, undelivered(9, "pending")], audited)

    assert "Exactly once held" in _text(page)
    assert "Every one of the 6 ingress records audited" in _text(page)
    assert "1 of them is still pending" in _text(page)
    assert page.count("<svg") == 4
    assert 'class="all-in"' in page
    assert "The audit covers everything in the topics." in _text(page)
    assert f"partition 0, offsets 0 to 5; partition 1, nothing {UP_TO}" in _text(page)
    assert not re.search(r"""(src|href)=["'](?!#)|url\((?!#)|@import""", page)


def test_report_of_violations_shows_each_with_its_commands_and_trusts_no_text(
    spark: SparkSession, tmp_path: Path
) -> None:
    evil = "<script>alert(1)</script>\u202e\x1b"
    bad = {"verdict": "early", "is_violation": True}
    rows = [
        *(delivered(offset, NOW_MS, -5, detail=evil, target=evil, **bad) for offset in range(101)),
        undelivered(101, "unverifiable"),
    ]
    gap = (Unverifiable(0, 101, 102, "retention has deleted it"),)
    audited = Audited("here:9092", "timer.ingress", NOW_MS, AUDITED.ranges, gap)
    page = _page(spark, tmp_path, rows, audited)

    assert "did not hold: 101 violations" in _text(page)
    assert "Of 102 records audited: 101 early. The first 100 are listed below" in _text(page)
    assert "The first 100 of 101" in _text(page)
    assert page.count("<article>") == 100
    assert page.count("kafka-console-consumer.sh") == 200
    assert "<script" not in page
    assert not {"\u202e", "\x1b"} & set(page)
    assert page.count('aria-label="Violations over time"') == 2
    reason = (
        "deleted from the ingress before this audit read them (partition 0, offsets 101 to 101)"
    )
    assert f"1 record could not be judged : {reason}" in _text(page)
    assert "retention has deleted it" in page


def test_report_of_what_was_late_alone_says_that_exactly_once_held(
    spark: SparkSession, tmp_path: Path
) -> None:
    late = delivered(1, NOW_MS, 5_000, verdict="late", is_violation=True)
    overdue = undelivered(2, "overdue", is_violation=True, due_ms=NOW_MS)
    held = "Exactly once held, but 2 records are later than allowed"
    assert held in _text(_page(spark, tmp_path / "late", [late, overdue]))
    early = delivered(3, NOW_MS, -5, verdict="early", is_violation=True)
    worse = _text(_page(spark, tmp_path / "early", [late, early]))
    assert "Exactly once did not hold: 2 violations" in worse


def test_report_of_what_could_not_all_be_judged_says_so_at_the_top(
    spark: SparkSession, tmp_path: Path
) -> None:
    hour_ms = 3_600_000
    behind = undelivered(3, "pending", overdue_ms=hour_ms, is_late=True)
    rows = [delivered(1, NOW_MS), delivered(2, NOW_MS - hour_ms, hour_ms), behind]
    ranges = (AuditedRange(0, 0, 6, 6, NOW_MS - hour_ms, 0, 6), *AUDITED.ranges[1:])
    audited = Audited("here:9092", "timer.ingress", NOW_MS, ranges, (), ("mail",))
    text = _text(_page(spark, tmp_path, rows, audited))
    assert "Exactly once held as far as could be judged" in text
    assert "1 record could not be judged : due for more than 60 s, and not ended" in text
    assert (
        f"Judged up to {moment(NOW_MS - hour_ms)} (the proxy had not ended later records)" in text
    )
    assert "1 delivered late, 1 overdue" in text


def test_report_says_at_the_top_what_the_audit_does_not_cover(
    spark: SparkSession, tmp_path: Path
) -> None:
    believed = undelivered(3, "dead_lettered", detail="too-large: 9 bytes")
    rows = [
        delivered(11, NOW_MS, is_attested=True),
        delivered(12, NOW_MS, kind="prepare", is_attested=False),
        *(believed | {"offset": offset} for offset in (13, 14)),
    ]
    ranges = (AuditedRange(0, 10, 20, 20, NOW_MS, 7, 25),)
    limits = LatenessLimits(None, (("alerts-*", 500),))
    audited = Audited("here:9092", "timer.ingress", NOW_MS, ranges, (), ("mail", "logs"), limits)
    page = _page(spark, tmp_path, rows, audited)
    left_out = _text(page[page.index('class="left-out"') : page.index("Verdicts</h2>")])
    assert "8 offsets of timer.ingress get no verdict here" in left_out
    assert "2 topics were not read , because no record asks for them: mail, logs." in left_out
    assert "1 of 2 deliveries have a time that only the proxy claims" in left_out
    assert "2 dead letters have a reason that no topic shows" in left_out
    assert "No limit of lateness was given , except for alerts-*" in left_out
    assert "The contents of check-backs were not compared with the 1 half message" in left_out


def test_report_of_nothing_claims_nothing(spark: SparkSession, tmp_path: Path) -> None:
    text = _text(_page(spark, tmp_path, []))
    assert "Exactly once held" not in text
    assert "There was no record to audit." in text


@pytest.mark.parametrize(
    ("duration_ms", "words"),
    [(None, "\N{EN DASH}"), (0, "0 ms"), (999, "999 ms"), (1500, "1.5 s"), (-90_000, "-1.5 min")],
)
def test_durations_have_the_unit_that_fits_them(duration_ms: int | None, words: str) -> None:
    assert milliseconds(duration_ms) == words


def test_a_detail_is_shown_as_a_sentence() -> None:
    assert sentence("it arrived 5 ms before its due") == "It arrived 5 ms before its due."


def test_numbers_and_moments_are_readable_at_any_size() -> None:
    assert thousands(1_234_567).split("\N{NARROW NO-BREAK SPACE}") == ["1", "234", "567"]
    assert moment(1_767_258_000_250) == "2026-01-01 09:00:00.250 UTC"
    assert moment(2**62) == f"{2**62} ms"
