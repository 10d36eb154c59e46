"""Generations: records that share an id, in the order of the log, over several audits."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.histories.ends import (
    ENDS,
    IS_MOVE,
    KINDS_OF_END,
    MISSED_ITS_PLACE,
    NOT_COMPARED,
    PLACE,
    REQUESTS,
    SUBJECT,
    subject_hash,
)
from spark_jobs.histories.open_records import ALWAYS, NEVER, OPEN
from spark_jobs.requests.parsing import CONTROLS, TAKE_BACK
from spark_jobs.runtime.frames import Schema, conformed, quoted
from spark_jobs.verdicts.requests import (
    PENDING_FROM,
    first_met,
    with_purges,
    with_subjects,
)
from spark_jobs.verdicts.rules import EITHER, NAMES_ONE, in_steps
from spark_jobs.verdicts.verdict_names import NOT_DONE, PENDING, VIOLATIONS

# The records of an id in a partition form *generations* (docs/guide.md#cancel-and-replace):
# - An *opener* begins a generation. It ends the pending record of the previous generation.
# - Openers are a producer's records, half messages and cancels with an id. A recall is an opener if
#   it names the pending record.
# - A record without an id gets an id from the audit: the offset at which it was first written.
# - A commit or rollback decides the half message that opened its generation.
# - A successor has the generation of its predecessor. The successor is *overtaken* if another
#   opener was written while the predecessor was in mid-hop. An overtaken record ends when the
#   proxy reads it.
# - A purge ends a pending record, too. If a purge and an opener were written in mid-hop, the
#   outcome may name either record.
# - A move has the generation of the record that it replaces, unless the move came too late.

OPENER: Final = "struct<offset:bigint,kind:string,timestamp_ms:bigint>"
GENERATION: Final = {
    "subject": SUBJECT,
    "prev_opener": OPENER,
    "overtaken_by": OPENER,
    "next_opener": OPENER,
    "decision": OPENER,
    "expected": "string",
    "named": "struct<offset:bigint,end:string,delivered_ms:bigint,wanted_ms:bigint,"
    "ended_ms:bigint,is_seen:boolean>",
}
"""Facts from records with the same subject: the same id, or a record without id and its successors.
`prev_opener`: the opener of the generation. `overtaken_by`: the last opener, or a purge, that was
written while the record was in mid-hop. `next_opener`: the first opener after the record, or a
purge between the two. `decision`: the commit, rollback or expiry of a half message. `expected`:
the outcome that a control record must have: applied, missed, or either. `named`: the record that
the control record is about, and its end. `ended_ms`: when the named record ended, if no other
record ended it. `is_seen`: whether the audit would see the outcome of the named record.
"""


def _previous(what: str, order: str = "ASC") -> str:
    """Return SQL of the last non-null `what` in earlier records with the same subject.
    With the order `DESC`, return the first non-null `what` in later records.
    """
    alone = "IF(subject IS NULL, offset, NULL)"
    return (
        f"last({what}, true) OVER (PARTITION BY partition, subject, {alone}"
        f" ORDER BY offset {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )


_THIS: Final = (
    "named_struct('offset', offset, 'kind', request.kind, 'timestamp_ms', request.timestamp_ms)"
)
OWN_END_MS: Final = """
coalesce(delivery.at_ms, IF(outcome.end IN ('dead-lettered', 'expired'), outcome.at_ms, NULL))
"""
"""SQL: when a record ended, if no other record ended it."""
_MEMBER: Final = f"""
named_struct('offset', offset, 'end', coalesce(outcome.end, 'delivered'),
  'delivered_ms', delivery.at_ms, 'wanted_ms', request.wanted_ms, 'ended_ms', {OWN_END_MS},
  'is_seen', is_seen)
"""
_IS_SCHEDULED: Final = f"(request.kind IN ('record', 'prepare') AND NOT {MISSED_ITS_PLACE})"
_WRITTEN: Final = f"({_IS_SCHEDULED} AND request.hop_from IS NULL)"
_HITS: Final = """
(request.kind = 'recall' AND coalesce(written_before = recalled_first, subject.ident IS NULL)
  AND coalesce(request.recalled IN (recalled_first, landed.offset), true)
  AND NOT coalesce(outcome.end = 'missed'
    AND NOT coalesce(landed.end IN ('requeued', 'rolled', 'cancelled'), false), false))
