"""The settings that decide what a record asks for (docs/exactly-once.md, rule 3).

A record that is read again needs the same settings. So each policy is stored under its digest in
`timer.settings`, and a shard's metadata lists the digests with their first offsets.
"""

import hashlib
import json
import re
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, Self

from proxy.protocol.bounded_json import read_object
from proxy.protocol.times import parse_delay_ms, parse_levels

DIGEST_LENGTH: Final = 16
INTERNAL_PREFIX: Final = "__"
DEFAULT_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
ALWAYS_THERE: Final = frozenset(
    {"levels_ms", "max_delay_ms", "allow", "deny", "own_topics", "protocol"}
)
"""Fields in every policy's JSON. Policies of older versions may lack the other fields."""
REQUEST_KINDS: Final = ("cancel", "recall", "replace", "retry", "transaction")
"""Requests that a setting can switch off. The audit uses the same names."""
PROTOCOL: Final = 2
"""Version of the rules for reading records. A policy of another version cannot be read."""


class RetryGroup(NamedTuple):
    """Retry delays of a consumer group. The last delay repeats."""

    name: str
    delays_ms: tuple[int, ...]
    max_attempts: int


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings for reading records."""

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
    protocol: int = PROTOCOL
    roll_after_ms: int | None = None
    retry_first_level: int = 3
    retry_max_attempts: int = 16
    retry_groups: tuple[RetryGroup, ...] = ()
    retry_prefix: str = "retry."
    dlq_prefix: str = "dlq."
    immunity_ms: int = 6_000
    check_interval_ms: int = 30_000
    max_checks: int = 15
    aliases: tuple[str, ...] = ()
    hop_key: str | None = None
    """Digest of the signing key. None: the policy is older than signatures of hops."""
    recalls_in: str | None = None
    """The ingress topic. None: the policy is older than recalls."""
    max_past_ms: int | None = None
    """How long the due may lie before the timestamp. None: no limit."""
    reserved: tuple[str, ...] = ()
    """Patterns of topic names. A header may name these only if `allow` has the exact name."""
    marks: tuple[str, ...] = ()
    """Patterns like `reserved`. These apply to retry and dlq topics of groups, too."""
    checks_groups: bool = False
    """Whether a group must be in `retry_groups` or fit `allow`. False: the policy is older than
    this rule."""
    serves: tuple[str, ...] | None = None
    """The REQUEST_KINDS that are served. None: all."""
    proves_recalls: bool = False
    """Whether a recall needs a proof. False: the policy may be older than this rule."""

    def to_json(self) -> str:
        """Return canonical JSON, the source of the digest."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Parse a policy. Raises ValueError if this version cannot read it."""
        found = read_object(text)
        known = {field.name for field in fields(cls)}
        if not ALWAYS_THERE <= set(found) <= known or found["protocol"] != PROTOCOL:
            raise ValueError(f"not a policy this version can read: {str(found)[:200]}")
        values = {name: _frozen(value) for name, value in found.items()}
        values["retry_groups"] = tuple(RetryGroup(*g) for g in values.get("retry_groups", ()))
        return cls(**values)

    @property
    def digest(self) -> str:
        return digest_of(self.to_json().encode())

    def retry_of(self, group: str) -> RetryGroup:
        for retry in self.retry_groups:
            if retry.name == group:
                return retry
        delays_ms = self.levels_ms[self.retry_first_level - 1 :] or self.levels_ms[-1:]
        return RetryGroup(group, delays_ms, self.retry_max_attempts)

    def is_served(self, kind: str) -> bool:
        return self.serves is None or kind in self.serves

    def group_refusal(self, group: str) -> str | None:
        """Return why a group's topics are not written to, or None. A producer can invent groups, so
        the settings must name or allow a group."""
        topic = self.retry_prefix + group
        is_allowed = any(fnmatchcase(topic, pattern) for pattern in self.allow)
        if not self.checks_groups or is_allowed or any(group == g.name for g in self.retry_groups):
            return None
        return (
            f"the consumer group {group} is not served: name it under the setting retry.groups, or "
            f"let a pattern of targets.allow match {topic}"
        )

    def refusal(self, topic: str, *, is_derived: bool = False) -> str | None:
        """Return why `topic` may not be a target. For topics of groups (`is_derived`)
        `targets.allow` is not checked, because `group_refusal` does this."""
        if topic in self.own_topics:
            return f"{topic} is one of the proxy's own topics"
        if topic.startswith(INTERNAL_PREFIX):
            return f"{topic} is internal to the broker: names beginning with __ are refused"
        reserved = self.marks if is_derived else (*self.reserved, *self.marks)
        if topic not in self.allow and any(fnmatchcase(topic, one) for one in reserved):
            return f"{topic} is reserved for proxies; to allow it, put this name in targets.allow"
        if any(fnmatchcase(topic, pattern) for pattern in self.deny):
            return f"{topic} is denied by the setting targets.deny"
        if not is_derived and not any(fnmatchcase(topic, pattern) for pattern in self.allow):
            return f"{topic} is not allowed by the setting targets.allow"
        return None


def digest_of(text: bytes) -> str:
    """Return the digest of a policy's JSON as it was written. Later versions may format the same
    policy differently."""
    return hashlib.sha256(text).hexdigest()[:DIGEST_LENGTH]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


LEGAL_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""Kafka's own rule (org.apache.kafka.common.internals.Topic)."""
TOPIC_NAME_RULE: Final = "a Kafka topic name has 1 to 249 of the characters a-z A-Z 0-9 . _ -"

TARGETS_PATTERN: Final = re.compile(r"[a-zA-Z0-9._*?\[\]!-]{1,249}")
"""Characters of a shell pattern for topic names."""


def is_legal_topic(name: str) -> bool:
    """Return whether a topic may have this name."""
    return LEGAL_TOPIC.fullmatch(name) is not None
