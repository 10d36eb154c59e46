"""A steady stream of delayed records, written while something else goes wrong."""

from __future__ import annotations

import random
import threading
import time
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from tests.support.installation import Installation

TICK_S = 0.02
FLUSH_TIMEOUT_S = 120
VALUE_BYTES = 200


class Load:
    """Writes `per_second` records, each to be delivered within `longest_delay_ms`, until left.

    Every tenth record asks for no delay at all. Same seed, same records. A broker that is away is
    waited for: when the load ends, everything counted in `sent` is in the ingress.
    """

    def __init__(
        self,
        installation: Installation,
        targets: list[str],
        *,
        per_second: int = 500,
        longest_delay_ms: int = 3_000,
        seed: int = 1,
    ) -> None:
        self.sent = 0
        self._ingress, self._targets = installation.ingress, targets
        self._per_second, self._longest_delay_ms = per_second, longest_delay_ms
        self._random = random.Random(seed)
        self._value = bytes(VALUE_BYTES)
        self._refused: list[KafkaError] = []
        self._ending = threading.Event()
        settings = {"enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._producer = Producer({"bootstrap.servers": installation.bootstrap, **settings})
        self._thread = threading.Thread(target=self._write, name="load", daemon=True)

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
        if kind is None:
            left = self._producer.flush(FLUSH_TIMEOUT_S)
            assert not left, f"{left} of {self.sent} records did not reach the ingress"
            assert not self._refused, f"records refused: {self._refused[0]}"
        else:
            self._producer.purge()

    def _write(self) -> None:
        started = time.monotonic()
        while not self._ending.wait(TICK_S):
            while self.sent < (time.monotonic() - started) * self._per_second:
                self._send_one()
            self._producer.poll(0)

    def _send_one(self) -> None:
        number, draw = self.sent, self._random
        headers = [("timer-topic", draw.choice(self._targets).encode()), ("trace", b"%d" % number)]
        if number % 10:
            headers.append(("timer-delay", b"%d" % draw.randrange(self._longest_delay_ms)))
        self._producer.produce(
            self._ingress,
            self._value,
            b"key-%d" % number,
            headers=list(headers),
            on_delivery=self._note,
        )
        self.sent += 1

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._refused.append(error)
