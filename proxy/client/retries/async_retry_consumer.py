"""The consumer with retries for asyncio: its handler is a coroutine function."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from inspect import iscoroutinefunction, isroutine
from threading import Thread
from typing import NoReturn, TypedDict, Unpack

from proxy.client.errors import ConfigRefused
from proxy.client.kafka_settings import Settings
from proxy.client.retries.handling.failure_rules import Exceptions
from proxy.client.retries.handling.handler_tasks import AsyncHandler, HandlerTasks
from proxy.client.retries.received import Received
from proxy.client.retries.retry_consumer import RetryConsumer
from proxy.client.retries.signer import SigningKey
from proxy.client.when import Delay

log = logging.getLogger("proxy.client")


class RetryOptions(TypedDict, total=False):
    """The keyword arguments of RetryConsumer."""

    producer_config: Settings | None
    ingress: str
    retry_topic: str | None
    max_attempts: int
    retry: Exceptions
    give_up: Exceptions
    ignore: Exceptions
    parallel: int
    handler_timeout: Delay
    max_hanging: int
    orderly: bool
    orderly_delays: str | None
    signing_key: SigningKey | None


class AsyncRetryConsumer:
    """As RetryConsumer, with the same options; `parallel` handlers are tasks of the event loop.

    A thread polls, so that a busy loop does not cost the consumer its partitions. A handler that
    takes longer than `handler_timeout` is cancelled, and counts as failed at once; it may go on if
    it does not heed that.
    """

    def __init__(
        self,
        config: Settings,
        group: str,
        topics: Sequence[str],
        handler: AsyncHandler,
        **options: Unpack[RetryOptions],
    ) -> None:
        if not callable(handler):
            raise ConfigRefused(f"the handler is {handler!r}: give a coroutine function")
        if isroutine(handler) and not iscoroutinefunction(handler):
            raise ConfigRefused(
                f"the handler {handler!r} is no coroutine function: write `async def`, or use "
                "RetryConsumer"
            )
        self._handler = handler
        self._consumer = RetryConsumer(config, group, topics, _not_called, **options)

    async def run(self) -> None:
        """Work until `stop` is called; then commit what is handled, leave the group and return.

        Raises what RetryConsumer's `run` raises. Cancelled, it cancels the handlers at work, whose
        records come again as if they had not been called, and commits what is handled.
        """
        tasks = HandlerTasks(self._handler, asyncio.get_running_loop())
        working = asyncio.wrap_future(_in_a_thread(self._consumer, tasks))
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            self.stop()
            tasks.cancel_all()
            with suppress(BaseException):
                await working
            raise

    def stop(self) -> None:
        """Make `run` return after the records in hand; for any thread, and for signal handlers."""
        self._consumer.stop()


def _in_a_thread(consumer: RetryConsumer, tasks: HandlerTasks) -> Future[None]:
    ended: Future[None] = Future()

    def work() -> None:
        try:
            consumer.run_with(tasks)
        except BaseException as error:  # noqa: BLE001 (raised again where `run` is awaited)
            log.error("the consumer has left its group: %s", error)  # the loop may be blocked
            ended.set_exception(error)
        else:
            ended.set_result(None)

    Thread(target=work, name="retry-consumer", daemon=True).start()
    return ended


def _not_called(_record: Received) -> NoReturn:
    raise AssertionError("handlers are called by tasks")
