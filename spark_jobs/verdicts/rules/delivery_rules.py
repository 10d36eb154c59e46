"""Rules for a record that was delivered once."""

from typing import Final

from spark_jobs.records.header_names import DUE, FIRST_ORIGIN, ORIGIN
from spark_jobs.verdicts.rules.lateness_rules import LATE_RULE
from spark_jobs.verdicts.rules.order_rules import CLOCK_MS
from spark_jobs.verdicts.rules.rule import Rule, differences, sentence
from spark_jobs.verdicts.verdict_names import ALTERED, CONTRADICTED, DELIVERED, EARLY

_HAS_HOPPED: Final = "(request.first_origin IS NOT NULL OR request.hop_from IS NOT NULL)"
TARGET_PARTITION: Final = (
    "coalesce(request.target_partition, request.key_number % target_partitions)"
)
"""SQL: the partition of its target to which a record belongs; null where any will do."""
_PARTITION: Final = f"CAST(coalesce({TARGET_PARTITION}, delivery.at_partition) AS int)"
"""Where the record belongs; where it is, when any partition will do."""
_EXPECTED: Final = {
    "topic": ("request.target", "delivery.topic"),
    "partition": (_PARTITION, "delivery.at_partition"),
    "key": ("request.key_hash", "delivery.key_hash"),
    "value": ("request.value_hash", "delivery.value_hash"),
    "headers": ("request.headers_hash", "delivery.headers_hash"),
    "timer-due": ("request.due_ms", "delivery.due_ms"),
    "stamps": (
        f"IF({_HAS_HOPPED}, '{ORIGIN},{DUE},{FIRST_ORIGIN}', '{ORIGIN},{DUE}')",
        "delivery.stamps",
    ),
    "timer-first-origin": ("request.first_origin", "delivery.first_origin"),
}
MAY_BE_DELIVERED: Final = """
(coalesce(request.kind = 'prepare' AND decision.kind = 'commit', false)
  OR (request.kind = 'record' AND overtaken_by IS NULL))
"""
"""SQL: whether the log of the ingress allows that the record was delivered."""
_OVERTAKEN: Final = sentence(
    "{IF(overtaken_by.kind = 'purge', 'a purge that means it', 'a record or cancel with its id')},"
    " at offset {overtaken_by.offset}, came while it was rewritten"
)
_WHY_NOT: Final = f"""
CASE WHEN overtaken_by IS NOT NULL THEN {_OVERTAKEN}
  WHEN request.kind = 'refused' THEN {sentence("it is to be refused ({request.code})")}
  WHEN request.kind = 'prepare' THEN 'nobody has committed this half message'
  ELSE 'it is a control record' END
"""
_TOO_SOON_MS: Final = "request.wanted_ms - delivery.at_ms"
_CHANGED: Final = differences(_EXPECTED)

DELIVERY_RULES: Final = (
    Rule(
        CONTRADICTED,
        f"deliveries = 1 AND NOT {MAY_BE_DELIVERED}",
        f"it was delivered: {{{_WHY_NOT}}}",
    ),
    Rule(
        CONTRADICTED,
        "deliveries = 1 AND letters > 0",
        "it was delivered, and there is a dead letter of it",
    ),
    Rule(ALTERED, f"deliveries = 1 AND {_CHANGED} != ''", f"it arrived with other {{{_CHANGED}}}"),
    Rule(
        EARLY,
        f"deliveries = 1 AND {_TOO_SOON_MS} > 0",
        f"it arrived {{{_TOO_SOON_MS}}} ms before its due",
    ),
    Rule(
        EARLY,
        f"deliveries = 1 AND request.wanted_ms > seen_ms + {CLOCK_MS}",
        "it was there {request.wanted_ms - seen_ms} ms before its due, whatever time it claims",
    ),
    LATE_RULE,
    Rule(DELIVERED, "deliveries = 1"),
)
"""In order; the last holds for every record that was delivered once."""
