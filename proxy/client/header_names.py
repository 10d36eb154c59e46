"""The headers of the protocol that this client writes and reads (DESIGN 2, 6).

They repeat proxy.protocol, which needs the whole proxy installed; a test holds both together.
"""

from typing import Final

PREFIX: Final = "timer-"
TOPIC: Final = "timer-topic"
DELIVER_AT: Final = "timer-deliver-at"
DELAY: Final = "timer-delay"
LEVEL: Final = "timer-level"
ID: Final = "timer-id"
CANCEL: Final = "timer-cancel"
KEY: Final = "timer-key"
PARTITION: Final = "timer-partition"
RETRY_GROUP: Final = "timer-retry-group"
ATTEMPT: Final = "timer-attempt"
TRANSACTION: Final = "timer-transaction"
CHECK_TOPIC: Final = "timer-check-topic"
CHECK_IMMUNITY: Final = "timer-check-immunity"
CHECK: Final = "timer-check"

PREPARE: Final = b"prepare"
COMMIT: Final = b"commit"
ROLLBACK: Final = b"rollback"
CHECK_BACK: Final = b"check"
