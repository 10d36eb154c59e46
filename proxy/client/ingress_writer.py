"""Writes requests to the ingress topic; a future per record, completed without the caller's help.

confluent_kafka hands out delivery reports only while somebody calls `poll`. One thread per writer
does nothing else, so futures complete whatever the caller does meanwhile. `write` never polls, so
callbacks may write; what does poll (flush, commit) is refused in them, for a nested poll aborts
the process (confluent-kafka-python issue 457).
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from proxy.client.errors import ClientError, ConfigRefused, NotStored, QueueFull, StillUnsent
from proxy.client.kafka_settings import Settings, producer_settings, without_report_callback
from proxy.client.receipt import Receipt, receipt_of
from proxy.client.request import Request
from proxy.protocol.policy import TOPIC_NAME_RULE, is_legal_topic

OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], object]
"""As confluent_kafka has it: (error or None, message)."""

POLL_S: Final = 0.1
ROOM_LOOK_EVERY_S: Final = 0.01
STOP_WITHIN_S: Final = 5.0
FOREVER: Final = -1.0

log = logging.getLogger("proxy.client")
_here = threading.local()
"""Knows of each thread whether it is in a callback: flushing and committing call them too."""


class IngressWriter:
    """A producer and the thread that serves its delivery reports; may be used by many threads.

    `max_block_s` bounds how long `write` waits for room in librdkafka's queue, which is bounded
    by `queue.buffering.max.messages` and `.kbytes`. Opens no connection before the first write.
    """

    def __init__(self, config: Settings, ingress: str, max_block_s: float) -> None:
        settings = producer_settings(config)
        _refuse_unusable(ingress, max_block_s)
        self.ingress = ingress
        self.transactional_id: str | None = settings.get("transactional.id")
        self._for_all = without_report_callback(settings)
        self._max_block_s = max_block_s
        self._is_closed = False
        self.producer = Producer(settings)
        self._reports = _Reports(self.producer)
        self._unconfirmed = _Count()
        self._finalizer = weakref.finalize(self, _abandon, self._unconfirmed, self._reports)

    def write(self, request: Request, on_delivery: OnDelivery | None = None) -> Future[Receipt]:
        """Hand the record to the producer; the future has its receipt or a NotStored.

        Raises QueueFull when there is no room for `max_block_s`, or at once in a callback, which
        must not wait for what it holds up; NotStored when the producer refuses the record.
        """
        if self._is_closed:
            raise ClientError("the producer is closed: open another")
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()
        report = partial(
            _report, future, on_delivery or self._for_all, self.ingress, self._unconfirmed
        )
        if not self._produce(request, report):
            self._await_room(request, report)
        return future

    def flush(self, timeout_s: float | None = None) -> int:
        """Send what is queued without lingering; how many are unconfirmed when it returns."""
        self.refuse_in_callback("flush")
        self.producer.flush(FOREVER if timeout_s is None else timeout_s)
        return len(self)

    def refuse_in_callback(self, what: str) -> None:
        """Raise ClientError in a delivery callback: it would wait for itself."""
        if _is_in_callback():
            raise ClientError(
                f"{what} in a delivery callback would wait for itself: let the callback tell "
                "another thread"
            )

    def close(self, timeout_s: float) -> None:
        """Flush and end; what is unconfirmed after `timeout_s` fails, and StillUnsent is raised."""
        if self._is_closed:
            return
        self.refuse_in_callback("close")
        self._is_closed = True
        left = self.flush(timeout_s)
        if left:
            self.producer.purge()
            self.producer.flush(STOP_WITHIN_S)
        self._reports.stop()
        self._finalizer.detach()
        if left:
            raise StillUnsent(left, timeout_s)

    def __len__(self) -> int:
        return self._unconfirmed.count

    def _await_room(self, request: Request, report: Callable[..., None]) -> None:
        may_wait_s = 0.0 if _is_in_callback() else self._max_block_s
        deadline_s = time.monotonic() + may_wait_s
        while time.monotonic() < deadline_s:
            time.sleep(ROOM_LOOK_EVERY_S)
            if self._produce(request, report):
                return
        raise QueueFull(KafkaError(KafkaError._QUEUE_FULL), self.ingress)  # noqa: SLF001

    def _produce(self, request: Request, report: Callable[..., None]) -> bool:
        """False when the queue is full."""
        headers: Any = request.headers
        self._unconfirmed.add(1)
        try:
            self.producer.produce(
                self.ingress,
                request.value,
                request.key,
                request.partition,
                on_delivery=report,
                headers=headers,
            )
        except BufferError:
            self._unconfirmed.add(-1)
            return False
        except KafkaException as error:
            self._unconfirmed.add(-1)
            raise NotStored(error.args[0], self.ingress) from error
        return True


class _Count:
    """How many records are under way. librdkafka's own count has its other events in it."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        with self._lock:
            self.count += number


def _refuse_unusable(ingress: object, max_block_s: object) -> None:
    if not isinstance(ingress, str) or not is_legal_topic(ingress):
        raise ConfigRefused(f"ingress is {ingress!r}, which names no topic: {TOPIC_NAME_RULE}")
    if not isinstance(max_block_s, int | float) or not max_block_s >= 0:
        raise ConfigRefused(f"max_block_s is {max_block_s!r}: it must be seconds, 0 or more")


class _Reports:
    """The thread that polls."""

    def __init__(self, producer: Producer) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=_poll, args=(producer, self._stopping), name="delay-producer", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_WITHIN_S)


def _poll(producer: Producer, stopping: threading.Event) -> None:
    while not stopping.is_set():
        try:
            producer.poll(POLL_S)
        except Exception:
            log.exception("a callback of the producer's settings raised")


def _report(
    future: Future[Receipt],
    on_delivery: OnDelivery | None,
    ingress: str,
    unconfirmed: _Count,
    error: KafkaError | None,
    message: Message,
) -> None:
    _here.is_in_callback = True
    try:
        if on_delivery is not None:
            _call(on_delivery, error, message)
        unconfirmed.add(-1)
        if error is None:
            future.set_result(receipt_of(message))
        else:
            future.set_exception(NotStored(error, ingress))
    finally:
        _here.is_in_callback = False


def _call(on_delivery: OnDelivery, error: KafkaError | None, message: Message) -> None:
    try:
        on_delivery(error, message)
    except Exception:
        log.exception("a delivery callback raised")


def _is_in_callback() -> bool:
    return getattr(_here, "is_in_callback", False)


def _abandon(unconfirmed: _Count, reports: _Reports) -> None:
    """The writer was forgotten, or the program ends: end the thread while Python still stands."""
    reports.stop()
    if unconfirmed.count:
        log.warning(
            "a producer was not closed: %d records were never confirmed; use `with` or close()",
            unconfirmed.count,
        )
