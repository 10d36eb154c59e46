"""A retry consumer as a process of its own, to be killed: `python -m` with its options as JSON.

Every third number fails twice before it can be handled, and the number `stuck` does not end at its
first attempt: it waits for the next when the consumer is orderly, else its handler hangs. What is
handled goes into the journal, a line for each call of the handler.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from pkgutil import resolve_name
from typing import Any

from proxy.client import Received, RetryConsumer, RetryLater

FAILS_TIMES = 2
WORK_S = 0.02
UNEVEN = 7
"""Handlers take different times, so that they end out of order."""
RETRIES = "proxy.client.retries"
OWNERS = {
    "give_up": f"{RETRIES}.handling.handler_threads:HandlerThreads",
    "commit": f"{RETRIES}.committing.settlement",
    "add_offsets": "proxy.client.transactions:Transactions",
    "settled": f"{RETRIES}.committing.backlog:Backlog",
    "_finish": f"{RETRIES}.consumer_loop:ConsumerLoop",
    "_on_revoke": f"{RETRIES}.consumer_loop:ConsumerLoop",
}
"""Of the calls before which a process may be killed."""


def fails(number: int) -> bool:
    """Whether this one fails at first."""
    return number % 3 == 0


def main(options: dict[str, Any]) -> None:
    """Work until SIGTERM."""
    dies_in = options.pop("dies_in", None)
    if dies_in is not None:
        _die_in(dies_in)
    journal = os.open(options.pop("journal"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    stuck, work_s = options.pop("stuck", None), options.pop("work_s", WORK_S)

    def handle(record: Received) -> None:
        number = int(record.value or b"")
        time.sleep(work_s * (number % UNEVEN))
        os.write(journal, b"%d %d\n" % (number, record.attempt))
        if number == stuck and not record.attempt:
            _never_end(is_orderly=options.get("orderly", False))
        if fails(number) and record.attempt < FAILS_TIMES:
            raise ValueError(f"{number} fails")

    consumer = RetryConsumer(handler=handle, **options)
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    consumer.run()


def _die_in(moment: tuple[str, int]) -> None:
    """By SIGKILL, before such a call."""
    name, calls = moment
    owner = resolve_name(OWNERS[name])
    original = getattr(owner, name)
    count = itertools.count(1)

    def killed(*args: Any, **options: Any) -> Any:
        if next(count) == calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **options)

    setattr(owner, name, killed)


def _never_end(*, is_orderly: bool) -> None:
    if is_orderly:
        raise RetryLater("1h")
    time.sleep(3_600)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
