"""Answers the proxy's questions what became of half messages (docs/guide.md#half-messages)."""

import logging
import threading
from typing import Final, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from proxy.client.errors import BrokerError, ClientError
from proxy.client.half_messages.half_message import HalfMessage, State, check_back, decision
from proxy.client.ingress_writer import IngressWriter
from proxy.client.kafka_settings import Settings
from proxy.client.needed_topics import ensure_topics
from proxy.client.place import UnreadableHeaders, headers_of, place_of
from proxy.client.rights import broker_error

POLL_S: Final = 0.5
STOP_WITHIN_S: Final = 35.0
DECIDED: Final = (State.COMMIT, State.ROLLBACK)

log = logging.getLogger("proxy.client")


class TransactionListener(Protocol):
    """The part of the application that knows what became of a local transaction."""

    def check(self, half: HalfMessage) -> State:
        """Say what became of it; UNKNOWN, or an exception, makes the proxy ask again.

        Called long after the fact, in another thread and maybe in another process than the one
        that ran the transaction, so it must look where the transaction left its mark.
        """


class CheckBacks:
    """A consumer of the check topic. Not to be served by two threads at once.

    A check-back counts as read once the answer is stored; any answer lost is asked for again.
    """

    def __init__(
        self,
        settings: Settings,
        check_topic: str,
        listener: TransactionListener,
        writer: IngressWriter,
    ) -> None:
        self._listener, self._writer = listener, writer
        self._settings, self._check_topic = settings, check_topic
        self._consumer = Consumer(dict(settings))
        try:
            ensure_topics(self._consumer, settings, [check_topic])
            self._consumer.subscribe([check_topic])
        except KafkaException as error:
            self._consumer.close()
            raise self._told(error.args[0]) from error
        except BaseException:
            self._consumer.close()
            raise

    def serve(self, timeout_s: float) -> int:
        """Answer one check-back, if one comes in time; how many were answered, 0 or 1.

        Raises BrokerError when the broker refuses the consumer for good, ClientError when the
        answer cannot be stored.
        """
        message = self._consumer.poll(timeout_s)
        if message is None:
            return 0
        if (error := message.error()) is not None:
            if error.fatal():
                raise self._told(error)
            log.warning("check-backs go on after: %s", self._told(error))
            return 0
        answered = self._answer(message)
        self._consumer.commit(message=message, asynchronous=True)
        return answered

    def close(self) -> None:
        """Leave the group; its other members get the check-backs."""
        self._consumer.close()

    def _told(self, error: KafkaError) -> BrokerError:
        group = str(self._settings.get("group.id"))
        return broker_error(error, self._settings, group, [self._check_topic])

    def _answer(self, message: Message) -> int:
        half = _half_in(message)
        if half is None:
            log.warning("%s is no check-back: left alone", place_of(message))
            return 0
        try:
            state = self._listener.check(half)
        except Exception:
            log.exception("the listener failed to say what became of %s", half.id)
            state = State.UNKNOWN
        if state not in DECIDED:
            return 0
        self._writer.write(decision(half.id, state)).result()
        return 1


class CheckBackThread:
    """Serves check-backs until it is stopped; what ended it early is kept in `failure`."""

    def __init__(self, check_backs: CheckBacks) -> None:
        self.failure: Exception | None = None
        self._check_backs = check_backs
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="check-backs", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the check-back in hand."""
        self._stopping.set()
        self._thread.join(STOP_WITHIN_S)

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                self._check_backs.serve(POLL_S)
            except ClientError as error:
                log.warning("an answer was not stored, the proxy will ask again: %s", error)
            except Exception as error:
                log.exception("check-backs are no longer answered")
                self.failure = error
                return


def _half_in(message: Message) -> HalfMessage | None:
    try:
        return check_back(message.key(), message.value(), headers_of(message))
    except UnreadableHeaders:
        return None
