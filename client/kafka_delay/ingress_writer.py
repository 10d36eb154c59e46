"""A producer of requests, with a future for each record.

One thread of each writer polls. `write` never polls, so callbacks may write. Callbacks may not
flush or commit. Both calls poll, and a nested poll aborts the process (confluent-kafka-python issue
457).
"""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafka_delay.errors import ClientError, ConfigRefused, NotStored, QueueFull, StillUnsent
from kafka_delay.kafka import TRANSACTIONAL_ID, Settings, place_of, producer_settings
from kafka_delay.protocol import TOPIC_NAME_RULE, is_legal_topic
from kafka_delay.request import UNKNOWN, Receipt, Request

OnDelivery: TypeAlias = Callable[[KafkaError | None, Message], object]
"""Takes (error or None, message), as in confluent_kafka."""

POLL_S: Final = 0.1
ROOM_LOOK_EVERY_S: Final = 0.01
STOP_WITHIN_S: Final = 5.0
FOREVER: Final = -1.0

LOGIN_REMEDIES: Final = {
    KafkaError._AUTHENTICATION: "Check sasl.username, sasl.password and sasl.mechanism",  # noqa: SLF001
    KafkaError._SSL: "Check security.protocol and the ssl. settings",  # noqa: SLF001
}
"""The errors of a connection that waiting does not mend."""

log = logging.getLogger("kafka_delay")
_here = threading.local()
"""Marks threads while they run a callback. Threads that flush or commit run callbacks, too."""


class _LoginErrors:
    """The `error_cb` of a producer. It keeps the last login or TLS error, until a record is
    stored."""

    def __init__(self, error_cb: Callable[[KafkaError], object] | None) -> None:
        self.last: str | None = None
        """The error with its remedy."""
        self._error_cb = error_cb

    def __call__(self, error: KafkaError) -> None:
        if (remedy := LOGIN_REMEDIES.get(error.code())) is not None:
            self.last = f"The last error was: {error.str()}. {remedy}"
        if self._error_cb is not None:
            self._error_cb(error)
        else:
            log.warning("%s", error.str())


class _ReceiptFuture(Future[Receipt]):
    """A future whose TimeoutError names the login or TLS error."""

    def __init__(self, login_errors: _LoginErrors) -> None:
        super().__init__()
        self._login_errors = login_errors

    def result(self, *within: Any, **named: Any) -> Receipt:
        with self._explained():
            return super().result(*within, **named)

    def exception(self, *within: Any, **named: Any) -> BaseException | None:
        with self._explained():
            return super().exception(*within, **named)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            if (why := self._login_errors.last) is None:
                raise
            raise TimeoutError(f"the record was not confirmed in time. {why}") from None