"""
"""Whether a recall ends the record that has the same subject.
A recall ends the record if it names the record's first offset or present offset. Even a recall with
the outcome `missed` may have ended it, if the record was in mid-hop.
"""
_FINDS: Final = """
(coalesce(prev_opener.offset = recalled_first, subject.ident IS NULL)
  AND request.recalled IN (recalled_first, holder.offset) AND holder IS NOT NULL)
"""
_OPENED_MEANWHILE: Final = """
IF(outcome.end = 'replaced' AND prev_opener.kind = 'recall'
  AND prev_of_id.offset > request.hop_from, prev_of_id, prev_opener)
"""
"""The last opener that was written in mid-hop. It may have been recalled. With the outcome
`replaced`, the opener is the recalled record. With `cancelled`, which older versions of the proxy
wrote, it is the recall.
"""
STEPS: Final = (
    {
        "written_before": _previous(f"IF({_WRITTEN}, offset, NULL)"),
        "landed": _previous(
            f"IF({_IS_SCHEDULED}, named_struct('offset', offset, 'end', outcome.end), NULL)"
        ),
    },
    {
        "opener": f"IF(subject IS NOT NULL AND (request.kind = 'cancel' OR {_WRITTEN} OR {_HITS}),"
        f" {_THIS}, NULL)",
    },
    {
        "prev_opener": _previous("opener"),
        "prev_of_id": _previous("IF(request.kind = 'recall', NULL, opener)"),
        "opened_next": _previous("opener", "DESC"),
    },
    {
        "opened_meanwhile": f"IF(request.kind = 'record' AND NOT {IS_MOVE}"
        f" AND prev_opener.offset > request.hop_from, {_OPENED_MEANWHILE}, NULL)",
    },
    {
        "member": f"IF({_IS_SCHEDULED} AND opened_meanwhile IS NULL, {_MEMBER}, NULL)",
        "candidate": "IF(prev_opener.kind = 'prepare'"
        " AND (request.kind IN ('commit', 'rollback')"
        " OR (request.kind = 'expire' AND request.hop_from = prev_opener.offset)),"
        f" {_THIS}, NULL)",
    },
    {"holder": _previous("member"), "prev_candidate": _previous("candidate")},
    {
        "decides": "IF(coalesce(prev_candidate.offset < prev_opener.offset, true),"
        " candidate, NULL)",
    },
    {"decided_by": _previous("decides", "DESC")},
    {
        "decision": "IF(request.kind = 'prepare' AND (opened_next IS NULL"
        " OR decided_by.offset < opened_next.offset), decided_by, NULL)",
    },
)
"""Columns, added step by step.
`opener`: the record, if it opens a generation. `prev_of_id`: the last opener except recalls.
`opened_meanwhile`: the last opener while the record was in mid-hop. `opened_next`: the first opener
after the record.
`member`: a record of the generation, and its end. `holder`: the last member before this record.
`candidate`: a decision on a half message. `decides`: the first candidate of the half message.
"""
PURGE_STEPS: Final = (
    {
        "met": f"IF(request.kind = 'record' OR decision.kind = 'commit',"
        f" {first_met(PENDING_FROM)}, NULL)",
    },
    {
        "purge": "IF(met IS NULL, NULL,"
        " named_struct('offset', met.offset, 'kind', 'purge', 'timestamp_ms', met.timestamp_ms))",
    },
    {"of_member": "IF(member IS NULL, NULL, struct(purge))"},
    {"holder_purge": f"{_previous('of_member')}.purge"},
)
"""`purge`: the first purge that ends the record while it is pending, as an OPENER.
`holder_purge`: the first purge that ends the holder.
"""
LAST_STEPS: Final = (
    {"is_purged": "coalesce(holder_purge.offset < offset, false)"},
    {
        "overtaken_by": f"""
          IF(purge.offset < offset AND (opened_meanwhile IS NULL OR {NAMES_ONE}),
            purge, opened_meanwhile)""",
        "next_opener": """
          IF(purge.offset > offset AND coalesce(purge.offset < opened_next.offset, true),
            purge, opened_next)""",
        "named": f"""
          IF(is_purged OR (request.kind = 'recall' AND NOT coalesce({_FINDS}, false)),
            NULL, holder)""",
        "expected": f"""
          CASE WHEN request.kind = 'purge' THEN 'applied'
          WHEN request.kind = 'recall' AND request.recalled < known_from THEN '{EITHER}'
          WHEN request.kind IN {CONTROLS} AND request.kind != 'recall' AND prev_opener IS NULL
            AND known_from > 0 THEN '{EITHER}'
          WHEN request.kind = 'recall' AND NOT coalesce({_FINDS}, false) THEN 'missed'
          WHEN request.kind IN {TAKE_BACK} THEN
            CASE WHEN is_purged OR NOT coalesce(prev_opener.kind NOT IN {TAKE_BACK}
                AND holder.offset >= prev_opener.offset, prev_opener IS NULL AND {_FINDS}, false)
                THEN 'missed'
              WHEN holder.end IN ('cancelled', 'rolled') THEN 'applied'
              WHEN holder.end = 'requeued' THEN '{EITHER}'
              WHEN NOT holder.is_seen THEN '{EITHER}'
              ELSE 'missed' END
          WHEN request.kind IN ('commit', 'rollback', 'expire') THEN
            IF(decides IS NULL, 'missed', 'applied') END""",
    },
)
"""The columns of GENERATION. `is_purged`: whether a purge ended the holder before this record."""


def with_generations(
    histories: DataFrame, purges: DataFrame | None, *, has_recalls: bool
) -> DataFrame:
    """Return the histories with the columns GENERATION, null for records without subject.
    The histories also have the columns of `AuditScope.frame`.
    """
    found = with_purges(with_subjects(histories, has_recalls=has_recalls), purges)
    found = in_steps(found, (*STEPS, *PURGE_STEPS, *LAST_STEPS))
    return found.select(*histories.columns, *GENERATION)


def without_generations(histories: DataFrame) -> DataFrame:
    """Return the histories with the columns of `with_generations`, for records without an id."""
    nothing = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in GENERATION.items()]
    return histories.selectExpr("*", *nothing)


# The next audit gets the records that are not done. A record that the proxy has read is done once
# its verdict is neither pending nor overdue. Any further end is then a violation. If the proxy has
# not read a record, its policy is not known yet. So only its ends are kept, and a later audit reads
# it again. The audit also keeps purges, and records that affect an open record of their id.

MOST_ENDS: Final = 2
"""At most this many ends of each kind are kept, because two are a violation already."""
_ARE_TWO: Final = "coalesce(outcome.end != last_outcome, false)"
_HISTORY: Final = (
    *(*PLACE, "request", "subject", *KINDS_OF_END, *KINDS_OF_END.values(), "last_outcome"),
)
_ENDS: Final = f"({' + '.join(KINDS_OF_END.values())})"
_IS_READ: Final = "offset < next_offset"
_IS_UNREAD: Final = "coalesce(offset >= read_to AND offset < log_end, false)"
_BROKEN_ANEW: Final = f"""
ruling.verdict IN {quoted(VIOLATIONS)} AND ({_ENDS} > request.known_ends
  OR (successors > 1 AND request.known_verdict NOT IN {quoted(VIOLATIONS)})
  OR request.known_verdict = 'missed')
