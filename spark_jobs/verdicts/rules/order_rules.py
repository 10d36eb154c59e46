"""Rules for cancels and replacements that were ignored, by the order in which things were read.

What an id's next record or cancel finds waiting as it is read, it ends. So a record was not
delivered after that, but for records that were delivered in the same transaction
(docs/guide.md#cancel-and-replace).
"""

from typing import Final

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


_IS_IGNORED: Final = delivered_after("named.delivered_ms", "named.wanted_ms", "outcome.at_ms")
IGNORED_CANCEL_RULE: Final = Rule(
    CONTRADICTED,
    f"request.kind IN {names(TAKE_BACK)} AND outcome.end = 'missed' AND offset < next_offset"
    f" AND named.delivered_ms IS NOT NULL AND {_IS_IGNORED}",
    "it says missed {named.delivered_ms - outcome.at_ms} ms before the record that it names, at"
    " offset {named.offset}, was delivered",
)
