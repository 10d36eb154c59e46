"""Which records must have ended, by the committed offsets alone.

docs/exactly-once.md#1-when-a-record-has-ended: the record at offset x that fires at d has ended if
x < O and (d, x) <= (T, C). What a later record with its id superseded, and what was superseded
while it was in mid-hop, has ended as that was ingested, and so has what a later record took the
place of. Control records, moves that came too late, what is refused and what found no room to wait
(with an older version) end as they are ingested.
"""

from typing import Final

from spark_jobs.evidence.ends import IS_SHED
from spark_jobs.evidence.moves import MISSED_ITS_PLACE, WAS_MOVED


def _ingested(offset: str) -> str:
    return f"coalesce({offset} < next_offset, false)"


def _passed(time_ms: str, entry_offset: str) -> str:
    return (
        f"({time_ms} <= at_ms AND ({time_ms} < watermark_ms"
        f" OR ({time_ms} = watermark_ms AND {entry_offset} <= cursor)))"
    )


def _fired(entry_offset: str) -> str:
    """A half message fires by its due, under the offset of the commit."""
    return _passed("request.fires_ms", entry_offset)


_SUPERSEDED: Final = f"""
({_ingested("next_opener.offset")}
  AND (next_opener.kind != 'purge' OR outcome.end = 'cancelled'))
"""
"""What a purge ends may get its outcome later, at the latest by its due."""
_OVERDUE_HALF: Final = f"(next_opener IS NULL AND {_passed('request.expires_ms', 'offset')})"
"""Once its time has passed the proxy writes that it expires, and ends it as it reads that: if what
has its id was written before, only as it reads that."""

_BY_A_MOVE: Final = f"""
({_ingested("offset")} AND ({MISSED_ITS_PLACE}
  OR ({WAS_MOVED} AND {_ingested("outcome.next_offset")})))
"""

MUST_HAVE_ENDED: Final = f"""
coalesce(CASE
  WHEN request IS NULL THEN false
  WHEN {_BY_A_MOVE} THEN true
  WHEN {IS_SHED} THEN {_ingested("offset")}
  WHEN request.kind = 'record' THEN {_ingested("offset")}
    AND ({_fired("offset")} OR overtaken_by IS NOT NULL OR {_SUPERSEDED})
  WHEN request.kind = 'prepare' AND {_SUPERSEDED} THEN true
  WHEN request.kind = 'prepare' AND decision.kind IN ('rollback', 'expire')
    THEN {_ingested("decision.offset")}
  WHEN request.kind = 'prepare' AND decision IS NOT NULL
    THEN {_ingested("decision.offset")} AND {_fired("decision.offset")}
  WHEN request.kind = 'prepare' THEN {_ingested("offset")} AND {_OVERDUE_HALF}
  ELSE {_ingested("offset")}
END, false)
"""
"""SQL over a record's history: whether the committed position says that it has ended."""
