"""What audits that go on from one another keep: each record that is not done, beside its ends.

One table, by place. A batch looks at few of its rows: those whose `review_ms` has come, those that
share an id with a new record or with one of these, and those that something new names. The others
stay as they are, pending or done, and cost nothing but their place on disk.
"""

from typing import Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.evidence.ends import ENDS
from spark_jobs.evidence.previous_audit import REQUESTS
from spark_jobs.evidence.record_histories import NOT_COMPARED, PLACE
from spark_jobs.evidence.subjects import own_subject, subject_hash
from spark_jobs.runtime.errors import ResultsRefused
from spark_jobs.runtime.frames import Schema, conformed
from spark_jobs.runtime.materialised import Materialise
from spark_jobs.tables.tables import Tables

TABLE: Final = "open"
ALWAYS: Final = -(2**62)
NEVER: Final = 2**62
"""Below ALWAYS are rows that no audit has judged yet."""
_REQUEST: Final = {name: kind for name, kind in REQUESTS.items() if name not in PLACE}
_END: Final = {name: kind for name, kind in ENDS.items() if name not in PLACE}


def _struct(fields: Schema) -> str:
    return f"struct<{','.join(f'{name}:{kind}' for name, kind in fields.items())}>"


OPEN: Final[Schema] = {
    "partition": "int",
    "offset": "bigint",
    "review_ms": "bigint",
    "has_id": "boolean",
    "id_hash": "bigint",
    "request": _struct(_REQUEST),
    "ends": f"array<{_struct(_END)}>",
}
"""review_ms: from when on (epoch ms) every audit looks at it again: ALWAYS, or NEVER unless
something new asks for it. id_hash: of partition and subject (`subjects`); null without an id, but
for hops and recalls. request: null of what
the proxy had not read. ends: the first of each kind, twice where there are more."""


_NEW_HASH: Final = f"""
IF(ident IS NULL AND hop_from IS NULL AND recalled IS NULL, NULL,
  {subject_hash(own_subject())})
"""
"""Of a request that is read for the first time: of those without an id nothing that is known has
the subject, but for hops and recalls."""
FOLDERS: Final = ("has_id",)
BY_REVIEW: Final = ("has_id", "review_ms")
"""How rows are put into files: a review then opens a few of them."""
FILES_A_BATCH: Final = 2
MOST_FILES: Final = 300
"""More are put together."""


class Touched(NamedTuple):
    """Rows of OPEN that an audit looks at again, apart by how they are found. due: their review has
    come by `at_ms`. by_id: others, all those with the ids in them. by_place: yet others. version:
    of the table, when they were found."""

    version: int | None
    at_ms: int
    due: DataFrame
    by_id: DataFrame
    by_place: DataFrame | None

    @property
    def rows(self) -> DataFrame:
        """All of them."""
        both = self.due.unionByName(self.by_id)
        return both.unionByName(self.by_place) if self.by_place else both


