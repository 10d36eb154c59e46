"""A steady stream of everything there is: ids, cancels, replacements, half messages, retries."""

from __future__ import annotations

import random
import threading
import time
from types import TracebackType
from typing import Self

from tests.support.installation import Installation
from tests.support.records import Headers, Outgoing

TICK_S = 0.02
IDS = 40
"""So few that operations meet each other all the time."""
GROUP = "readers"


class MixedLoad:
    """Writes `per_second` records, or about so many, until left. Same seed, same records.

    Nobody decides every second half message: those expire. `sent` counts by kind.
    """

    def __init__(
        self, installation: Installation, targets: list[str], *, per_second: int = 150
    ) -> None:
        self.sent: dict[str, int] = {}
        self._targets = targets
        self._checks = installation.check_topics[0].encode()
        self._per_second = per_second
        self._random = random.Random(7)
        self._ending = threading.Event()
        self._writer = installation.writer()
        self._thread = threading.Thread(target=self._write, name="mixed-load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._writer.__exit__(kind, error, trace)

    def _write(self) -> None:
        started = time.monotonic()
        while not self._ending.wait(TICK_S):
            while sum(self.sent.values()) < (time.monotonic() - started) * self._per_second:
                self._write_one()

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
