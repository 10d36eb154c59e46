"""A retry consumer as a process of its own, to be killed: `python -m` with its options as JSON.

Every third number fails twice before it can be handled, and the number `stuck` never ends: it waits
for its next attempt when the consumer is orderly, else its handler hangs. What is handled goes into
the journal, a line for each call of the handler.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from proxy.client import Received, RetryConsumer, RetryLater

FAILS_TIMES = 2
WORK_S = 0.02
UNEVEN = 7
"""Handlers take different times, so that they end out of order."""


def fails(number: int) -> bool:
    """Whether this one fails at first."""
    return number % 3 == 0


def main(options: dict[str, Any]) -> None:
    """Work until SIGTERM."""
    journal = os.open(options.pop("journal"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stuck, work_s = options.pop("stuck", None), options.pop("work_s", WORK_S)

    def handle(record: Received) -> None:
        number = int(record.value or b"")
        time.sleep(work_s * (number % UNEVEN))
        os.write(journal, b"%d %d\n" % (number, record.attempt))
        if number == stuck:
            _never_end(is_orderly=options.get("orderly", False))
        if fails(number) and record.attempt < FAILS_TIMES:
            raise ValueError(f"{number} fails")

    consumer = RetryConsumer(handler=handle, **options)
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    consumer.run()


def _never_end(*, is_orderly: bool) -> None:
    if is_orderly:
        raise RetryLater("1h")
    time.sleep(3_600)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
