"""The fate-deciding settings in force at an ingress offset (DESIGN 5.3).

A record's fate must come out the same after any crash and any change of settings. So these
settings have a name made from their content, the digest; their JSON lies under it in the
compacted topic `timer.settings`, and each shard's committed metadata says from which offset
on which digest counts.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Final

from proxy.times import parse_delay_ms, parse_levels

DIGEST_LENGTH: Final = 16
LEGAL_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
INTERNAL_PREFIX: Final = "__"
DEFAULT_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclass(frozen=True, slots=True)
class Policy:
    """What decides a record's fate; equal policies have equal digests."""

    levels_ms: tuple[int, ...] = parse_levels(DEFAULT_LEVELS)
    max_delay_ms: int = parse_delay_ms("366d")
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    own_topics: tuple[str, ...] = (
        "timer.ingress",
        "timer.dead-letters",
        "timer.outcomes",
        "timer.settings",
    )

    def to_json(self) -> str:
        """Canonical JSON: the digest is made from these bytes."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Policy:
        """Raises ValueError when the JSON is not a policy of this version."""
        fields = json.loads(text)
        if not isinstance(fields, dict) or set(fields) != set(cls.__slots__):
            raise ValueError(f"not a policy this version can read: {str(fields)[:200]}")
        lists = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
        return cls(**lists)  # type: ignore[arg-type]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:DIGEST_LENGTH]

    def refusal(self, topic: str) -> str | None:
        """Why `topic` may not be a target, as a sentence; None when it may."""
        if topic in self.own_topics:
            return f"{topic} is one of the proxy's own topics"
        if topic.startswith(INTERNAL_PREFIX):
            return f"{topic} is internal to the broker: names beginning with __ are refused"
        if any(fnmatchcase(topic, pattern) for pattern in self.deny):
            return f"{topic} is denied by the setting targets.deny"
        if not any(fnmatchcase(topic, pattern) for pattern in self.allow):
            return f"{topic} is not allowed by the setting targets.allow"
        return None


def is_legal_topic(name: str) -> bool:
    """Kafka's own rule for topic names (org.apache.kafka.common.internals.Topic)."""
    return LEGAL_TOPIC.fullmatch(name) is not None and name not in (".", "..")
