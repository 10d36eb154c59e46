"""The records of the settings topic: their keys, and what the values say.

- `<digest>`: a policy (`proxy.requests.policy`).
- `served/<group_id>/<topic>/<partition>`: the partition has a committed offset.
- `paused/<group_id>/<pattern>`: the targets of a shell pattern are paused; a deletion of the key
  says that they are not.

The topic is compacted, so the newest record of each key outlives every restart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from proxy.records.position import PolicyFrom

SERVED: Final = "served/"
PAUSED: Final = "paused/"
PATTERN: Final = re.compile(r"[a-zA-Z0-9._*?\[\]!-]{1,249}")
"""What a pattern of topic names can be made of."""
MOST_POLICIES: Final = 256
"""So many changes of settings are remembered for each partition: at most 10 KB."""


class ServedPartition(NamedTuple):
    """A partition of the ingress topic with this id was served, under these policies, each from
    its first offset on."""

    topic_id: str
    policies: tuple[PolicyFrom, ...] = ()

    def joined(self, topic_id: str, policies: Sequence[PolicyFrom]) -> ServedPartition:
        """With what counts now; of another topic nothing is remembered."""
        known = self.policies if topic_id == self.topic_id else ()
        older = [one for one in known if one.first_offset < policies[0].first_offset]
        return ServedPartition(topic_id, (*older, *policies)[-MOST_POLICIES:])

    def to_json(self) -> str:
        """The record's value."""
        return json.dumps(self._asdict(), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> ServedPartition:
        """Raises ValueError, KeyError, TypeError when it is no such record."""
        found = json.loads(text)
        topic_id = str(found["topic_id"])
        policies = found.get("policies", ())
        return cls(topic_id, tuple(PolicyFrom(int(n), str(digest)) for n, digest in policies))


def served_key(group_id: str, topic: str, partition: int) -> str:
    """Key of the record that says that a partition has been served."""
    return f"{SERVED}{group_id}/{topic}/{partition}"


def pause_key(group_id: str, pattern: str) -> str:
    """Key of the record that says whether the targets of `pattern` are paused."""
    return f"{PAUSED}{group_id}/{pattern}"


def paused_pattern(group_id: str, key: str) -> str | None:
    """The pattern that a record of this key pauses or resumes; None: it is about something else."""
    own = pause_key(group_id, "")
    pattern = key.removeprefix(own)
    return pattern if key.startswith(own) and PATTERN.fullmatch(pattern) else None
