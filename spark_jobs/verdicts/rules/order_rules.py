"""Rules for cancels and replacements that were ignored, by the order in which things were read.

What an id's next record or cancel finds waiting as it is read, it ends. So a record does not wait
after that, and was not delivered, but for records that were delivered in the same transaction
(docs/guide.md#cancel-and-replace). A recall or move finds what it names, whatever its id.
"""

from typing import Final

from spark_jobs.evidence.moves import MISSED_ITS_PLACE
from spark_jobs.requests.controls import TAKE_BACK
from spark_jobs.verdicts.rules.rule import Rule, names
from spark_jobs.verdicts.verdict_names import CONTRADICTED

TRANSACTION_MS: Final = 10_000
"""Within so long the records of one transaction are written."""
CLOCK_MS: Final = 5_000
"""So far the proxy's clock may be ahead of the broker's (the setting clock.max_step)."""


def delivered_after(delivered_ms: str, wanted_ms: str, read_ms: str) -> str:
    """SQL: whether a record was delivered though it still waited at `read_ms`: it came long after,
    or was not even due then."""
    return (
        f"({delivered_ms} > {read_ms} + {TRANSACTION_MS} OR {wanted_ms} > {read_ms} + {CLOCK_MS})"
    )


_AFTER: Final = delivered_after("named.delivered_ms", "named.wanted_ms", "outcome.at_ms")
_WAITED: Final = f"(named.delivered_ms IS NOT NULL AND {_AFTER})"
"""Whether what has the record's id waited as that was read, by when it was delivered."""
_IS_IGNORED: Final = f"({_WAITED} OR named.ended_ms > outcome.at_ms + {TRANSACTION_MS})"
_HOW: Final = "IF(named.delivered_ms IS NULL, concat('ended as ', named.end), 'was delivered')"
_SAYS_MISSED: Final = f"""
(outcome.end = 'missed' AND offset < next_offset AND (request.kind IN {names(TAKE_BACK)}
  OR ({MISSED_ITS_PLACE} AND named.offset = request.hop_from)))
"""
IGNORED_CANCEL_RULE: Final = Rule(
    CONTRADICTED,
    f"{_SAYS_MISSED} AND {_IS_IGNORED}",
    "it says missed {named.ended_ms - outcome.at_ms} ms before the record that it names, at"
    f" offset {{named.offset}}, {{{_HOW}}}",
)
_WAITS_STILL: Final = """
(named.end = 'delivered' AND named.delivered_ms IS NULL AND named.wanted_ms > watermark_ms
  AND prev_opener.offset <= named.offset AND named.is_seen)
"""
"""Whether what has the record's id has no end, and by the committed position has not fired."""
WAITS_STILL_RULE: Final = Rule(
    CONTRADICTED,
    f"{_SAYS_MISSED} AND {_WAITS_STILL}",
    "it says missed; the record that it names, at offset {named.offset}, waits still",
)
