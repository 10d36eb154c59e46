"""What Kafka takes for the name of a topic."""

import re
from typing import Final

LEGAL_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""Kafka's own rule (org.apache.kafka.common.internals.Topic)."""
TOPIC_NAME_RULE: Final = "a Kafka topic name has 1 to 249 of the characters a-z A-Z 0-9 . _ -"

TARGETS_PATTERN: Final = re.compile(r"[a-zA-Z0-9._*?\[\]!-]{1,249}")
"""What a shell pattern of topic names can be made of."""


def is_legal_topic(name: str) -> bool:
    """Whether a topic may have this name."""
    return LEGAL_TOPIC.fullmatch(name) is not None
