"""RabbitMQ's delayed message exchange: one header, a delay in milliseconds.

Source: rabbitmq/rabbitmq-delayed-message-exchange, README.md (milliseconds; without it no delay);
src/rabbit_exchange_type_delayed_message.erl (only above 0 it delays),
src/rabbit_delayed_message_utils.erl (text is read as a whole number; a delivered message carries
the delay with its sign turned).
"""

from typing import Final

from proxy.protocol.aliases.foreign import Ask, ForeignRecord

DELAY_MS: Final = "x-delay"
HEADERS: Final = frozenset({DELAY_MS})


def read(record: ForeignRecord) -> Ask:
    """Zero asks for nothing, nor does a negative delay: that one has been delayed already."""
    if record.needs_time and record.whole(DELAY_MS, "time-unreadable", signed=True) <= 0:
        return {}
    return record.due_after(DELAY_MS, signed=True)
