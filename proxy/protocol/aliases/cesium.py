"""cesium-kafka: a delay or an instant on the record, the destination in the process's settings.

Source: mjucius/cesium-kafka/docs/header-protocol.md, protocol version 1 (sections 1.1 to 1.7).
"""

from typing import Final

from proxy.protocol.aliases.foreign import Ask, ForeignRecord

DELAY_MS: Final = "cesium-delay-ms"
DELIVER_AT_MS: Final = "cesium-deliver-at"
HEADERS: Final = frozenset({DELAY_MS, DELIVER_AT_MS})


def read(record: ForeignRecord) -> Ask:
    """The instant beats the delay, and then the delay is not looked at (section 1.4)."""
    if DELIVER_AT_MS in record.headers:
        return record.due_at(DELIVER_AT_MS)
    return record.due_after(DELAY_MS)
