"""The table of records that earlier audits left open, with their ends.
An audit reads a row if its review is due, or if a new record or end names it. It also reads
all rows that share an id with a new record or with a row that it reads.
"""

from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.histories.ends import (
    ENDS,
    NOT_COMPARED,
    PLACE,
    REQUESTS,
    own_subject,
    subject_hash,
)
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.frames import Materialise, Schema, conformed, struct_of
from spark_jobs.tables import Tables

TABLE: Final = "open"
ALWAYS: Final = -(2**62)
NEVER: Final = 2**62
"""Values of `review_ms`. A value below ALWAYS marks a row that was read, but not judged yet."""
_REQUEST: Final = {name: kind for name, kind in REQUESTS.items() if name not in PLACE}
_END: Final = {name: kind for name, kind in ENDS.items() if name not in PLACE}
OPEN: Final[Schema] = {
    "partition": "int",
    "offset": "bigint",
    "review_ms": "bigint",
    "has_id": "boolean",
    "id_hash": "bigint",
    "request": struct_of(_REQUEST),
    "ends": f"array<{struct_of(_END)}>",
}
"""Open records and their ends, by PLACE.
`review_ms`: every audit from this time on (epoch ms) reads the row. A row with NEVER is read only
if a new record or end concerns it. `id_hash`: hash of partition and subject (`ends.SUBJECT`). It is
null without an id, except for hops and recalls. `request`: null if the proxy had not read the
record. `ends`: the first end of each kind, given twice if there are several.
"""
_NEW_HASH: Final = f"""
IF(ident IS NULL AND hop_from IS NULL AND recalled IS NULL, NULL,
  {subject_hash(own_subject())})
"""
"""`id_hash` of a new request. Without an id, only hops and recalls can share a known subject."""
FOLDERS: Final = ("has_id",)
BY_REVIEW: Final = ("has_id", "review_ms")
"""The order of rows in files. With this order, an audit opens few files for rows to review."""
FILES_A_BATCH: Final = 2
MOST_FILES: Final = 300


class Touched(NamedTuple):
    """Rows of OPEN that an audit judges again."""

    version: int | None
    at_ms: int
    due: DataFrame
    """Rows whose `review_ms` has come by `at_ms`."""
    by_id: DataFrame
    """All other rows that share an id with a due row or a new record."""
    by_place: DataFrame | None

    @property
    def rows(self) -> DataFrame:
        both = self.due.unionByName(self.by_id)
        return both.unionByName(self.by_place) if self.by_place else both


