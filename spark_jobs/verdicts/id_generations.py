"""What the log alone says of records that share an id (docs/guide.md#cancel-and-replace).

Within a partition a new generation of an id begins with each record, half message or cancel that a
producer writes under it: that is the *opener*, and may end what the generation before it began. So
does a recall of what the generation before it began. Records without an id, of which a recall may
speak, have their receipt in place of one (`recalls`).
Commits and rollbacks decide the half message that opened their generation. The successor of a hop
belongs to the generation of the record that it came from; if another opener was written while it
was in mid-hop, it has been *overtaken*, and ends as it arrives. A purge (`purges`) that means what
waits ends it, as the next opener would. Where a purge and an opener came while it was in mid-hop,
either may be said: what the opener ends needs no purge, and the proxy may have forgotten it. A move
(`evidence.moves`) belongs to the generation, too, unless it came too late.
"""

from typing import Final

from pyspark.sql import DataFrame

from spark_jobs.evidence.ends import IS_SHED
from spark_jobs.evidence.moves import IS_MOVE, MISSED_ITS_PLACE
from spark_jobs.evidence.subjects import SUBJECT
from spark_jobs.requests.controls import CONTROLS, TAKE_BACK
from spark_jobs.verdicts.purges import NAMES_ONE, WAITS_FROM, first_met, with_purges
from spark_jobs.verdicts.recalls import with_subjects

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
