"""The figures of an audit, and the history of the audits in a location."""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.audit_scope import NO_LIMITS, LatenessLimits
from spark_jobs.histories.open_records import OpenRecords
from spark_jobs.histories.reader import PartitionTotal, ReadSoFar, Unverifiable
from spark_jobs.results.formatting import moment
from spark_jobs.runtime.errors import BEGIN_ANEW, ResultsRefused, explained
from spark_jobs.runtime.frames import Location, Schema, local_rows, quoted
from spark_jobs.tables import Tables
from spark_jobs.verdicts.verdict_names import ARRIVED, PENDING

MINUTE_MS: Final = 60_000
EXACTNESS: Final = 10_000
"""percentile_approx may miss the wanted rank by 1 / EXACTNESS of the number of rows."""
_FIGURES: Final = ("records", "ranked[0] AS p50_ms", "ranked[1] AS p99_ms", "max_ms")
_GROUPS: Final = ("has_arrived", "target", "step")
_OF_ARRIVED, _OF_TARGETS, _OF_STEPS = 0b011, 0b101, 0b110
"""Spark's numbers for the grouping sets. A bit is 1 if the set leaves out its column of _GROUPS."""


class Figures(NamedTuple):
    """Lateness figures of some deliveries."""

    records: int
    p50_ms: int
    p99_ms: int
    max_ms: int


class Lateness(NamedTuple):
    """Lateness of an audit's deliveries: of all, of each target, and of each step of time."""

    arrived: Figures | None
    """Figures of all correct deliveries (ARRIVED); None if there is no such delivery."""
    by_target: Mapping[str, Figures]
    by_step: Mapping[int, Figures]


def lateness(verdicts: DataFrame, step: Column) -> Lateness:
    """Return the lateness of VERDICTS, with one query. `step`: the number of a time step."""
    late = verdicts.where("lateness_ms IS NOT NULL").select(
        f.expr(f"verdict IN {quoted(ARRIVED)}").alias("has_arrived"),
        "target",
        step.alias("step"),
        "lateness_ms",
    )
    grouped = late.groupingSets([[name] for name in _GROUPS], *_GROUPS)
    counted = grouped.agg(f.grouping_id().alias("left_out"), *_counted())
    found: dict[int, dict[Any, Figures]] = {_OF_ARRIVED: {}, _OF_TARGETS: {}, _OF_STEPS: {}}
    for row in counted.selectExpr("left_out", *_GROUPS, *_FIGURES).collect():
        key = row[_GROUPS[[*found].index(row.left_out)]]
        found[row.left_out][key] = Figures(*(row[name] for name in Figures._fields))
    by_step = {step: one for step, one in found[_OF_STEPS].items() if step is not None}
    return Lateness(found[_OF_ARRIVED].get(True), found[_OF_TARGETS], by_step)


def by_minute(verdicts: DataFrame, *beside: str) -> DataFrame:
    """Return Figures by the columns `beside`, `target` and minute of the due (`minute_ms`)."""
    minute_ms = f.col("due_ms") - f.pmod("due_ms", f.lit(MINUTE_MS))
    late = verdicts.where("lateness_ms IS NOT NULL")
    grouped = late.groupBy(*beside, "target", minute_ms.alias("minute_ms"))
    return grouped.agg(*_counted()).selectExpr(*beside, "target", "minute_ms", *_FIGURES)


def _counted() -> list[Column]:
    """Return the aggregates of _FIGURES. Both percentiles come from one sketch."""
    late = f.col("lateness_ms")
    return [
        f.count(late).alias("records"),
        f.percentile_approx(late, [0.5, 0.99], EXACTNESS).alias("ranked"),
        f.max(late).alias("max_ms"),
    ]


HELD: Final = 0
VIOLATED: Final = 2
NOT_ALL_JUDGED: Final = 3
"""Exit codes of an audit that was made."""
WORDS: Final = {
    HELD: "held",
    VIOLATED: "violated",
    NOT_ALL_JUDGED: "held as far as could be judged",
}
LatenessMs = dict[str, int | None]
"""Lateness by `p50`, `p99` and `max`, in ms; null without a delivery."""


class AuditedRange(NamedTuple):
    """The audited offsets [start, end) of an ingress partition, and the proxy's position."""

    partition: int
    start: int
    end: int
    next_offset: int
    watermark_ms: int
    log_start: int
    log_end: int


