"""The audits of one location, one after the other: which were made, and what each goes on from.

A location has Delta tables. `audits` has a row for each audit, written last: without it an audit
does not exist, whatever rows other tables have of it (`result_tables`). On this machine's disk the
newest audit's report and figures lie beside them as files.
"""

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.evidence.open_records import OpenRecords
from spark_jobs.evidence.previous_audit import ReadSoFar
from spark_jobs.results.summary import WORDS, Summary
from spark_jobs.runtime.errors import BEGIN_ANEW, ResultsRefused
from spark_jobs.runtime.failures import explained
from spark_jobs.runtime.frames import Schema, local_rows
from spark_jobs.runtime.location import Location
from spark_jobs.tables.tables import Tables

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
    "evidence": "string",
    "report": "string",
}
"""audit: its name; names sort as the audits were made. at_ms: the audited instant; until_ms: up to
when all is judged. goes_on_from: the audit before, null where everything was read. result: as in
`summary.json`, or PORTION. read: how far it read; open_version: of the table `open`; both are null
where options limited it, and nobody goes on from it. summary, evidence: as the files. report: the
page."""
SUMMARY: Final = "summary.json"
REPORT: Final = "report.html"
EVIDENCE: Final = "evidence.json"
PORTION: Final = "portion"
"""The result of a row that is no audit: records were read that the next audit judges."""
OLD_STATE: Final = ("state", "checkpoint")
"""Folders in which `audit --follow` of older versions kept its state."""


@dataclass(frozen=True, slots=True)
class MadeAudit:
    """An audit that others can go on from: its name, how far it read, and its `open` table."""

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
        """AUDITS."""
        return self.tables.read(TABLE, AUDITS)

    @property
    def has_any(self) -> bool:
        """Whether there is an audit that can be gone on from."""
        return not self._whole().isEmpty()

    def check_no_old_state(self) -> None:
        """Raise `ResultsRefused` if `audit --follow` of an older version kept its state there."""
        if self.tables.has(OLD_STATE[0]) and not self.tables.has(TABLE):
            raise _old_state(self.place)

    def newest(self) -> MadeAudit:
        """The last one that can be gone on from.

        Raises `ResultsRefused` where there is none, or what it says cannot be read."""
        return self._made(self._whole())

    def named(self, name: str) -> MadeAudit:
        """The audit of this name, if it can be gone on from. Raises `ResultsRefused`."""
        return self._made(self._whole().where(f.col("audit") == name))

    def _made(self, audits: DataFrame) -> MadeAudit:
        for row in audits.orderBy(f.desc("audit")).limit(1).collect():
            try:
                read = ReadSoFar.from_json(json.loads(row.read))
            except (KeyError, TypeError, ValueError) as error:
                raise ResultsRefused(
                    f"What the audit {row.audit} in {self.place} left open cannot be read: "
                    f"{error}.",
                    BEGIN_ANEW,
                ) from None
            return MadeAudit(row.audit, read, row.open_version)
        raise ResultsRefused(
            f"{self.place} does not hold an audit that another can go on from: there is none, or "
            "--since, --until or --offsets limited it.",
            "Name in --continue-from where an audit of everything was written.",
        )

    def last_chain(self) -> list[str]:
        """The names of the last audit and of those that it goes on from, as far as they are here;
        none where there is no audit."""
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
        """Add an audit (a row of AUDITS) whose tables are written: with this, it is there."""
        self.tables.append(TABLE, local_rows(self._spark, [made], AUDITS).coalesce(1))
        folder = self.place.folder
        if folder and made["result"] != PORTION:
            _write(folder / REPORT, made["report"])
            _write(folder / EVIDENCE, made["evidence"] + "\n")
            _write(folder / SUMMARY, made["summary"] + "\n")


def new_name() -> str:
    """Of an audit that begins now: after all older ones in order."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(2)}"


def row_of(
    name: str,
    summary: Summary,
    page: str,
    before: MadeAudit | None,
    evidence: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """AUDITS of one that nobody goes on from."""
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
        "evidence": json.dumps(evidence or {}, indent=2),
        "report": page,
    }


def row_of_portion(name: str, summary: Summary, before: MadeAudit | None) -> dict[str, Any]:
    """AUDITS of a portion."""
    return {**row_of(name, summary, "", before), "result": PORTION}


def gone_on_from(read: ReadSoFar, open_version: int) -> dict[str, Any]:
    """What AUDITS has of one that another can go on from."""
    return {"read": json.dumps(read.to_json()), "open_version": open_version}


def check_place(place: Location) -> None:
    """Raises `ResultsRefused` where a folder of this machine holds something else than audits, or
    cannot be written to."""
    folder = place.folder
    if folder is None:
        return
    if (folder / SUMMARY).is_file() and not (folder / TABLE).is_dir():
        raise ResultsRefused(
            f"{folder} holds the results of an audit by an older version.",
            "Name a new folder in --output.",
        )
    if all((folder / name).is_dir() for name in OLD_STATE) and not (folder / TABLE).is_dir():
        raise _old_state(place)
    is_other = folder.is_dir() and any(folder.iterdir()) and not (folder / TABLE).is_dir()
    if is_other or (not folder.is_dir() and (folder.exists() or folder.is_symlink())):
        raise ResultsRefused(
            f"{folder} exists and does not hold the results of audits.",
            "Name a new folder in --output, or one that an audit wrote before.",
        )
    with writing(place):
        (folder / TABLE).mkdir(parents=True, exist_ok=True)


def _old_state(place: Location) -> ResultsRefused:
    return ResultsRefused(
        f"{place} holds the state of `audit --follow` of an older version. This version cannot go "
        "on from it.",
        "Name another --output: the audit begins anew there.",
    )


@contextmanager
def writing(place: Location) -> Iterator[None]:
    """What disk and Spark refuse while results are written to the place, as `AuditError`s."""
    try:
        with explained():
            yield
    except OSError as error:
        raise ResultsRefused(
            f"The results cannot be written to {place}: {error}.",
            "Make it writable, or name another place in --output.",
        ) from error


def _write(place: Path, text: str) -> None:
    """The file appears whole, in place of an older one."""
    arriving = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        arriving.write_text(text, "utf-8")
        arriving.replace(place)
    finally:
        arriving.unlink(missing_ok=True)
