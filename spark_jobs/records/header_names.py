"""Names of the headers that ingress records and what comes of them carry, as the guide spells them.

The audit's own list: it must not rely on the proxy's code. A test holds both
lists against each other.
"""

from typing import Final

PREFIX: Final = "timer-"

TOPIC: Final = "timer-topic"
DELIVER_AT: Final = "timer-deliver-at"
DELAY: Final = "timer-delay"
LEVEL: Final = "timer-level"
KEY: Final = "timer-key"
PARTITION: Final = "timer-partition"
ID: Final = "timer-id"
CANCEL: Final = "timer-cancel"
RECALL: Final = "timer-recall"
RETRY_GROUP: Final = "timer-retry-group"
ATTEMPT: Final = "timer-attempt"
TRANSACTION: Final = "timer-transaction"
CHECK_TOPIC: Final = "timer-check-topic"
CHECK_IMMUNITY: Final = "timer-check-immunity"
CHECK: Final = "timer-check"

PREPARE: Final = "prepare"
COMMIT: Final = "commit"
ROLLBACK: Final = "rollback"
EXPIRE: Final = "expire"
"""Values of `timer-transaction` in the ingress; the last is written by the proxy alone."""

ORIGIN: Final = "timer-origin"
DUE: Final = "timer-due"
FIRST_ORIGIN: Final = "timer-first-origin"
ERROR: Final = "timer-error"
ERROR_DETAIL: Final = "timer-error-detail"
INGRESS_KEY: Final = "timer-ingress-key"
UNREADABLE: Final = "timer-unreadable"
"""In place of headers that no client library can decode; never in a readable ingress record."""

HOP_FROM: Final = "timer-hop-from"
HOP_NOT_BEFORE: Final = "timer-hop-not-before"
HOP_RESUMED: Final = "timer-hop-resumed"
HOP_ATTEMPT: Final = "timer-hop-attempt"
HOP_FIRST: Final = "timer-hop-first"
HOP_FIRES: Final = "timer-hop-fires"
HOP_DUE: Final = "timer-hop-due"
"""On a record that is to take the place of one that waits: when that fires, and its due."""
HOP_MAC: Final = "timer-hop-mac"

PURGE: Final = "timer-purge"
PURGE_FROM: Final = "timer-purge-from"
PURGE_TO: Final = "timer-purge-to"
"""Of a record that the proxy alone writes: a pattern of targets, the first and the last due."""

TIMES: Final = (DELIVER_AT, DELAY, LEVEL)
MOVES: Final = (HOP_FIRES, HOP_DUE)
HOP_NUMBERS: Final = (
    *(HOP_FROM, HOP_NOT_BEFORE, HOP_RESUMED, HOP_ATTEMPT, HOP_FIRST),
    *MOVES,
)
HOPS: Final = (*HOP_NUMBERS, HOP_MAC)
PURGES: Final = (PURGE, PURGE_FROM, PURGE_TO)
SINCE_RECALLS: Final = (RECALL, *PURGES, *MOVES)
"""Unknown where a policy is from before there were recalls."""
STAMPS: Final = (ORIGIN, DUE, FIRST_ORIGIN, ERROR, ERROR_DETAIL, INGRESS_KEY, CHECK)
"""On records that were delivered or dead-lettered and sent in again: they ask for nothing."""

PLAIN_REQUESTS: Final = (TOPIC, DELIVER_AT, DELAY, LEVEL, KEY, PARTITION)
USUAL: Final = (*PLAIN_REQUESTS, ID, *(name for name in STAMPS if name != FIRST_ORIGIN))
"""Headers of a record that is to be delivered, perhaps under an id, and asks for no more."""
BEYOND_PLAIN: Final = (
    *(ID, CANCEL, RECALL, RETRY_GROUP, ATTEMPT, TRANSACTION, CHECK_TOPIC, CHECK_IMMUNITY),
    *HOPS,
    *PURGES,
)
"""What asks for more than plain delivery."""
KNOWN: Final = (*PLAIN_REQUESTS, *BEYOND_PLAIN, *STAMPS)

NOT_IN_A_LETTER: Final = (ERROR, ERROR_DETAIL, ORIGIN, UNREADABLE)
"""Headers of an ingress record that its dead letter says anew, or leaves out."""
