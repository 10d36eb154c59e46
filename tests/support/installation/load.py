"""Steady stream of delayed records during a fault."""

from __future__ import annotations

import random

from confluent_kafka import KafkaError, Message, Producer

from tests.support.installation.installation import Installation
from tests.support.installation.paced import Paced
from tests.support.quiet_clients import QUIET

FLUSH_TIMEOUT_S = 120
VALUE_BYTES = 200


class Load(Paced):
    """Load of `per_second` records, due within `longest_delay_ms`, until the end of the block.
    Every tenth record has no delay. The same seed gives the same records. The load waits while the
    broker is away. At the end, all `sent` records are in the ingress."""

    def __init__(
        self,
        installation: Installation,
        targets: list[str],
        *,
        per_second: int = 500,
        longest_delay_ms: int = 3_000,
        seed: int = 1,
    ) -> None:
        super().__init__(per_second)
        self.sent = 0
        self._ingress, self._targets = installation.ingress, targets
        self._longest_delay_ms = longest_delay_ms
        self._random = random.Random(seed)
        self._value = bytes(VALUE_BYTES)
        self._refused: list[KafkaError] = []
        settings = {"enable.idempotence": True, "linger.ms": 5, **QUIET}
        self._producer = Producer({"bootstrap.servers": installation.bootstrap, **settings})

    def _written(self) -> int:
        return self.sent

    def _finish(self, error: BaseException | None) -> None:
        if error is not None:
            self._producer.purge()
            return
        left = self._producer.flush(FLUSH_TIMEOUT_S)
        assert not left, f"{left} of {self.sent} records did not reach the ingress"
        assert not self._refused, f"records refused: {self._refused[0]}"

    def _write_one(self) -> None:
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
        self._producer.poll(0)

    def _note(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._refused.append(error)