@dataclass(frozen=True, slots=True)
class Audited:
    """The audited ranges and the scope."""

    bootstrap: str
    ingress_topic: str
    at_ms: int
    ranges: tuple[AuditedRange, ...]
    unverifiable: tuple[Unverifiable, ...] = ()
    uncovered: tuple[str, ...] = ()
    """Topics that were not searched for deliveries."""
    limits: LatenessLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of an audit.
    `late`, `overdue`: records beyond the lateness limit, which are violations. Without a limit,
    records beyond USUAL_MS are counted, and are no violations.
    `until_ms`: all records up to this time are judged. `not_judged`: counts by reason.
    `attested`: deliveries with the broker's time. `claimed`: deliveries with the proxy's time.
    `believed`: dead letters whose reason no topic shows. `control`: records read and judged, by
    ingress partition.
    """

    verdicts: dict[str, int]
    violations: int
    violations_by: dict[str, int]
    lateness_ms: LatenessMs
    late: int
    overdue: int
    until_ms: int
    not_judged: dict[str, int]
    audited: Audited
    attested: int = 0
    claimed: int = 0
    believed: int = 0
    control: tuple[PartitionTotal, ...] = ()

    @property
    def exit_code(self) -> int:
        if self.violations:
            return VIOLATED
        return NOT_ALL_JUDGED if self.not_judged else HELD

    def to_json(self) -> dict[str, Any]:
        audited = self.audited
        return {
            "result": WORDS[self.exit_code],
            "verdicts": self.verdicts,
            "violations": self.violations,
            "violations_by": self.violations_by,
            "not_judged": self.not_judged,
            "lateness_ms": self.lateness_ms,
            "late": self.late,
            "overdue": self.overdue,
            "believed": self.believed,
            "times": {"attested": self.attested, "claimed": self.claimed},
            "ingress": audited.ingress_topic,
            "control": [one._asdict() for one in self.control],
            "not_read": [*audited.uncovered],
            "ranges": [one._asdict() for one in audited.ranges],
            "unverifiable": [one._asdict() for one in audited.unverifiable],
            "at_ms": audited.at_ms,
            "audited_until_ms": self.until_ms,
        }

    def lines(self) -> Iterator[str]:
        """Yield the verdicts, the reasons and the result for a terminal."""
        for verdict, count in self.verdicts.items():
            if count:
                yield f"{count:>12,}  {verdict.replace('_', ' ')}"
        for reason, count in self.not_judged.items():
            yield f"{count:>12,}  could not be judged: {reason}"
        unjudged = sum(self.not_judged.values())
        result = {
            VIOLATED: f"{self.violations} violations.",
            NOT_ALL_JUDGED: f"Held as far as could be judged: no violation, {unjudged} not judged.",
            HELD: "Held: no violation.",
        }[self.exit_code]
        yield f"{result} All is judged up to {moment(self.until_ms)}."


NO_VERDICTS: Final = Summary({}, 0, {}, {}, 0, 0, 0, {}, Audited("", "", 0, ()))
"""The summary of a portion, whose records are not judged yet."""


def with_pending(summary: Summary, count: int) -> Summary:
    """Return the summary with further pending records, which earlier audits left open."""
    pending = summary.verdicts.get(PENDING, 0) + count
    return replace(summary, verdicts={**summary.verdicts, PENDING: pending})


# The audits of one location. The Delta table `audits` has a row for each audit. It is written last.
# Without this row an audit does not exist, even if other tables have rows of the audit. If the
# location is a folder of this machine, the newest audit's report and figures are files beside the
# tables.

TABLE: Final = "audits"
AUDITS: Final[Schema] = {
    "audit": "string",
    "at_ms": "bigint",
    "until_ms": "bigint",
    "goes_on_from": "string",
    "result": "string",
    "violations": "bigint",
    "summary": "string",
    "read": "string",
    "open_version": "bigint",
    "repeat_inputs": "string",
    "report": "string",
}
"""A row for each audit.
`audit`: its name. Names sort by time. `at_ms`: the audited instant. `until_ms`: all records up to
this time are judged. `goes_on_from`: the audit that it continues, null if it read all
records. `result`: as in `summary.json`, or PORTION. `read`: the progress. `open_version`: the
version of the table `open`. If options limited the audit, `read` and `open_version` are null, and
no audit continues it. `summary`, `repeat_inputs`: the texts of the files. `report`: the page.
"""
SUMMARY: Final = "summary.json"
REPORT: Final = "report.html"
REPEAT: Final = "repeat.json"
PORTION: Final = "portion"
"""The `result` of a row for a portion. The next audit judges the records of the portion."""


@dataclass(frozen=True, slots=True)
class MadeAudit:
    """An audit that another audit can continue."""

    name: str
    read: ReadSoFar
    open_version: int


class History:
    """The audits of a location."""

    def __init__(self, spark: SparkSession, place: Location) -> None:
        self._spark, self.place = spark, place
        self.tables = Tables(spark, place)
        self.records = OpenRecords(self.tables)

    @property
    def audits(self) -> DataFrame:
        return self.tables.read(TABLE, AUDITS)

    @property
    def has_any(self) -> bool:
        """Whether there is an audit that another can continue."""
        return not self._whole().isEmpty()

    def newest(self, name: str | None = None) -> MadeAudit:
        """Return the newest audit that another audit can continue, or the audit of this name.
        Raises `ResultsRefused`.
        """
        audits = self._whole()
        named = audits.where(f.col("audit") == name) if name else audits
        for row in named.orderBy(f.desc("audit")).limit(1).collect():
            try:
                read = ReadSoFar.from_json(json.loads(row.read))
            except (KeyError, TypeError, ValueError) as error:
                raise ResultsRefused(
                    f"The open records of the audit {row.audit} in {self.place} cannot be read: "
                    f"{error}.",
                    BEGIN_ANEW,
                ) from None
            return MadeAudit(row.audit, read, row.open_version)
        raise ResultsRefused(
            f"{self.place} has no audit that can be continued: there is none, or "
            "--since, --until or --offsets limited it.",
            "Name in --continue-from the place of an audit without these options.",
        )

    def last_chain(self) -> list[str]:
        rows = self.audits.select("audit", "goes_on_from").collect()
        before = {row.audit: row.goes_on_from for row in rows}
        chain: list[str] = []
        name = max(before, default=None)
        while name is not None and name in before:
            chain.append(name)
            name = before[name]
        return chain

    def _whole(self) -> DataFrame:
        return self.audits.where("read IS NOT NULL").select("audit", "read", "open_version")

    def add(self, made: dict[str, Any]) -> None:
        """Add the row of AUDITS for an audit whose tables are written. Then the audit exists."""
        self.tables.append(TABLE, local_rows(self._spark, [made], AUDITS).coalesce(1))
        folder = self.place.folder
        if folder and made["result"] != PORTION:
            _write(folder / REPORT, made["report"])
            _write(folder / REPEAT, made["repeat_inputs"] + "\n")
            _write(folder / SUMMARY, made["summary"] + "\n")


def new_name() -> str:
    """Return the name of an audit that begins now. It sorts after older ones."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(2)}"


