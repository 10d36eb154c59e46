"""What an audit leaves for the next one that continues it: records that are not done yet.

A record that the proxy has read is done once it has a verdict other than pending; from then on
another end of it is one too many. What the proxy has not read yet is read again next time, by the
settings in force then; only its ends, if it has any, are kept. Of records that share an id, those
are kept as well that say what becomes of one that is not done, and so are purges.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.evidence.ends import ENDS
from spark_jobs.evidence.moves import MISSED_ITS_PLACE
from spark_jobs.evidence.open_records import ALWAYS, NEVER, OPEN
from spark_jobs.evidence.previous_audit import REQUESTS
from spark_jobs.evidence.record_histories import KINDS_OF_END, NOT_COMPARED, PLACE
from spark_jobs.evidence.subjects import subject_hash
from spark_jobs.runtime.frames import Schema, conformed
from spark_jobs.verdicts.rules.rule import names
from spark_jobs.verdicts.verdict_names import NOT_DONE, PENDING, VIOLATIONS

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