"""
"""Whether a record that an earlier audit judged has become a violation.
For instance, `missed` was wrong if the named record is delivered long after that outcome.
"""

GETS_VERDICT: Final = f"""
CASE WHEN request IS NULL THEN NOT {_IS_UNREAD}
  WHEN request.known_verdict IS NULL THEN offset >= audited_from AND offset < audited_to
  ELSE request.known_verdict IN {quoted(NOT_DONE)} OR ({_BROKEN_ANEW}) END
"""
"""SQL: whether this audit judges the record.
A record that had ended in an earlier audit is judged again only if it is a violation now.
"""

_MAY_BE_PENDING: Final = f"(request.is_blurred OR request.kind IS NULL) AND {_ENDS} = 0"
IS_LEFT_OPEN: Final = f"""
coalesce(request IS NOT NULL AND {_IS_READ}
  AND (ruling.verdict IN {quoted(NOT_DONE)} OR ({_MAY_BE_PENDING})), false)
"""

HAS_ENDS_AHEAD: Final = f"""
coalesce(NOT ({_IS_READ}) AND (request IS NOT NULL OR {_IS_UNREAD}) AND {_ENDS} > 0, false)
"""
"""SQL: whether a record has ends, although it lies beyond the committed offset."""

_IS_OPEN: Final = f"""
({IS_LEFT_OPEN} OR coalesce(successor >= next_offset, false)
  OR (request IS NOT NULL AND NOT ({_IS_READ})))