class OpenRecords:
    """The table of open records in one location."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @property
    def version(self) -> int | None:
        return self._tables.version(TABLE)

    def touched(
        self,
        at_ms: int,
        new: tuple[DataFrame, DataFrame],
        closed: DataFrame,
        materialise: Materialise,
    ) -> Touched:
        """Return the rows to judge at `at_ms` beside `new` requests (REQUESTS) and ends (ENDS).
        `closed`: `closed_to` by partition. Requests below it are in the table, or need no review.
        """
        requests, ends = new
        held, version = self._tables.read(TABLE, OPEN), self.version
        due = materialise(held.filter(f"review_ms <= {at_ms}"))
        later = held.filter(f"review_ms > {at_ms}")
        gathered = due.filter(f"review_ms < {ALWAYS}")
        ids = requests.selectExpr(f"{_NEW_HASH} AS id_hash").unionByName(due.select("id_hash"))
        by_id = _sharing(later, ids, materialise)
        found = due.select(*PLACE).unionByName(by_id.select(*PLACE))
        named = _named(
            requests.unionByName(requests_of(gathered)), ends.unionByName(ends_of(gathered))
        ).join(f.broadcast(closed), "partition")
        before = named.filter("offset < closed_to").select(*PLACE).distinct()
        rest = materialise(before.join(found, [*PLACE], "left_anti"))
        if rest.isEmpty():
            return Touched(version, at_ms, due, by_id, None)
        placed = materialise(later.join(rest, [*PLACE], "left_semi"))
        alike = _sharing(later, placed.select("id_hash"), materialise)
        return Touched(version, at_ms, due, by_id, placed.filter("NOT has_id").unionByName(alike))

    def pending_beside(self, touched: Touched) -> int:
        is_pending = f"review_ms > {touched.at_ms} AND review_ms < {NEVER}"
        pending = self._tables.read(TABLE, OPEN).filter(is_pending).count()
        return pending - touched.rows.filter(is_pending).count()

    def gather(self, requests: DataFrame, ends: DataFrame, at_ms: int) -> tuple[int, DataFrame]:
        """Add REQUESTS and ENDS that no audit has judged. The next audit reads all these rows.
        Return the new version of the table, and the rows of the requests. These rows are
        marked with `at_ms`. Raises `ResultsRefused` as `put` does.
        """
        before, review_ms = self.version, ALWAYS - at_ms
        columns = {
            "review_ms": f"{review_ms}",
            "has_id": "false",
            "id_hash": "NULL",
            "request": "NULL",
            "ends": "array()",
        }
        asked = {**columns, "id_hash": _NEW_HASH, "request": _new_struct(_REQUEST)}
        ended = {**columns, "ends": f"array({_new_struct(_END)})"}
        rows = conformed(requests, OPEN, asked).unionByName(conformed(ends, OPEN, ended))
        self._tables.append(TABLE, rows, FOLDERS)
        kept = self._tables.read(TABLE, OPEN).filter(f"review_ms = {review_ms}")
        return self._own_version(before), kept.filter("request IS NOT NULL")

    def put(self, touched: Touched | None, rows: DataFrame) -> int:
        """Replace the touched rows (None: all rows) by `rows` (OPEN). Return the version.
        Raises `ResultsRefused` if another audit changes the table at the same time. The next audit
        undoes both changes.
        """
        before = touched.version if touched else self.version
        found = conformed(rows, OPEN)
        if touched is None or not self._tables.has(TABLE):
            laid_out = found.repartitionByRange(*BY_REVIEW).sortWithinPartitions(*BY_REVIEW)
            self._tables.replace(TABLE, laid_out, FOLDERS)
        else:
            later = f"here.review_ms > {touched.at_ms}"
            self._tables.delete(TABLE, f"review_ms <= {touched.at_ms}")
            ids = touched.by_id.select("id_hash").distinct()
            same_id = f"here.has_id AND {later} AND here.id_hash = there.id_hash"
            self._tables.delete_matching(TABLE, ids, same_id)
            if touched.by_place:
                same = " AND ".join(f"here.{name} = there.{name}" for name in PLACE)
                places = touched.by_place.select(*PLACE)
                self._tables.delete_matching(TABLE, places, f"{later} AND {same}")
            self._tables.append(TABLE, found.coalesce(FILES_A_BATCH), FOLDERS)
            if self._tables.files(TABLE) > MOST_FILES:
                self._tables.tidy(TABLE)
        return self._own_version(before)

    def _own_version(self, before: int | None) -> int:
        changes = self._tables.changes(TABLE, before)
        if changes.others:
            raise ResultsRefused(
                "Another audit is continuing the same audit at the same time.",
                "Run only one audit at a time for each --output. Run this one again.",
            )
        return changes.version

    def copy(self, others: "OpenRecords", version: int) -> None:
        self._tables.replace(TABLE, others.as_of(version), FOLDERS)

    def as_of(self, version: int) -> DataFrame:
        return self._tables.read(TABLE, OPEN, version)

    def go_back(self, version: int | None) -> None:
        """Undo an unfinished audit: return to this version of the table. None: delete all rows."""
        if version is None and self._tables.has(TABLE):
            self._tables.delete(TABLE, "true")
        elif version is not None and self.version != version:
            self._tables.restore(TABLE, version)


def requests_of(rows: DataFrame) -> DataFrame:
    """Return REQUESTS from these rows of OPEN."""
    fields = {name: f"request.{name}" for name in _REQUEST}
    return conformed(rows.filter("request IS NOT NULL"), REQUESTS, fields)


def ends_of(rows: DataFrame) -> DataFrame:
    """Return ENDS from these rows of OPEN."""
    found = rows.selectExpr(*PLACE, "explode(ends) AS found")
    return conformed(found, ENDS, {name: f"found.{name}" for name in _END})


def _new_struct(fields: Schema) -> str:
    unkept = {name: f"CAST(NULL AS {REQUESTS[name]})" for name in NOT_COMPARED}
    columns = ", ".join(f"'{name}', {unkept.get(name, f'`{name}`')}" for name in fields)
    return f"named_struct({columns})"


def _sharing(rows: DataFrame, ids: DataFrame, materialise: Materialise) -> DataFrame:
    given = materialise(ids.filter("id_hash IS NOT NULL").distinct())
    return materialise(rows.filter("has_id").join(given, "id_hash", "left_semi").select(*OPEN))


def _named(requests: DataFrame, ends: DataFrame) -> DataFrame:
    gone_on = requests.filter("hop_from IS NOT NULL").selectExpr("partition", "hop_from AS offset")
    recalled = requests.filter("recalled IS NOT NULL").selectExpr("partition", "recalled AS offset")
    return ends.select(*PLACE).unionByName(gone_on).unionByName(recalled)
