"""A retry consumer process for kill tests: `python -m` with its options as JSON.

Every third number fails twice before it succeeds. The number `stuck` does not end at its first
attempt: an orderly consumer retries it later, otherwise its handler hangs. The journal gets a line
for each call of the handler.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import sys
import time
from pkgutil import resolve_name
from typing import Any

from kafka_delay import AsyncRetryConsumer, Received, RetryConsumer, RetryLater

FAILS_TIMES = 2
WORK_S = 0.02
FOR_EVER_S = 3_600
UNEVEN = 7
CALLS = {
    "give_up": "kafka_delay.handlers:HandlerThreads.give_up",
    "give_up_task": "kafka_delay.handlers:HandlerTasks.give_up",
    "commit": "kafka_delay.commits:commit",
    "settled": "kafka_delay.commits:Backlog.settled",
    "finish": "kafka_delay.consumer_loop:ConsumerLoop._finish",
    "revoke": "kafka_delay.consumer_loop:ConsumerLoop._on_revoke",
}


def fails(number: int) -> bool:
    return number % 3 == 0


class Handlers:
    def __init__(self, journal: str, work_s: float, stuck: int | None, *, is_orderly: bool) -> None:
        self._journal = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._work_s, self._stuck, self._is_orderly = work_s, stuck, is_orderly

    def handle(self, record: Received) -> None:
        time.sleep(self._takes_s(record))
        if self._is_stuck(record):
            _never_end(is_orderly=self._is_orderly)
        _fail_at_first(record)

    async def handle_in_a_task(self, record: Received) -> None:
        await asyncio.sleep(self._takes_s(record))
        if self._is_stuck(record):
            await asyncio.sleep(FOR_EVER_S)
        _fail_at_first(record)

    def _takes_s(self, record: Received) -> float:
        return self._work_s * (int(record.value or b"") % UNEVEN)

    def _is_stuck(self, record: Received) -> bool:
        number = int(record.value or b"")
        os.write(self._journal, b"%d %d\n" % (number, record.attempt))
        return number == self._stuck and not record.attempt


def main(options: dict[str, Any]) -> None:
    dies_in = options.pop("dies_in", None)
    if dies_in is not None:
        _die_in(dies_in)
    handlers = Handlers(
        options.pop("journal"),
        options.pop("work_s", WORK_S),
        options.pop("stuck", None),
        is_orderly=options.get("orderly", False),
    )
    if options.pop("is_async", False):
        in_tasks = AsyncRetryConsumer(handler=handlers.handle_in_a_task, **options)
        signal.signal(signal.SIGTERM, lambda *_: in_tasks.stop())
        asyncio.run(in_tasks.run())
    else:
        consumer = RetryConsumer(handler=handlers.handle, **options)
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        consumer.run()


def _fail_at_first(record: Received) -> None:
    number = int(record.value or b"")
    if fails(number) and record.attempt < FAILS_TIMES:
        raise ValueError(f"{number} fails")


def _die_in(moment: tuple[str, int]) -> None:
    named, calls = moment
    place, name = re.split(r"[.:](?=\w+$)", CALLS[named])
    owner = resolve_name(place)
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
    time.sleep(FOR_EVER_S)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
