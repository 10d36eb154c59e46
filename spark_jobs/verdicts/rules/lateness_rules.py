"""Rules for what came too late, and for what is due and has not come at all.

Late is measured from the due, or from when the record could first have been delivered: when its
first origin was written, or it was moved to another due, or its half message was decided. What
held it up, such as a target that is paused, is no excuse.
"""

from typing import Final

from spark_jobs.circumstances.lateness_limits import USUAL_MS
from spark_jobs.verdicts.rules.rule import Rule
from spark_jobs.verdicts.verdict_names import LATE, OVERDUE

_WRITTEN_MS: Final = "IF(request.timestamp_ms < 0, NULL, request.timestamp_ms)"
DUE_FROM_MS: Final = f"""
CASE WHEN request.kind = 'record'
    THEN greatest(request.due_ms, coalesce(first_ms, {_WRITTEN_MS}))
  WHEN request.kind = 'prepare' AND decision.kind = 'commit'
    THEN greatest(request.due_ms, {_WRITTEN_MS}, decision.timestamp_ms)
  WHEN request.kind = 'prepare' THEN coalesce(decision.timestamp_ms, request.expires_ms)
  WHEN request.kind IS NOT NULL THEN {_WRITTEN_MS} END
"""
"""SQL: from when on the record could end as it asked, epoch ms; null where that is not known."""
LATENESS_MS: Final = f"(delivery.at_ms - ({DUE_FROM_MS}))"
OVERDUE_MS: Final = f"""
IF(deliveries = 0 AND outcomes = 0 AND NOT must_have_ended AND at_ms >= ({DUE_FROM_MS}),
  at_ms - ({DUE_FROM_MS}), NULL)
"""
"""SQL: for how long it has been due, of a record that has not ended; else null."""
_ASKED_MS: Final = """
coalesce(get(filter(lateness_limits, limit -> request.target RLIKE limit.targets), 0).max_ms,
  most_late_ms)
"""
"""How late it may be; null where nobody asked."""
IS_LATE: Final = f"""
coalesce(coalesce({LATENESS_MS}, {OVERDUE_MS}) > coalesce({_ASKED_MS}, {USUAL_MS}), false)
"""
"""SQL: whether it came, or has not come, later than is allowed, or than is usual."""

LATE_RULE: Final = Rule(
    LATE,
    f"deliveries = 1 AND {LATENESS_MS} > {_ASKED_MS}",
    f"it arrived {{{LATENESS_MS}}} ms late, {{{_ASKED_MS}}} ms are allowed",
)
OVERDUE_RULE: Final = Rule(
    OVERDUE,
    f"NOT settled_only AND {OVERDUE_MS} > {_ASKED_MS}",
    f"it has been due for {{{OVERDUE_MS}}} ms, {{{_ASKED_MS}}} ms are allowed",
)
"""Where an audit goes on without end, what is overdue is no verdict: it may still end."""
