"""Reader of all targets of a scenario, from the beginning to the last record."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import Final

import numpy as np

from tools.benchmarks import clients
from tools.benchmarks.processes import Announce
from tools.benchmarks.reader import Batch, assign_whole, next_batch
from tools.overload.ledger import Account, Ledger, Milliseconds, Phase
from tools.overload.progress import Progress

MANY_TOPICS: Final = 100
MANY: Final[dict[str, clients.Setting]] = {"fetch.wait.max.ms": 200}
"""Settings for thousands of topics. Fetches wait longer, because each fetch names every
partition."""


@dataclass(frozen=True, slots=True)
class Following:
    """Topics to read, and the phases of the load written there. Once writing has ended, reading
    ends after `silent_s` without records. The records that have not come then count as missing."""

    bootstrap_servers: str
    topics: list[str]
    phases: list[Phase]
    silent_s: float
    queued_kbytes: int


def follow(announce: Announce, following: Following, progress: Progress) -> Account:
    gc.disable()
    consumer = clients.consumer(following.bootstrap_servers, _settings(following))
    ledger = Ledger(following.phases)
    try:
        assign_whole(consumer, following.topics)
        announce()
        heard_s = time.monotonic()
        while not (progress.is_over and time.monotonic() - heard_s > following.silent_s):
            is_complete = progress.is_complete
            batch = next_batch(consumer, is_complete)
            if batch is not None:
                ledger.note(batch.keys, _appended_ms(batch), batch.received_ms)
                progress.received += len(batch.records)
                heard_s = time.monotonic()
            elif is_complete:
                break
    finally:
        consumer.close()
    return ledger.account(progress.written)


def _appended_ms(batch: Batch) -> Milliseconds:
    return np.array([message.timestamp()[1] for message in batch.records], np.int64)


def _settings(following: Following) -> dict[str, clients.Setting]:
    settings: dict[str, clients.Setting] = {
        "enable.partition.eof": True,
        "queued.max.messages.kbytes": following.queued_kbytes,
    }
    return settings | (MANY if len(following.topics) > MANY_TOPICS else {})