class OpenRecords:
    """The table of them, in one location."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    @property
    def version(self) -> int | None:
        """Of the table, the newest; None where there is none."""
        return self._tables.version(TABLE)

    def touched(
        self,
        at_ms: int,
        new: tuple[DataFrame, DataFrame],
        closed: DataFrame,
        materialise: Materialise,
    ) -> Touched:
        """What is to be judged at `at_ms` beside `new` requests (REQUESTS) and ends (ENDS).
        `closed`: `closed_to` by partition; below it all requests are in the table, or done."""
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

    def waiting_beside(self, touched: Touched) -> int:
        """How many wait that were not touched."""
        waits = f"review_ms > {touched.at_ms} AND review_ms < {NEVER}"
        waiting = self._tables.read(TABLE, OPEN).filter(waits).count()
        return waiting - touched.rows.filter(waits).count()

    def gather(self, requests: DataFrame, ends: DataFrame, at_ms: int) -> tuple[int, DataFrame]:
        """Add REQUESTS and ENDS that no audit has judged yet. The next one looks at all of them.

        Return the version that the table has then, and the requests' rows in it. at_ms: tells them
        apart from those that were added before. Raises `ResultsRefused` as `put` does.
        """
        before, review_ms = self.version, ALWAYS - at_ms
        rows = _gathered_requests(requests, review_ms).unionByName(_gathered_ends(ends, review_ms))
        self._tables.append(TABLE, rows, FOLDERS)
        kept = self._tables.read(TABLE, OPEN).filter(f"review_ms = {review_ms}")
        return self._own_version(before), kept.filter("request IS NOT NULL")

    def put(self, touched: Touched | None, rows: DataFrame) -> int:
        """Put `rows` (OPEN) in the place of those that were touched; of all, if None. The version
        that the table has then.

        Raises `ResultsRefused` where another audit changes the table at the same time: what both
        did to it is undone by the next one."""
        before = touched.version if touched else self.version
        self._put(touched, conformed(rows, OPEN))
        return self._own_version(before)

    def _own_version(self, before: int | None) -> int:
        """Return the newest version. Raises `ResultsRefused` if another audit made one since."""
        changes = self._tables.changes(TABLE, before)
        if changes.others:
            raise ResultsRefused(
                "Another audit goes on from the same one at the same time.",
                "Let one run in a place at a time, and run this one again.",
            )
        return changes.version

    def _put(self, touched: Touched | None, found: DataFrame) -> None:
        if touched is None or not self._tables.has(TABLE):
            laid_out = found.repartitionByRange(*BY_REVIEW).sortWithinPartitions(*BY_REVIEW)
            self._tables.replace(TABLE, laid_out, FOLDERS)
            return
        self._take_out(touched)
        self._tables.append(TABLE, found.coalesce(FILES_A_BATCH), FOLDERS)
        if self._tables.files(TABLE) > MOST_FILES:
            self._tables.tidy(TABLE)

    def copy(self, others: "OpenRecords", version: int) -> None:
        """Have those of another location, as they were at that version."""
        self._tables.replace(TABLE, others.as_of(version), FOLDERS)

    def as_of(self, version: int) -> DataFrame:
        """OPEN as the table was at that version."""
        return self._tables.read(TABLE, OPEN, version)

    def go_back(self, version: int | None) -> None:
        """Undo what an audit did to the table that did not come to its end; None: all of it."""
        if version is None and self._tables.has(TABLE):
            self._tables.delete(TABLE, "true")
        elif version is not None and self.version != version:
            self._tables.restore(TABLE, version)

    def _take_out(self, touched: Touched) -> None:
        later = f"here.review_ms > {touched.at_ms}"
        self._tables.delete(TABLE, f"review_ms <= {touched.at_ms}")
        ids = touched.by_id.select("id_hash").distinct()
        same_id = f"here.has_id AND {later} AND here.id_hash = there.id_hash"
        self._tables.delete_matching(TABLE, ids, same_id)
        if touched.by_place:
            same = " AND ".join(f"here.{name} = there.{name}" for name in PLACE)
            self._tables.delete_matching(
                TABLE, touched.by_place.select(*PLACE), f"{later} AND {same}"
            )


def requests_of(rows: DataFrame) -> DataFrame:
    """REQUESTS in these rows of OPEN."""
    fields = {name: f"request.{name}" for name in _REQUEST}
    return conformed(rows.filter("request IS NOT NULL"), REQUESTS, fields)


def ends_of(rows: DataFrame) -> DataFrame:
    """ENDS in these rows of OPEN."""
    found = rows.selectExpr(*PLACE, "explode(ends) AS found")
    return conformed(found, ENDS, {name: f"found.{name}" for name in _END})


def _gathered_requests(requests: DataFrame, review_ms: int) -> DataFrame:
    """OPEN of requests that are read for the first time."""
    unkept = {name: f"CAST(NULL AS {REQUESTS[name]})" for name in NOT_COMPARED}
    fields = ", ".join(f"'{name}', {unkept.get(name, f'`{name}`')}" for name in _REQUEST)
    return conformed(
        requests,
        OPEN,
        {
            "review_ms": f"{review_ms}",
            "has_id": "false",
            "id_hash": _NEW_HASH,
            "request": f"named_struct({fields})",
            "ends": "array()",
        },
    )


def _gathered_ends(ends: DataFrame, review_ms: int) -> DataFrame:
    """OPEN of ends that are read for the first time."""
    fields = ", ".join(f"'{name}', `{name}`" for name in _END)
    return conformed(
        ends,
        OPEN,
        {
            "review_ms": f"{review_ms}",
            "has_id": "false",
            "id_hash": "NULL",
            "request": "NULL",
            "ends": f"array(named_struct({fields}))",
        },
    )


def _sharing(rows: DataFrame, ids: DataFrame, materialise: Materialise) -> DataFrame:
    """Those of the rows of OPEN that have one of the ids (`id_hash`)."""
    given = materialise(ids.filter("id_hash IS NOT NULL").distinct())
    return materialise(rows.filter("has_id").join(given, "id_hash", "left_semi").select(*OPEN))


def _named(requests: DataFrame, ends: DataFrame) -> DataFrame:
    """Places (PLACE) of which something new speaks."""
    gone_on = requests.filter("hop_from IS NOT NULL").selectExpr("partition", "hop_from AS offset")
    recalled = requests.filter("recalled IS NOT NULL").selectExpr("partition", "recalled AS offset")
    return ends.select(*PLACE).unionByName(gone_on).unionByName(recalled)