class IngressWriter:
    """A thread-safe producer with a thread for delivery reports."""

    def __init__(self, config: Settings, ingress: str, max_block_s: float) -> None:
        settings = producer_settings(config)
        if not is_legal_topic(ingress):
            raise ConfigRefused(f"ingress is {ingress!r}, which names no topic: {TOPIC_NAME_RULE}")
        given: object = max_block_s
        if not isinstance(given, int | float) or not given >= 0:
            raise ConfigRefused(f"max_block_s is {max_block_s!r}: it must be seconds, 0 or more")
        self.ingress = ingress
        self.transactional_id: str | None = settings.get(TRANSACTIONAL_ID)
        callbacks = [settings.pop(name, None) for name in ("on_delivery", "dr_cb", "dr_msg_cb")]
        self._for_all: OnDelivery | None = next(filter(None, callbacks), None)
        self._max_block_s = max_block_s
        self._is_closed = False
        self._login_errors = _LoginErrors(settings.pop("error_cb", None))
        self.producer = Producer({**settings, "error_cb": self._login_errors})
        self._reports = _Reports(self.producer, self._login_errors)
        self._finalizer = weakref.finalize(self, self._reports.abandon)

    def write(self, request: Request, on_delivery: OnDelivery | None = None) -> Future[Receipt]:
        """Queue a record. The future returns its receipt or raises NotStored.

        Raises NotStored if librdkafka refuses the record.
        Raises QueueFull if the queue stays full for `max_block_s`. In a callback it does not wait.
        """
        if self._is_closed:
            raise ClientError("the producer is closed: open another")
        future = _ReceiptFuture(self._login_errors)
        future.set_running_or_notify_cancel()
        report = partial(self._reports.report, future, on_delivery or self._for_all, self.ingress)
        headers: Any = request.headers
        may_wait_s = 0.0 if _is_in_callback() else self._max_block_s
        deadline_s = time.monotonic() + may_wait_s
        while True:
            self._reports.count(1)
            try:
                self.producer.produce(
                    self.ingress,
                    request.value,
                    request.key,
                    request.partition,
                    on_delivery=report,
                    headers=headers,
                )
                return future
            except (BufferError, KafkaException) as error:
                self._reports.count(-1)
                if isinstance(error, KafkaException):
                    raise NotStored(error.args[0], self.ingress) from error
                if time.monotonic() >= deadline_s:
                    full = KafkaError(KafkaError._QUEUE_FULL)  # noqa: SLF001
                    raise QueueFull(full, self.ingress) from error
            time.sleep(ROOM_LOOK_EVERY_S)

    def flush(self, timeout_s: float | None = None) -> int:
        """Wait until all queued records are confirmed, at most `timeout_s` (None: for ever).

        Return the number of unconfirmed records.
        """
        self.refuse_in_callback("flush")
        self.producer.flush(FOREVER if timeout_s is None else timeout_s)
        return len(self)

    def refuse_in_callback(self, what: str) -> None:
        """Raise ClientError in a delivery callback, because the call would wait for itself."""
        if _is_in_callback():
            raise ClientError(
                f"{what} in a delivery callback would wait for itself: call it in another thread"
            )

    def close(self, timeout_s: float) -> None:
        """Flush, then end. Raises StillUnsent if records are unconfirmed after `timeout_s`."""
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
            raise StillUnsent(left, timeout_s, self._login_errors.last)

    def __len__(self) -> int:
        return self._reports.unconfirmed


class _Reports:
    """A polling thread without a reference to its writer, so that Python can free the writer."""

    def __init__(self, producer: Producer, login_errors: _LoginErrors) -> None:
        self.unconfirmed = 0
        """Number of records without a delivery report. librdkafka's count has other events, too."""
        self._producer = producer
        self._login_errors = login_errors
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="delay-producer", daemon=True)
        self._thread.start()

    def count(self, number: int) -> None:
        with self._lock:
            self.unconfirmed += number

    def report(
        self,
        future: Future[Receipt],
        on_delivery: OnDelivery | None,
        ingress: str,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        _here.is_in_callback = True
        try:
            if on_delivery is not None:
                on_delivery(error, message)
        except Exception:
            log.exception("a delivery callback raised")
        finally:
            self.count(-1)
            if error is None:
                self._login_errors.last = None
                place, offset = place_of(message), message.offset()
                known = UNKNOWN if offset is None else offset  # None after a repeated request
                stamp_ms, key = message.timestamp()[1], message.key()
                future.set_result(Receipt(place.topic, place.partition, known, stamp_ms, key))
            else:
                future.set_exception(NotStored(error, ingress, self._login_errors.last))
            _here.is_in_callback = False

    def stop(self) -> None:
        self._stopping.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(STOP_WITHIN_S)

    def abandon(self) -> None:
        """End the thread of a writer that was freed without `close`."""
        self.stop()
        if self.unconfirmed:
            log.warning(
                "a producer was not closed: %d records were never confirmed; use `with` or close()",
                self.unconfirmed,
            )

    def _poll(self) -> None:
        while not self._stopping.is_set():
            try:
                self._producer.poll(POLL_S)
            except Exception:
                log.exception("a callback of the producer's settings raised")


def _is_in_callback() -> bool:
    return getattr(_here, "is_in_callback", False)
