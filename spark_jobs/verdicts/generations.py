"""Records of one id, one after the other, over several audits."""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.evidence.audit_job import SUBJECT, subject_hash
from spark_jobs.evidence.ends import ENDS, IS_SHED, KINDS_OF_END, NOT_COMPARED, PLACE
from spark_jobs.evidence.open_records import ALWAYS, IS_MOVE, MISSED_ITS_PLACE, NEVER, OPEN
from spark_jobs.evidence.previous_audit import REQUESTS
from spark_jobs.requests.controls import CONTROLS, TAKE_BACK
from spark_jobs.runtime.frames import Schema, conformed
from spark_jobs.verdicts.requests import (
    NAMES_ONE,
    WAITS_FROM,
    first_met,
    with_purges,
    with_subjects,
)
from spark_jobs.verdicts.rules import names
from spark_jobs.verdicts.verdict_names import NOT_DONE, PENDING, VIOLATIONS

# What the log alone says of records that share an id (docs/guide.md#cancel-and-replace).
#
# Within a partition a new generation of an id begins with each record, half message or cancel
# that a producer writes under it: that is the *opener*, and may end what the generation before it
# began. So does a recall of what the generation before it began. Records without an id, of which
# a recall may speak, have their receipt in place of one (`recalls`). Commits and rollbacks decide
# the half message that opened their generation. The successor of a hop belongs to the generation
# of the record that it came from; if another opener was written while it was in mid-hop, it has
# been *overtaken*, and ends as it arrives. A purge (`purges`) that means what waits ends it, as
# the next opener would. Where a purge and an opener came while it was in mid-hop, either may be
# said: what the opener ends needs no purge, and the proxy may have forgotten it. A move
# (`evidence.moves`) belongs to the generation, too, unless it came too late.

EITHER: Final = "either"
"""What a cancel has to say that met a record between two publish attempts, or one of which an
outcome may be unseen; and any control record that may name what the ingress has deleted: applied or
missed."""
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
"""subject: SUBJECT. prev_opener: what opened the generation. overtaken_by: the last opener while
the record was in mid-hop, or a purge. next_opener: the first after it, or a purge before that.
decision: what decided the half message.
expected: what a control record has to say: applied, missed, or either. named: what the subject
names as the record is read, and how that ended; ended_ms: when, unless something ended it; is_seen:
whether its outcome would be seen if it had one."""


