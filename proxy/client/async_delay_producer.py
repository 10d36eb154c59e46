"""The producer of delayed records for asyncio: what is sent is awaited, and no call blocks."""

import asyncio
import time
from typing import Final, Self

from proxy.client.delay_producer import CLOSE_WITHIN_S, INGRESS, MAX_BLOCK_S
from proxy.client.errors import QueueFull
from proxy.client.ingress_writer import IngressWriter
from proxy.client.kafka_settings import Settings
from proxy.client.receipt import Receipt
from proxy.client.request import (
    Data,
    DelayedRecord,
    Headers,
    Request,
    cancellation,
    delayed,
    recall,
)
from proxy.client.when import Delay, Instant

LOOK_EVERY_S: Final = 0.01


class AsyncDelayProducer:
    """As DelayProducer; what is asked for (`send`, `replace`, `cancel`, `recall`) is awaited until
    the broker has it.

    Many at once: `asyncio.gather`. Transactions are DelayProducer's. Close it, or use `async with`.
    """

    def __init__(
        self, config: Settings, *, ingress: str = INGRESS, max_block_s: float = MAX_BLOCK_S
    ) -> None:
        self._writer = IngressWriter(config, ingress, max_block_s=0)
        self._max_block_s = max_block_s

    async def send(
        self,
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers | None = None,
        delay: Delay | None = None,
        deliver_at: Instant | None = None,
        level: int | None = None,
        id: str | bytes | None = None,  # noqa: A002 (the protocol's word)
        partition: int | None = None,
    ) -> Receipt:
        """Send one record that appears in `topic` later; the arguments are `DelayProducer.send`'s.

        Raises RequestRefused, NotStored; QueueFull when the local queue is full for `max_block_s`.
        """
        record = DelayedRecord(topic, value, key, headers, delay, deliver_at, level, id, partition)
        return await self._stored(delayed(record))

    async def replace(
        self,
        id: str | bytes,  # noqa: A002 (the protocol's word)
        topic: str,
        value: Data = None,
        key: Data = None,
        headers: Headers | None = None,
        delay: Delay | None = None,
        deliver_at: Instant | None = None,
        level: int | None = None,
        partition: int | None = None,
    ) -> Receipt:
        """Send a record in place of the pending one of that id: a whole new one, time and all."""
        return await self.send(topic, value, key, headers, delay, deliver_at, level, id, partition)

    async def cancel(self, id: str | bytes) -> Receipt:  # noqa: A002 (the protocol's word)
        """Ask that the pending record of that id is not delivered."""
        return await self._stored(cancellation(id))

    async def recall(
        self,
        receipt: Receipt | str,
        *,
        key: Data = None,
        id: str | bytes | None = None,  # noqa: A002 (the protocol's word)
    ) -> Receipt:
        """Ask that the record of this receipt is not delivered; an origin needs its key or id."""
        return await self._stored(recall(receipt, self._writer.ingress, key, id))

    async def close(self, timeout_s: float = CLOSE_WITHIN_S) -> None:
        """Flush and end. Raises StillUnsent when records were not confirmed in time."""
        await asyncio.to_thread(self._writer.close, timeout_s)

    async def _stored(self, request: Request) -> Receipt:
        deadline_s = time.monotonic() + self._max_block_s
        while True:
            try:
                future = self._writer.write(request)
            except QueueFull:
                if time.monotonic() >= deadline_s:
                    raise
                await asyncio.sleep(LOOK_EVERY_S)
            else:
                return await asyncio.wrap_future(future)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()
