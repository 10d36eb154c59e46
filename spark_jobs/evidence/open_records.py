"""Records that earlier audits left open."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark_jobs.evidence.audit_job import own_subject, subject_hash
from spark_jobs.evidence.ends import ENDS, NOT_COMPARED, PLACE
from spark_jobs.evidence.previous_audit import REQUESTS, ReadSoFar, Span
from spark_jobs.kafka.broker import Place
from spark_jobs.kafka.positions import EndRange, IngressPosition, PolicyFrom, Range, Snapshot
from spark_jobs.runtime.errors import BEGIN_ANEW, NotOurs, ResultsRefused
from spark_jobs.runtime.frames import Materialise, Schema, conformed, local_rows
from spark_jobs.tables import Tables

# Moves: records that take the place of one that waits, with another due, if it still does.
#
# See docs/exactly-once.md#moved-records. What takes a place goes on from the record there, as a
# hop does; what came too late for that says `missed`, and has nothing to do with that record.

IS_MOVE: Final = """
coalesce(request.kind IN ('record', 'refused') AND request.moved_due_ms IS NOT NULL, false)
"""
"""SQL: whether a record is to take the place of another one, if only to be a dead letter there."""
MISSED_ITS_PLACE: Final = f"({IS_MOVE} AND coalesce(outcome.end = 'missed', false))"
"""SQL: whether it says that it came too late."""
MOVED: Final = "moved"
WAS_MOVED: Final = f"""
coalesce(outcome.end IN ('replaced', 'requeued') AND outcome.detail = '{MOVED}', false)
"""
"""SQL: whether an outcome says that a move, `outcome.next_offset`, has taken the place."""


# The state of each ingress partition in an audit, by the snapshot and by previous audits.
#
# All that is read once is not read again; where retention was faster than the audits, they begin
# anew behind the gap.

MOST_AHEAD: Final = 1_000_000
"""Offsets of a partition that an audit of what is settled reads beyond the proxy, for successors in
them."""
WHY_DELETED: Final = "retention has deleted these records from the ingress"


class PartitionState(NamedTuple):
    """An ingress partition, by offsets; what ends there is exclusive.

    [read_from, read_to): what this audit or one that it continues has read. Below closed_to
    previous audits gave the verdicts, but for what they left open. [audited_from, audited_to): what
    gets a verdict. settled_end: below it lies all that was written with the committed position.
    log_end: where the ingress ended after all ends were read. The next three are that position: O,
    T and C of docs/exactly-once.md#what-is-committed; floor is its F. Below known_from it is not
    known what records asked for: they were not read, or the settings are gone that judged them.
    """

    partition: int
    read_from: int
    closed_to: int
    audited_from: int
    audited_to: int
    read_to: int
    settled_end: int
    log_end: int
    next_offset: int
    watermark_ms: int
    cursor: int
    known_from: int
    floor: int

    @property
    def span_after(self) -> Span:
        """What the next audit finds read, understood and done."""
        return Span(self.known_from, max(self.closed_to, self.next_offset))


PARTITION_STATE: Final[Schema] = {
    **dict.fromkeys(PartitionState._fields, "bigint"),
    "partition": "int",
}


class Unverifiable(NamedTuple):
    """Ingress offsets [start, end) of a partition that could not be judged, and why."""

    partition: int
    start: int
    end: int
    why: str


def partition_states(
    taken: Snapshot, before: ReadSoFar, *, settled_only: bool = False
) -> list[PartitionState]:
    """The state of each ingress partition. settled_only: no record gets a verdict that the proxy
    has not read."""
    states = [_state(one, before.ingress.get(one.partition)) for one in taken.ingress]
    if before.judged is not None:
        judged = {
            place[1]: at for place, at in before.judged.items() if place[0] == taken.ingress_topic
        }
        states = [one._replace(audited_from=judged.get(one.partition, 0)) for one in states]
    return [_settled(one) for one in states] if settled_only else states


def _settled(one: PartitionState) -> PartitionState:
    return one._replace(
        audited_to=max(one.closed_to, min(one.audited_to, one.next_offset)),
        read_to=max(one.closed_to, min(one.read_to, one.next_offset + MOST_AHEAD)),
    )


def partition_frame(spark: SparkSession, states: Sequence[PartitionState]) -> DataFrame:
    """PARTITION_STATE of these partitions."""
    return local_rows(spark, [one._asdict() for one in states], PARTITION_STATE)


def unverifiable(taken: Snapshot, before: ReadSoFar) -> list[Unverifiable]:
    """What retention deleted before any audit read it, where the audit is to begin there."""
    unread_from = before.closed(taken.ingress_topic)
    gaps = [
        (one.partition, unread_from.get((taken.ingress_topic, one.partition), 0), one.start)
        for one in taken.ingress
        if one.audited_from <= one.start
    ]
    return [Unverifiable(*gap, WHY_DELETED) for gap in gaps if gap[1] < gap[2]]


def unread(ranges: Sequence[Range], read: Mapping[Place, int]) -> list[Range]:
    """What lies in these ranges and was not read before."""
    return [_from(one, read.get((one.topic, one.partition), 0)) for one in ranges]


def unread_ends(taken: Snapshot, before: ReadSoFar) -> list[EndRange]:
    """The same for ends. What was read before it was deleted is no loss; a topic that was created
    anew is read from its beginning.

    Raises `NotOurs` where a topic ends before what was read of it."""
    return [
        _unread_end(
            one,
            _read_to(one, taken, before),
            before.lost.get((one.range.topic, one.range.partition)),
        )
        for one in taken.ends
    ]


def _read_to(one: EndRange, taken: Snapshot, before: ReadSoFar) -> int | None:
    """Up to where it was read; None: another topic of its name was."""
    topic = one.range.topic
    known = before.topic_ids.get(topic)
    if known is not None and known != taken.topic_ids.get(topic, known):
        return None
    return before.ends.get((topic, one.range.partition), 0)


def read_so_far(
    taken: Snapshot, group: str, states: Sequence[PartitionState], asked_for: Sequence[str]
) -> ReadSoFar:
    """Where an audit that goes on from this one begins. `asked_for`: targets that are not there."""
    return ReadSoFar(
        taken.ingress_topic,
        taken.topic_id,
        group,
        {one.partition: one.span_after for one in states},
        {(one.topic, one.partition): one.end for one in taken.end_ranges},
        taken.topic_ids,
        asked_for,
    )


def lost_of(taken: Snapshot) -> dict[Place, int]:
    """Where records were deleted before an audit read them, and up to when these were written."""
    return {
        (one.range.topic, one.range.partition): (
            one.first_ms if one.has_lost and one.first_ms is not None else taken.taken_at_ms
        )
        for one in taken.ends
        if one.has_lost or one.is_recreated
    }


def check_same(before: ReadSoFar, topic: str, topic_id: str, group: str) -> None:
    """Raises `NotOurs` where an earlier audit was of something else."""
    if (before.ingress_topic, before.topic_id, before.group) != (topic, topic_id, group):
        raise NotOurs(
            f"The earlier audit was of the group {before.group} at {before.ingress_topic} (topic "
            f"id {before.topic_id}), this one is of {group} at {topic} ({topic_id}).",
            BEGIN_ANEW,
        )


class Stands(Protocol):
    """Where the proxy stood in a partition."""

    @property
    def partition(self) -> int: ...
    @property
    def watermark_ms(self) -> int: ...


def up_to_ms(at_ms: int, partitions: Iterable[Stands], behind: set[int]) -> int:
    """Up to when all is judged that an audit at `at_ms` judges: of the partitions `behind`, where
    something is due and has not ended, no further than the proxy stood."""
    stood = (one.watermark_ms for one in partitions if one.partition in behind)
    return max(0, min([at_ms, *stood]))


def span_at(log_start: int, before: Span | None) -> Span:
    """What has been read of a partition without a gap, now that its log starts here."""
    return before if before and log_start <= before.closed_to else Span(log_start, log_start)


def known_from(span: Span, settings_from: int) -> int:
    """From where on it is known what records asked for, of a partition of which `span` was read
    before. settings_from: the first offset of which it is known by which settings it is judged."""
    return span.read_from if settings_from <= span.closed_to else settings_from


def settings_from(policies: Sequence[PolicyFrom]) -> int:
    """The first offset of a partition of which it is known by which settings it is judged."""
    return min((by.first_offset for by in policies), default=0)


def _state(one: IngressPosition, before: Span | None) -> PartitionState:
    span = span_at(one.start, before)
    return PartitionState(
        one.partition,
        *span,
        max(one.audited_from, span.closed_to),
        one.audited_to,
        one.end,
        one.log_end,
        one.log_end,
        one.next_offset,
        one.committed.watermark_ms,
        one.committed.cursor,
        known_from(span, settings_from(one.committed.policies)),
        one.committed.floor,
    )


def _from(one: Range, offset: int) -> Range:
    start = max(one.start, offset)
    return one._replace(start=start, end=max(start, one.end))


def _unread_end(one: EndRange, read_to: int | None, lost_ms: int | None) -> EndRange:
    if read_to is None:
        return replace(one, is_recreated=True)
    if one.range.end < read_to:
        raise NotOurs(
            f"{one.range.topic}, partition {one.range.partition}, ends at {one.range.end}; an "
            f"earlier audit had read it up to {read_to}: it was created anew, or lost records.",
            BEGIN_ANEW,
        )
    has_lost = one.has_lost and one.range.start > read_to
    first_ms = one.first_ms if has_lost else lost_ms
    if first_ms is not None and lost_ms is not None:
        first_ms = max(first_ms, lost_ms)
    has_lost = has_lost or lost_ms is not None
    return replace(one, range=_from(one.range, read_to), has_lost=has_lost, first_ms=first_ms)


# What audits that go on from one another keep: each record that is not done, beside its ends.
#
# One table, by place. A batch looks at few of its rows: those whose `review_ms` has come, those
# that share an id with a new record or with one of these, and those that something new names. The
# others stay as they are, pending or done, and cost nothing but their place on disk.

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
