"""A steady stream of everything there is: ids, cancels, replacements, half messages, retries."""

from __future__ import annotations

import random

from tests.support.installation.installation import Installation
from tests.support.installation.paced import Paced
from tests.support.records import Headers, Outgoing

IDS = 40
"""So few that operations meet each other all the time."""
GROUP = "readers"


class MixedLoad(Paced):
    """Writes `per_second` records, or about so many, until left. Same seed, same records.

    Nobody decides every second half message: those expire. `sent` counts by kind.
    """

    def __init__(
        self, installation: Installation, targets: list[str], *, per_second: int = 150
    ) -> None:
        super().__init__(per_second)
        self.sent: dict[str, int] = {}
        self._targets = targets
        self._checks = installation.check_topics[0].encode()
        self._random = random.Random(7)
        self._writer = installation.writer()

    def _written(self) -> int:
        return sum(self.sent.values())

    def _finish(self, error: BaseException | None) -> None:
        self._writer.__exit__(type(error) if error else None, error, None)

    def _write_one(self) -> None:
        kinds = {
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
        kind = self._random.choices(list(kinds), list(kinds.values()))[0]
        number = self.sent[kind] = self.sent.get(kind, 0) + 1
        ident = b"id-%d" % self._random.randrange(IDS)
        headers = [*self._asking(kind, ident), ("trace", b"%s %d" % (kind.encode(), number))]
        self._writer.write(Outgoing(ident, b"value %d" % number, headers))

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
