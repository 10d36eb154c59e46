"""Rules for any record: whether it can be judged at all, and whether it has one end."""

from typing import Final

from spark_jobs.evidence.ends import HOP_OUTCOMES
from spark_jobs.evidence.moves import IS_MOVE, MISSED_ITS_PLACE, MOVED
from spark_jobs.verdicts import verdict_names as verdict
from spark_jobs.verdicts.rules.lateness_rules import OVERDUE_RULE
from spark_jobs.verdicts.rules.rule import Rule, names
from spark_jobs.verdicts.rules.unseen_ends import unseen_outcome

_SUCCEEDS: Final = (
    f"request.hop_from >= known_from AND (request.kind = 'record' OR {IS_MOVE})"
    f" AND offset < next_offset AND NOT {MISSED_ITS_PLACE}"
)
"""Whether it says that it goes on from a record of which an audit knows how it ended."""
_HOP_FROM_OUTCOME: Final = unseen_outcome("from_offset")
_OUTCOME_UNSEEN: Final = (
    "came_from IS NULL AND outcomes_unseen IS NOT NULL"
    f" AND {_HOP_FROM_OUTCOME}.until_ms >= request.timestamp_ms"
)
_GOES_ON: Final = f"""
IF({IS_MOVE}, came_from <=> '{MOVED}', coalesce(came_from IN {names(HOP_OUTCOMES)}, false))
"""
_OWN_OUTCOME: Final = unseen_outcome("offset")
_MAY_HAVE_MISSED: Final = (
    f"{_SUCCEEDS} AND {IS_MOVE} AND NOT {_GOES_ON} AND deliveries = 0 AND outcomes = 0"
    f" AND letters = 0 AND {_OWN_OUTCOME}.until_ms >= request.timestamp_ms"
)
"""Whether it is to take a place that it has not, and may say so where that is not seen."""
_FROM: Final = "IF(came_from IS NULL, 'has no outcome', concat('ended as ', came_from))"

_NAMES_NOTHING: Final = """
IF(partition IS NULL, 'its timer-origin names no record',
  'the ingress never held a committed record there')
"""
RECORD_DELETED: Final = "the ingress has deleted the record"

KNOWN_RULES: Final = (
    Rule(
        verdict.UNVERIFIABLE,
        "request IS NULL AND offset < read_from",
        RECORD_DELETED,
    ),
    Rule(
        verdict.DUPLICATED,
        "request IS NULL AND offset < closed_to",
        "an earlier audit saw how it ended; this is one end more",
    ),
    Rule(verdict.ORPHANED, "request IS NULL", f"{{{_NAMES_NOTHING}}}"),
    Rule(
        verdict.UNVERIFIABLE,
        "request.kind IS NULL AND offset >= next_offset",
        "the proxy has not read it, and by which settings it will is not known",
    ),
    OVERDUE_RULE._replace(holds=f"offset >= next_offset AND {OVERDUE_RULE.holds}"),
    Rule(verdict.PENDING, "offset >= next_offset", "the proxy has not read it"),
    Rule(
        verdict.PENDING,
        f"{_SUCCEEDS} AND {_OUTCOME_UNSEEN} AND {_HOP_FROM_OUTCOME}.is_open",
        f"{{{_HOP_FROM_OUTCOME}.why}}",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        f"{_SUCCEEDS} AND {_OUTCOME_UNSEEN}",
        "the outcome of offset {request.hop_from}, from which it goes on, was deleted",
    ),
    Rule(
        verdict.PENDING,
        f"{_MAY_HAVE_MISSED} AND {_OWN_OUTCOME}.is_open",
        f"{{{_OWN_OUTCOME}.why}}",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        _MAY_HAVE_MISSED,
        f"whether it missed its place: {{{_OWN_OUTCOME}.why}}",
    ),
    Rule(
        verdict.CONTRADICTED,
        f"{_SUCCEEDS} AND NOT {_GOES_ON}",
        f"it goes on from offset {{request.hop_from}}, which {{{_FROM}}}",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        "request.kind IS NULL",
        "the settings that judged it are not known any more",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        "request.is_blurred AND NOT coalesce(outcome.end = 'dead-lettered', false)",
        "the name of a header has U+FFFD, or bytes that are not UTF-8: Java shows both alike",
    ),
    Rule(verdict.PENDING, "settled_only AND NOT must_have_ended"),
)
"""Of what the ingress does not hold, what the proxy has not read, and what goes on from nothing."""

COUNT_RULES: Final = (
    Rule(
        verdict.CONTRADICTED,
        "deliveries > 0 AND outcomes > 0",
        "it was delivered, and its outcome is {outcome.end}",
    ),
    Rule(verdict.DUPLICATED, "deliveries > 1", "it was delivered {deliveries} times"),
    Rule(
        verdict.CONTRADICTED,
        "outcomes > 1 AND outcome.end != last_outcome",
        "its outcomes are {outcome.end} and {last_outcome}",
    ),
    Rule(verdict.DUPLICATED, "outcomes > 1", "it has {outcomes} outcomes"),
)

_NO_END: Final = "deliveries = 0 AND outcomes = 0"
_MAY_HAVE_GONE: Final = f"""
coalesce((successors > 0 OR next_opener.kind = 'purge')
  AND {_OWN_OUTCOME}.until_ms >= request.timestamp_ms, false)
"""
"""Whether a move, or a purge, may have ended it before its time, and that is not seen."""
ENDLESS_RULES: Final = (
    Rule(verdict.PENDING, f"{_NO_END} AND unseen_end.is_open", "{unseen_end.why}"),
    Rule(
        verdict.PENDING,
        f"{_NO_END} AND letters > 0 AND unseen_outcome.is_open",
        "{unseen_outcome.why}",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        f"{_NO_END} AND letters > 0 AND unseen_outcome.until_ms >= letter.at_ms",
        "there is a dead letter of it, and no outcome: {unseen_outcome.why}",
    ),
    Rule(
        verdict.CONTRADICTED,
        f"{_NO_END} AND must_have_ended AND letters > 0",
        "there is a dead letter of it, and no outcome",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        f"{_NO_END} AND unseen_end IS NOT NULL",
        "it should have ended: {unseen_end.why}",
    ),
    Rule(
        verdict.MISSING,
        f"{_NO_END} AND must_have_ended",
        "the committed offsets say that it has ended; no topic shows how",
    ),
    OVERDUE_RULE._replace(holds=f"{OVERDUE_RULE.holds} AND NOT {_MAY_HAVE_GONE}"),
    Rule(verdict.PENDING, _NO_END),
)
"""Of records that were neither delivered nor have an outcome."""
