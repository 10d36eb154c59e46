"""Rules for any record: whether it can be judged at all, and whether it has one end."""

from typing import Final

from spark_jobs.evidence.ends import HOP_OUTCOMES
from spark_jobs.verdicts import verdict_names as verdict
from spark_jobs.verdicts.must_have_ended import END_MAY_BE_DELETED
from spark_jobs.verdicts.rules import Rule, names

_SUCCEEDS: Final = (
    "request.hop_from >= read_from AND request.kind = 'record' AND offset < next_offset"
)
"""Whether it says that it goes on from a record of which an audit knows how it ended."""
_OUTCOME_GONE: Final = "came_from IS NULL AND outcomes_gone_ms >= request.timestamp_ms"

KNOWN_RULES: Final = (
    Rule(
        verdict.UNVERIFIABLE,
        "request IS NULL AND offset < read_from",
        "the ingress has deleted the record",
    ),
    Rule(
        verdict.ORPHANED,
        "request IS NULL AND partition IS NULL",
        "its timer-origin names no record",
    ),
    Rule(
        verdict.DUPLICATED,
        "request IS NULL AND offset < closed_to",
        "an earlier audit saw how it ended; this is one end more",
    ),
    Rule(verdict.ORPHANED, "request IS NULL", "the ingress never held a committed record there"),
    Rule(verdict.PENDING, "offset >= next_offset", "the proxy has not read it"),
    Rule(
        verdict.UNVERIFIABLE,
        f"{_SUCCEEDS} AND {_OUTCOME_GONE}",
        "the outcome of offset {request.hop_from}, from which it goes on, was deleted",
    ),
    Rule(
        verdict.CONTRADICTED,
        f"{_SUCCEEDS} AND coalesce(came_from, 'nothing') NOT IN {names(HOP_OUTCOMES)}",
        "it goes on from offset {request.hop_from}, which ended as {came_from}",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        "request.kind IS NULL",
        "the settings that judged it are not known any more",
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
ENDLESS_RULES: Final = (
    Rule(
        verdict.CONTRADICTED,
        f"{_NO_END} AND must_have_ended AND letters > 0",
        "there is a dead letter of it, and no outcome",
    ),
    Rule(
        verdict.UNVERIFIABLE,
        f"{_NO_END} AND must_have_ended AND {END_MAY_BE_DELETED}",
        "it should have ended; the topics no longer hold all that was written then",
    ),
    Rule(
        verdict.MISSING,
        f"{_NO_END} AND must_have_ended",
        "the committed offsets say that it has ended; no topic shows how",
    ),
    Rule(verdict.PENDING, _NO_END),
)
"""Of records that were neither delivered nor have an outcome."""
