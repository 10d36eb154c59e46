"""The keys of the settings topic's records, and what those say that are about partitions served.

A policy has its digest as key.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from proxy.protocol.bounded_json import read_object, whole
from proxy.protocol.policy import TARGETS_PATTERN
from proxy.protocol.position import PolicyFrom

SERVED: Final = "served/"
PAUSED: Final = "paused/"
RESUMED: Final = "resumed/"
LIMITS: Final = "limits/"
RATE: Final = "rate/"
INGEST: Final = "ingest/"
SKIPPED: Final = "skipped/"
HOP_KEY: Final = "hop-key/"
HOP_KEYS_PARTITION: Final = 0
"""The first key there is the one that signs: all of them are written where they have an order."""
BY_KEY: Final = -1
OVERDUE: Final = "overdue/"
"""All rules for the overdue that ever counted: for an audit, which asks whether there was one by
which a record ended undelivered."""
CLOCK: Final = "clock/"
"""Says nothing: it was written to learn its timestamp (`proxy.kafka.broker_clock`)."""
MOST_POLICIES: Final = 256
"""So many changes of settings are remembered for each partition: at most 10 KB."""
DIGEST_LENGTH: Final = 16


class ServedPartition(NamedTuple):
    """A partition of the ingress topic with this id was served, under these policies, each from
    its first offset on."""

    topic_id: str
    policies: tuple[PolicyFrom, ...] = ()

    def joined(self, topic_id: str, policies: Sequence[PolicyFrom]) -> Self:
        """With what counts now; of another topic nothing is remembered."""
        known = self.policies if topic_id == self.topic_id else ()
        older = [one for one in known if one.first_offset < policies[0].first_offset]
        return type(self)(topic_id, (*older, *policies)[-MOST_POLICIES:])

    def to_json(self) -> str:
        """The record's value."""
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Raises ValueError, KeyError, TypeError when it is no such record."""
        found = read_object(text)
        topic_id = str(found["topic_id"])
        policies = found.get("policies", ())
        return cls(topic_id, tuple(PolicyFrom(whole(n), str(digest)) for n, digest in policies))


def served_key(group_id: str, topic: str, partition: int) -> str:
    """Key of the record that says that a partition has been served."""
    return f"{SERVED}{group_id}/{topic}/{partition}"


def pause_key(group_id: str, pattern: str) -> str:
    """Key of the record that says whether the targets of `pattern` are paused."""
    return f"{PAUSED}{group_id}/{pattern}"


def resumed_key(group_id: str, pattern: str) -> str:
    """Key of the record that says when the targets of `pattern` were resumed, and how."""
    return f"{RESUMED}{group_id}/{pattern}"


def limit_key(group_id: str, pattern: str) -> str:
    """Key of the record with what was set at run time for the targets of `pattern`."""
    return f"{LIMITS}{group_id}/{pattern}"


def rate_key(group_id: str) -> str:
    """Key of the record with the bound on each worker that was set at run time."""
    return f"{RATE}{group_id}/worker"


def ingest_key(group_id: str) -> str:
    """Key of the record that says whether taking in is paused."""
    return f"{INGEST}{group_id}/paused"


def skipped_key(group_id: str, topic_id: str, partition: int, base: int) -> str:
    """Key of the record that says that a batch of the ingress, from `base` on, is skipped."""
    return f"{SKIPPED}{group_id}/{topic_id}/{partition}/{base}"


def skipped_value(end: int, error: str, now_ms: int) -> str:
    """Value of that record: the batch lies before `end`, and why it was skipped when."""
    return json.dumps({"end": end, "error": error, "skipped_at": now_ms}, separators=(",", ":"))


def skipped_place(group_id: str, key: str) -> tuple[str, int, int] | None:
    """The topic id, the partition and the base in such a key; None: of another group. Raises
    ValueError where they cannot be read."""
    own = f"{SKIPPED}{group_id}/"
    if not key.startswith(own):
        return None
    topic_id, partition, base = key.removeprefix(own).split("/")
    return topic_id, int(partition), int(base)


def skipped_end(value: bytes | None, base: int) -> int:
    """The end in the value of such a record. Raises ValueError and KeyError where it has none."""
    end = whole(read_object(value)["end"])
    if end <= base:
        raise ValueError(f"the end {end} does not lie behind {base}")
    return end


def clock_key(group_id: str) -> str:
    """Key of the record that asks for the broker's time."""
    return f"{CLOCK}{group_id}"


def pattern_in(kind: str, group_id: str, key: str) -> str | None:
    """Return the pattern in a key of this kind (PAUSED, RESUMED or LIMITS); None: another key."""
    own = f"{kind}{group_id}/"
    pattern = key.removeprefix(own)
    return pattern if key.startswith(own) and TARGETS_PATTERN.fullmatch(pattern) else None


def overdue_key(group_id: str, rules: str) -> str:
    """Key of the record with these rules for the overdue, by the digest of their JSON."""
    digest = hashlib.sha256(rules.encode()).hexdigest()[:DIGEST_LENGTH]
    return f"{OVERDUE}{group_id}/{digest}"