def _previous(what: str, order: str = "ASC") -> str:
    """SQL of the nearest record before with the same subject for which `what` is not null.

    Records without one are each alone."""
    alone = "IF(subject IS NULL, offset, NULL)"
    return (
        f"last({what}, true) OVER (PARTITION BY partition, subject, {alone}"
        f" ORDER BY offset {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )


def _next(what: str) -> str:
    return _previous(what, "DESC")


_THIS: Final = (
    "named_struct('offset', offset, 'kind', request.kind, 'timestamp_ms', request.timestamp_ms)"
)
OWN_END_MS: Final = """
coalesce(delivery.at_ms, IF(outcome.end IN ('dead-lettered', 'expired'), outcome.at_ms, NULL))
"""
"""SQL: when a record ended that nothing else ended."""
_MEMBER: Final = f"""
named_struct('offset', offset, 'end', coalesce(outcome.end, 'delivered'),
  'delivered_ms', delivery.at_ms, 'wanted_ms', request.wanted_ms, 'ended_ms', {OWN_END_MS},
  'is_seen', is_seen)
"""
_HAS_SUBJECT: Final = "subject IS NOT NULL"
_IS_CONTROL: Final = f"request.kind IN {CONTROLS}"
_MAY_WAIT: Final = "request.kind IN ('record', 'prepare')"
_WAITS: Final = f"({_MAY_WAIT} AND NOT {IS_SHED} AND NOT {MISSED_ITS_PLACE})"
"""What found no room to wait, with an older version: its id, which nothing else had, names it no
more."""
_WRITTEN: Final = f"({_WAITS} AND request.hop_from IS NULL)"
_HITS: Final = """
(request.kind = 'recall' AND coalesce(written_before = recalled_first, subject.ident IS NULL)
  AND coalesce(request.recalled IN (recalled_first, landed.offset), true)
  AND NOT coalesce(outcome.end = 'missed'
    AND NOT coalesce(landed.end IN ('requeued', 'rolled', 'cancelled'), false), false))
"""
"""Whether a recall takes back what has its subject: that is what it names, as it is now. It may say
that it missed, and prevail, where that was being tried again."""
_FINDS: Final = """
(coalesce(prev_opener.offset = recalled_first, subject.ident IS NULL)
  AND request.recalled IN (recalled_first, holder.offset) AND holder IS NOT NULL)
"""
"""Whether a recall names what has its subject, as it is now."""
_MAY_HAVE_BEEN_SHED: Final = """
(holder.offset = prev_opener.offset AND NOT holder.is_seen)
"""
"""Whether the half message that is decided may have found no room to wait: its end is not seen."""
_OPENED_MEANWHILE: Final = """
IF(outcome.end = 'replaced' AND prev_opener.kind = 'recall'
  AND prev_of_id.offset > request.hop_from, prev_of_id, prev_opener)
"""
"""A recall of what has replaced it changes nothing: that counts. Older versions of the proxy named
the recall."""
STEPS: Final = (
    {
        "written_before": _previous(f"IF({_WRITTEN}, offset, NULL)"),
        "landed": _previous(
            f"IF({_WAITS}, named_struct('offset', offset, 'end', outcome.end), NULL)"
        ),
    },
    {
        "opener": f"IF({_HAS_SUBJECT} AND (request.kind = 'cancel' OR {_WRITTEN} OR {_HITS}),"
        f" {_THIS}, NULL)",
    },
    {
        "prev_opener": _previous("opener"),
        "prev_of_id": _previous("IF(request.kind = 'recall', NULL, opener)"),
        "opened_next": _next("opener"),
    },
    {
        "opened_meanwhile": f"IF(request.kind = 'record' AND NOT {IS_MOVE}"
        f" AND prev_opener.offset > request.hop_from, {_OPENED_MEANWHILE}, NULL)",
    },
    {
        "member": f"IF({_WAITS} AND opened_meanwhile IS NULL, {_MEMBER}, NULL)",
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
    {"decided_by": _next("decides")},
    {
        "decision": "IF(request.kind = 'prepare' AND (opened_next IS NULL"
        " OR decided_by.offset < opened_next.offset), decided_by, NULL)",
    },
)
"""What is added step by step, each by the columns before it. member: a record of the generation,
and how it ended. candidate: a decision that names the half message which opened the generation;
it `decides` if it is the first of them. holder: what has the subject as the record is read.
prev_of_id: the last opener but recalls. opened_meanwhile, opened_next: the last opener while the
record was in mid-hop; the first after it."""
NO_PURGE: Final = {"purge": f"CAST(NULL AS {OPENER})", "holder_purge": f"CAST(NULL AS {OPENER})"}
PURGE_STEPS: Final = (
    {
        "met": f"IF(request.kind = 'record' OR decision.kind = 'commit',"
        f" {first_met(WAITS_FROM)}, NULL)",
    },
    {
        "purge": "IF(met IS NULL, NULL,"
        " named_struct('offset', met.offset, 'kind', 'purge', 'timestamp_ms', met.timestamp_ms))",
    },
    {"of_member": "IF(member IS NULL, NULL, struct(purge))"},
    {"holder_purge": f"{_previous('of_member')}.purge"},
)
"""purge: the first that means what waits, as an OPENER. holder_purge: that of the holder."""
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
          WHEN {_IS_CONTROL} AND request.kind != 'recall' AND prev_opener IS NULL
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
            CASE WHEN decides IS NULL THEN 'missed'
              WHEN {_MAY_HAVE_BEEN_SHED} THEN '{EITHER}'
              ELSE 'applied' END END""",
    },
)
"""What both of it comes to. is_purged: whether a purge had ended what has the subject."""


def with_generations(
    histories: DataFrame, purges: DataFrame | None, *, has_recalls: bool
) -> DataFrame:
    """The histories, beside the circumstances, with GENERATION; records without a subject have
    none. `purges`: as `purges_in` finds them."""
    found = with_purges(with_subjects(histories, has_recalls=has_recalls), purges)
    for step in (*STEPS, *((NO_PURGE,) if purges is None else PURGE_STEPS), *LAST_STEPS):
        found = found.selectExpr("*", *[f"{sql} AS {name}" for name, sql in step.items()])
    return found.select(*histories.columns, *GENERATION)


def without_generations(histories: DataFrame) -> DataFrame:
    """The same columns, for records of which it is known that they have no id."""
    nothing = [f"CAST(NULL AS {kind}) AS {name}" for name, kind in GENERATION.items()]
    return histories.selectExpr("*", *nothing)


# What an audit leaves for the next one that continues it: records that are not done yet.
#
# A record that the proxy has read is done once it has a verdict other than pending; from then on
# another end of it is one too many. What the proxy has not read yet is read again next time, by
# the settings in force then; only its ends, if it has any, are kept. Of records that share an id,
# those are kept as well that say what becomes of one that is not done, and so are purges.

MOST_ENDS: Final = 2
"""Of each kind: more are no other violation."""
_ARE_TWO: Final = "coalesce(outcome.end != last_outcome, false)"
"""Whether a record has outcomes of two names: then it is kept with both."""
_HISTORY: Final = (
    *PLACE,
    "request",
    "subject",
    *KINDS_OF_END,
    *KINDS_OF_END.values(),
    "last_outcome",
)
_ENDS: Final = f"({' + '.join(KINDS_OF_END.values())})"
_IS_READ: Final = "offset < next_offset"
_IS_UNREAD: Final = "coalesce(offset >= read_to AND offset < log_end, false)"
"""Whether the ingress holds the offset, and this audit has not read so far."""
_IS_PENDING: Final = f"ruling.verdict IN {names(NOT_DONE)}"
_BROKEN_ANEW: Final = f"""
ruling.verdict IN {names(VIOLATIONS)} AND ({_ENDS} > request.known_ends
  OR (successors > 1 AND request.known_verdict NOT IN {names(VIOLATIONS)})
  OR request.known_verdict = 'missed')
"""
"""What missed a record did so wrongly if that is delivered long after."""

GETS_VERDICT: Final = f"""
CASE WHEN request IS NULL THEN NOT {_IS_UNREAD}
  WHEN request.known_verdict IS NULL THEN offset >= audited_from AND offset < audited_to
  ELSE request.known_verdict IN {names(NOT_DONE)} OR ({_BROKEN_ANEW}) END
"""
"""SQL: whether this audit gives the record its verdict. One that a previous audit has closed gets
another only if something new broke it."""

_MAY_BE_PENDING: Final = f"(request.is_blurred OR request.kind IS NULL) AND {_ENDS} = 0"
"""Of a record of which it is not known what it asks for."""
IS_LEFT_OPEN: Final = f"""
coalesce(request IS NOT NULL AND {_IS_READ} AND ({_IS_PENDING} OR ({_MAY_BE_PENDING})), false)
"""
"""SQL: whether the proxy has read the record and it has not ended, or may not have."""

HAS_ENDS_AHEAD: Final = f"""
coalesce(NOT ({_IS_READ}) AND (request IS NOT NULL OR {_IS_UNREAD}) AND {_ENDS} > 0, false)
"""
"""SQL: whether there are ends of a record that the proxy had not read when it committed last."""

_IS_OPEN: Final = f"""
({IS_LEFT_OPEN} OR coalesce(successor >= next_offset, false)
  OR (request IS NOT NULL AND NOT ({_IS_READ})))
"""
NEEDED_FROM: Final = f"""
min(IF({_IS_OPEN}, coalesce(prev_opener.offset, offset), NULL)) OVER (
  PARTITION BY partition, subject, IF(subject IS NULL, offset, NULL))
"""
"""SQL: of the records that share an id, those from this offset on are kept. What opened the
generation of one that is not done tells what may become of it."""

_TELLS_OTHERS: Final = f"""
(subject.ident IS NOT NULL OR request.kind = 'recall' OR {MISSED_ITS_PLACE} OR {_IS_OPEN})
"""
"""Of the hops of a record without an id those that are done tell nothing more."""
_PURGES: Final = """
(request.kind = 'purge' AND offset < next_offset
  AND (offset >= floor OR request.known_verdict IS NULL))
"""
"""Whether a purge may mean what waits: nothing below the floor does. What it met in mid-hop was
written before it was read, and is read by the next audit."""
IS_NEEDED: Final = f"""
(coalesce({_IS_READ} AND offset >= needed_from AND {_TELLS_OTHERS}, false)
  OR coalesce({_PURGES}, false))
"""
"""SQL: whether a record is kept, by `needed_from`."""


_IS_QUIET: Final = f"""
coalesce({_IS_READ} AND request.kind = 'record' AND NOT request.is_blurred AND {_ENDS} = 0
  AND ruling.verdict = '{PENDING}' AND NOT must_have_ended
  AND (request.hop_from IS NULL OR came_from IS NOT NULL), false)
"""
"""Whether it waits, and nothing but its time or something new can change that."""


def carried(is_request_kept: str) -> str:
    """SQL of what is kept of a history: its columns, how the record ended that it hopped from, when
    its first origin was written, its verdict, whether its request is kept (else its ends alone),
    and when it is looked at again (`open_records.OPEN`)."""
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
    """OPEN that the next audit begins with, from `carried` histories."""
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
