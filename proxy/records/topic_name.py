"""What Kafka takes as the name of a topic."""

from __future__ import annotations

import re
from typing import Final

LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def is_legal_topic(name: str) -> bool:
    """Kafka's own rule for topic names (org.apache.kafka.common.internals.Topic)."""
    return LEGAL_TOPIC.fullmatch(name) is not None and name not in {".", ".."}
