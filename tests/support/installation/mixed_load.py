"""Steady stream of all kinds: ids, cancels, replacements, half messages and retries."""

from __future__ import annotations

import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tests.support.installation.installation import Installation
from tests.support.installation.paced import Paced
from tests.support.records import Headers, Outgoing

FEW_IDS: Final = 40
"""With few ids, many requests have the same id at the same time."""
GROUP: Final = "readers"
USUAL: Final[Mapping[str, float]] = MappingProxyType(
    {
        "plain": 3,
        "named": 5,
        "cancel": 3,
        "prepare": 3,
        "commit": 2,
        "rollback": 1,
        "retry": 2,
        "missing": 1,
        "wrong": 1,
    }
)


class MixedLoad(Paced):
    """Load of about `per_second` records until the end of the block. The same seed gives the same
    records. Many half messages get no decision and expire. `sent` counts records by kind. `weights`
    are the frequencies of kinds."""

    def __init__(
        self,
        installation: Installation,
        targets: list[str],
        *,
        per_second: int = 150,
        seed: int = 7,
        ids: int = FEW_IDS,
        weights: Mapping[str, float] = USUAL,
        linger_ms: int = 0,
    ) -> None:
        super().__init__(per_second)
        self.sent: dict[str, int] = dict.fromkeys(weights, 0)
        self._targets, self._ids = targets, ids
        self._kinds, self._weights = list(weights), list(weights.values())
        self._checks = installation.check_topics[0].encode()
        self._random = random.Random(seed)
        self._writer = installation.writer(linger_ms)

    def _written(self) -> int:
        return sum(self.sent.values())

    def _finish(self, error: BaseException | None) -> None:
        self._writer.__exit__(type(error) if error else None, error, None)

    def _write_one(self) -> None:
        (kind,) = self._random.choices(self._kinds, self._weights)
        self.sent[kind] += 1
        ident = b"id-%d" % self._random.randrange(self._ids)
        self._writer.write(self._record(kind, self.sent[kind], ident))

    def _record(self, kind: str, number: int, ident: bytes) -> Outgoing:
        headers = [*self._asking(kind, ident), ("trace", b"%s %d" % (kind.encode(), number))]
        return Outgoing(ident, b"value %d" % number, headers)

    def _asking(self, kind: str, ident: bytes) -> Headers:
        if kind == "cancel":
            return [("timer-cancel", ident)]
        if kind in ("commit", "rollback"):
            return [("timer-id", ident), ("timer-transaction", kind.encode())]
        if kind == "retry":
            attempt = b"%d" % self._random.randrange(20)
            return [("timer-retry-group", GROUP.encode()), ("timer-attempt", attempt)]
        if kind == "missing":
            return [("timer-topic", b"nobody-made-this-topic"), ("timer-id", ident)]
        if kind == "wrong":
            return [*self._plain(), ("timer-hop-attempt", b"1")]
        named: Headers = [] if kind == "plain" else [("timer-id", ident)]
        half: Headers = [("timer-transaction", b"prepare"), ("timer-check-topic", self._checks)]
        return [*self._plain(), *named, *(half if kind == "prepare" else [])]

    def _plain(self) -> Headers:
        target, delay_ms = self._random.choice(self._targets), self._random.randrange(2_500)
        return [("timer-topic", target.encode()), ("timer-delay", b"%d" % delay_ms)]
