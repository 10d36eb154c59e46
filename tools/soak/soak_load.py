"""Load of a soak: every kind of request, also records of attackers and of broken producers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.support.installation.mixed_load import MixedLoad
from tests.support.records import Headers, Outgoing
from tools.soak.scene import GROWS_FROM, Scene

IDS_PER_RECORD_A_SECOND: Final = 0.5
"""Number of ids for each record a second. Because there are few ids, many records with the same id
are pending at the same time."""
LEAST_IDS: Final = 40
LARGE_BYTES: Final = 1 << 20
LINGER_MS: Final = 10
WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "plain": 400,
        "named": 250,
        "cancel": 100,
        "prepare": 40,
        "commit": 25,
        "rollback": 8,
        "retry": 40,
        "wrong": 5,
        "forged": 5,
        "garbage": 10,
        "missing": 2,
        "large": 0.2,
        "remade": 15,
    }
)
"""Relative frequencies of the kinds. `missing` is rare, because the proxy rewrites a record with a
missing target fifteen times. `large` is rare, because these records have a mebibyte."""
FORGED: Final[tuple[Headers, ...]] = (
    [("timer-deliver-at", b"4102444800000"), ("timer-hop-from", b"0")],
    [("timer-hop-from", b"1"), ("timer-hop-mac", b"0" * 32), ("timer-first-origin", b"a/0/1")],
    [("timer-hop-from", b"9" * 30), ("timer-deliver-at", b"9" * 19)],
    [("timer-hop-not-before", b"1")],
    [("timer-hop-entry", b"1")],
)
GARBAGE: Final[tuple[Headers, ...]] = (
    [],
    [("timer-topic", None)],
    [("timer-topic", b"\xff\xfe")],
    [("timer-topic", b"a/b"), ("timer-delay", b"1")],
    [("timer-topic", b"t"), ("timer-delay", b"9" * 300)],
    [("timer-topic", b"t"), ("timer-delay", b"\x00\xff")],
    [("timer-topic", b"t"), ("timer-deliver-at", b"yesterday")],
    [("timer-topic", b"t"), ("timer-level", b"high")],
    [("timer-topic", b"t"), ("timer-partition", b"-1")],
    [("timer-topic", b"t"), ("timer-id", b"x" * 300)],
    [("timer-topic", b"t"), ("timer-dealy", b"5s")],
    [("timer-topic", b"t"), ("timer-transaction", b"perhaps"), ("timer-id", b"x")],
    [("timer-retry-group", b"\xff"), ("timer-attempt", b"-1")],
    [("timer-cancel", b"")],
)


class SoakLoad(MixedLoad):
    """Load of `per_second` records a second. Records of `LARGE_BYTES` go to `scene.large`."""

    def __init__(self, scene: Scene, *, per_second: int, seed: int) -> None:
        ids = max(LEAST_IDS, int(per_second * IDS_PER_RECORD_A_SECOND))
        self._grows = scene.grows.encode()
        self._remade = scene.installation.remade.topic.encode()
        self._large = [topic.encode() for topic in scene.large]
        super().__init__(
            scene.installation,
            scene.targets,
            per_second=per_second,
            seed=seed,
            ids=ids,
            weights=WEIGHTS,
            linger_ms=LINGER_MS,
        )

    def _record(self, kind: str, number: int, ident: bytes) -> Outgoing:
        if kind == "garbage":
            return Outgoing(None, self._random.randbytes(30), self._random.choice(GARBAGE))
        one = super()._record(kind, number, ident)
        if kind == "large":
            return Outgoing(one.key, self._random.randbytes(LARGE_BYTES), one.headers)
        return one

    def _plain(self) -> Headers:
        """Name the partition in records for the target that gets more partitions. Without the name,
        the audit would compute a key's partition from the number of partitions at the end
        (docs/audit.md)."""
        headers = super()._plain()
        if headers[0][1] == self._grows:
            headers.append(("timer-partition", b"%d" % self._random.randrange(GROWS_FROM)))
        return headers

    def _asking(self, kind: str, ident: bytes) -> Headers:
        if kind == "forged":
            forged = self._random.choice(FORGED)
            return [("timer-topic", self._targets[0].encode()), ("timer-id", ident), *forged]
        if kind == "large":
            return [("timer-topic", self._random.choice(self._large)), ("timer-delay", b"300ms")]
        if kind == "remade":
            delay_ms = b"%d" % self._random.randrange(2_500)
            return [("timer-topic", self._remade), ("timer-delay", delay_ms)]
        return super()._asking(kind, ident)