"""
NEEDED_FROM: Final = f"""
min(IF({_IS_OPEN}, coalesce(prev_opener.offset, offset), NULL)) OVER (
  PARTITION BY partition, subject, IF(subject IS NULL, offset, NULL))
"""
"""SQL: the first offset from which records of an id are kept: the opener of an open record."""

_TELLS_OTHERS: Final = f"""
(subject.ident IS NOT NULL OR request.kind = 'recall' OR {MISSED_ITS_PLACE} OR {_IS_OPEN})
"""
"""Whether a record may affect other records.
A record without an id may do so only if it is open, a recall, or a move that came too late.
"""
_PURGES: Final = """
(request.kind = 'purge' AND offset < next_offset
  AND (offset >= floor OR request.known_verdict IS NULL))
"""
"""Whether a purge may have ended a pending record. Below the floor no record is pending.
A purge that is read for the first time is kept, because it may have ended records in mid-hop. The
next audit reads the successors of these records.
"""
IS_NEEDED: Final = f"""
(coalesce({_IS_READ} AND offset >= needed_from AND {_TELLS_OTHERS}, false)
  OR coalesce({_PURGES}, false))
"""


_IS_QUIET: Final = f"""
coalesce({_IS_READ} AND request.kind = 'record' AND NOT request.is_blurred AND {_ENDS} = 0
  AND ruling.verdict = '{PENDING}' AND NOT must_have_ended
  AND (request.hop_from IS NULL OR came_from IS NOT NULL), false)
"""


def carried(is_request_kept: str) -> str:
    """Return SQL of a history to keep, with verdict, `review_ms` and `is_request_kept`."""
    review_ms = f"""
      CASE WHEN NOT {is_request_kept} THEN {ALWAYS}
        WHEN {_PURGES} THEN {ALWAYS}
        WHEN NOT {_IS_OPEN} THEN {NEVER}
        WHEN {_IS_QUIET} THEN least(request.due_ms, request.wanted_ms, request.fires_ms)
        ELSE {ALWAYS} END
    """
    columns = ", ".join((*_HISTORY, "came_from", "first_ms", "ruling.verdict AS verdict"))
    kept = f"{is_request_kept} AS is_request_kept, CAST({review_ms} AS bigint) AS review_ms"
    return f"struct({columns}, {kept})"


def open_rows(histories: DataFrame) -> DataFrame:
    """Return rows of OPEN for the next audit, from histories that `carried` has made."""
    known = {
        "known_verdict": "verdict",
        "known_ends": _ENDS,
        "known_from": "came_from",
        "known_first_ms": "first_ms",
        "known_to_others": "subject IS NOT NULL",
    }
    kept = {name: f"request.{name}" for name in REQUESTS if name not in PLACE}
    kept |= dict.fromkeys(NOT_COMPARED, "NULL") | known
    last = f.col("outcome").withField("end", f.col("last_outcome"))
    several = {
        end: f"array_repeat({end}, CAST(least({count}, {MOST_ENDS}) AS int))"
        for end, count in KINDS_OF_END.items()
    }
    several["outcome"] = f"IF({_ARE_TWO}, array(outcome, last), {several['outcome']})"
    columns = {
        "has_id": "is_request_kept AND subject IS NOT NULL",
        "id_hash": f"IF(is_request_kept, {subject_hash('subject')}, NULL)",
        "request": f"IF(is_request_kept, {_struct(kept, REQUESTS)}, NULL)",
        "ends": _ends(f"concat({', '.join(several.values())})"),
    }
    return conformed(histories.withColumn("last", last), OPEN, columns)


def _struct(columns: Mapping[str, str], schema: Schema) -> str:
    fields = (f"'{name}', CAST({sql} AS {schema[name]})" for name, sql in columns.items())
    return f"named_struct({', '.join(fields)})"


def _ends(found: str) -> str:
    fields = {name: f"found.{name}" for name in ENDS if name not in PLACE}
    return f"transform({found}, found -> {_struct(fields, ENDS)})"