def row_of(
    name: str,
    summary: Summary,
    page: str,
    before: MadeAudit | None,
    repeat_inputs: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the row of AUDITS for an audit.
    No other audit can continue it, unless the columns of `gone_on_from` are added.
    """
    return {
        "audit": name,
        "at_ms": summary.audited.at_ms,
        "until_ms": summary.until_ms,
        "goes_on_from": before and before.name,
        "result": WORDS[summary.exit_code],
        "violations": summary.violations,
        "summary": json.dumps(summary.to_json(), indent=2),
        "read": None,
        "open_version": None,
        "repeat_inputs": json.dumps(repeat_inputs or {}, indent=2),
        "report": page,
    }


def gone_on_from(read: ReadSoFar, open_version: int) -> dict[str, Any]:
    """Return the columns of AUDITS that the next audit needs to continue this audit."""
    return {"read": json.dumps(read.to_json()), "open_version": open_version}


def check_place(place: Location) -> None:
    """Raise `ResultsRefused` if a local folder has other files than results, or is not writable."""
    folder = place.folder
    if folder is None:
        return
    is_other = folder.is_dir() and any(folder.iterdir()) and not (folder / TABLE).is_dir()
    if is_other or (not folder.is_dir() and (folder.exists() or folder.is_symlink())):
        raise ResultsRefused(
            f"{folder} exists and does not hold the results of audits.",
            "Name a new folder in --output, or one that an audit wrote before.",
        )
    with writing(place):
        (folder / TABLE).mkdir(parents=True, exist_ok=True)


@contextmanager
def writing(place: Location) -> Iterator[None]:
    """Turn errors of disk and Spark into `AuditError`s while results are written."""
    try:
        with explained():
            yield
    except OSError as error:
        raise ResultsRefused(
            f"The results cannot be written to {place}: {error}.",
            "Make it writable, or name another place in --output.",
        ) from error


def _write(place: Path, text: str) -> None:
    arriving = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        arriving.write_text(text, "utf-8")
        arriving.replace(place)
    finally:
        arriving.unlink(missing_ok=True)
