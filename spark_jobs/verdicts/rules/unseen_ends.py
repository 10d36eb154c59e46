"""Which records may have ended where an audit cannot see it: in the very partition, and at a time,
of which it did not see everything (`evidence.unseen`).

An end leaves more than one trace: a dead letter has an outcome, a record that goes on has a
successor in the ingress, what was taken back has a record or cancel that did it. So an outcome that
is unseen explains only ends of which nothing else would be left.
"""

from typing import Final

from pyspark.sql import DataFrame

from spark_jobs.circumstances.overdue_rules import DROP
from spark_jobs.evidence.moves import IS_MOVE
from spark_jobs.records.murmur2 import text_key_number
from spark_jobs.requests.controls import CONTROLS
from spark_jobs.verdicts.rules.delivery_rules import MAY_BE_DELIVERED, TARGET_PARTITION
from spark_jobs.verdicts.rules.rule import names

IS_ENDLESS: Final = "(must_have_ended AND deliveries = 0 AND outcomes = 0)"
"""SQL: whether nothing shows how a record ended that has."""


def unseen_outcome(offset: str) -> str:
    """SQL: what is unseen of the outcome topic, where the outcome of this offset would lie."""
    origin = f"concat(ingress_topic, '/', partition, '/', {offset})"
    number = f"CAST({text_key_number(origin)} % size(outcomes_unseen) AS int)"
    return f"get(outcomes_unseen, IF(size(outcomes_unseen) = 1, 0, {number}))"


_AT_TARGET: Final = f"""
CASE WHEN {TARGET_PARTITION} IS NULL THEN array_max(target_unseen)
  ELSE get(target_unseen, CAST({TARGET_PARTITION} AS int)) END
"""
"""Where the record was to be delivered; without a key that may be anywhere."""
_MAY_BE_DROPPED: Final = f"""
(overdue_rules IS NULL OR request.wanted_ms < overdue_known_ms OR exists(overdue_rules,
  rule -> rule.action = '{DROP}' AND request.target RLIKE rule.targets))
"""
_OUTCOME_ALONE_FROM_MS: Final = f"""
least(
  IF(request.kind IN {names(CONTROLS)}, request.timestamp_ms, NULL),
  IF(overtaken_by IS NOT NULL, request.timestamp_ms, NULL),
  IF(next_opener.offset < next_offset, next_opener.timestamp_ms, NULL),
  IF(request.kind = 'prepare' AND decision.kind = 'rollback', decision.timestamp_ms, NULL),
  IF(successors > 0, went_on_ms, NULL),
  IF({IS_MOVE}, request.timestamp_ms, NULL),
  IF({_MAY_BE_DROPPED}, request.wanted_ms, NULL))
"""
"""From when on it may have ended with an outcome of which nothing else is left to be seen; null:
every end of it that has an outcome leaves more."""
_UNSEEN_END: Final = f"""
CASE WHEN {MAY_BE_DELIVERED} AND unseen_at_target.until_ms >= request.wanted_ms
    THEN unseen_at_target
  WHEN unseen_outcome.until_ms >= {_OUTCOME_ALONE_FROM_MS} THEN unseen_outcome
  WHEN least(unseen_outcome.until_ms, letters_unseen.until_ms) >= request.timestamp_ms
    AND unseen_outcome IS NOT NULL AND letters_unseen IS NOT NULL THEN unseen_outcome END
"""
STEPS: Final = (
    {
        "unseen_at_target": f"IF({IS_ENDLESS}, {_AT_TARGET}, NULL)",
        "unseen_outcome": f"IF({IS_ENDLESS} OR letters > 0, {unseen_outcome('offset')}, NULL)",
    },
    {"unseen_end": f"IF({IS_ENDLESS}, {_UNSEEN_END}, NULL)"},
)
"""What is added step by step."""


def with_unseen_ends(histories: DataFrame) -> DataFrame:
    """The histories with `unseen_outcome` and `unseen_end` (UNSEEN): where, and until when, its
    outcome, and its end, may lie unseen; null where neither can."""
    found = histories
    for step in STEPS:
        found = found.selectExpr("*", *[f"{sql} AS {name}" for name, sql in step.items()])
    return found
