"""Readers of single header values. Each raises Rejected with the reason for a dead letter."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from proxy.protocol.headers import (
    PARTITION,
    TOPIC,
    remember,
    shown,
    text_of,
)
from proxy.protocol.outcomes import Rejection
from proxy.protocol.policy import TOPIC_NAME_RULE, Policy, is_legal_topic
from proxy.protocol.times import parse_delay_ms

Asked: TypeAlias = Mapping[str, bytes | None]
"""A record's headers by name. A repeated name has its last value."""

LONGEST_ID_BYTES: Final = 256


class Rejected(Exception):
    """Raised for a record that cannot be served."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.rejection = Rejection(code, detail)


def read_delay_ms(name: str, raw: bytes | None) -> int:
    """Return the delay in a header."""
    try:
        return parse_delay_ms(text_of(raw))
    except ValueError as error:
        raise Rejected("time-unreadable", f"{name}: {error}") from None


class TargetNames:
    """Checks of topic names by one policy. The proxy looks for the topics when the records fire."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.known: dict[bytes | None, str] = {}
        """Accepted topic names by the value of `timer-topic`."""
        self._refused: dict[bytes | None, Rejection] = {}

    def target(self, asked: Asked) -> str:
        raw = asked.get(TOPIC)
        if raw is None:
            raise _missing(asked)
        if raw in self._refused:
            refused = self._refused[raw]
            raise Rejected(refused.code, refused.detail)
        return self.known.get(raw) or self._learn(raw)

    def named_in(self, header: str, raw: bytes | None) -> str:
        name = (raw or b"").decode("utf-8", "replace")
        if not is_legal_topic(name):
            raise Rejected("target-illegal", f"{header} is {shown(raw or b'')}: {TOPIC_NAME_RULE}")
        if refusal := self._policy.refusal(name):
            raise Rejected("target-refused", refusal)
        return name

    def derived(self, prefix: str, group: str, raw: bytes) -> str:
        name = prefix + group
        if not is_legal_topic(name):
            raise Rejected(
                "target-illegal",
                f"{shown(raw)} makes the topic name {name[:80]!r}: {TOPIC_NAME_RULE}",
            )
        policy = self._policy
        if refusal := policy.refusal(name, is_derived=True) or policy.group_refusal(group):
            raise Rejected("target-refused", refusal)
        return name

    def _learn(self, raw: bytes) -> str:
        try:
            name = self.named_in(TOPIC, raw)
        except Rejected as rejected:
            remember(self._refused, raw, rejected.rejection)
            raise
        remember(self.known, raw, name)
        return name


def _missing(asked: Asked) -> Rejected:
    alike = [name for name in asked if name.lower() == TOPIC and name != TOPIC]
    hint = f" (found {alike[0]!r}: header names are lower case)" if alike else ""
    return Rejected("target-missing", f"the record has no {TOPIC} header{hint}")


def read_partition(raw: bytes | None) -> int:
    """Return the partition in `timer-partition`."""
    if raw is not None and raw.isdigit() and int(raw[:10]) < 2**31 and len(raw) <= 10:
        return int(raw)
    why = f"{PARTITION} is {shown(raw)}: it must be a partition number from 0"
    raise Rejected("partition-bad", why)


def is_ident(raw: bytes | None) -> bool:
    """Return whether this is a legal id."""
    return bool(raw) and len(raw or b"") <= LONGEST_ID_BYTES
