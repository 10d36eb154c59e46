"""Half messages in the manner of RocketMQ's TransactionMQProducer, and with delays."""

import logging
import uuid
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Self

from proxy.client.delay_producer import CLOSE_WITHIN_S, INGRESS, MAX_BLOCK_S
from proxy.client.errors import ClientError, ConfigRefused
from proxy.client.half_messages.check_backs import CheckBacks, CheckBackThread, TransactionListener
from proxy.client.half_messages.half_message import HalfMessage, State, decision, half_of, prepared
from proxy.client.ingress_writer import IngressWriter
from proxy.client.kafka_settings import (
    TRANSACTIONAL_ID,
    Settings,
    connection_settings,
    consumer_settings,
    need_all_acks,
)
from proxy.client.receipt import Receipt
from proxy.client.request import Data, DelayedRecord, Headers
from proxy.client.when import Delay, Instant
from proxy.protocol.policy import is_legal_topic

LocalTransaction = Callable[[HalfMessage], State | None]

log = logging.getLogger("proxy.client")


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """What `send_in_transaction` did.

    `half` is where the half message lies. `decision` is the receipt to come of the commit or
    rollback, None for UNKNOWN; if it fails, the check-back decides.
    """

    id: str
    state: State
    half: Receipt
    decision: Future[Receipt] | None


class TransactionalDelayProducer:
    """Sends records that appear only if a local transaction, say in a database, succeeds.

    First a half message is stored, then the local transaction runs, then commit or rollback
    follows. If that does not arrive because the process died in between, the proxy asks on
    `check_topic`, and `listener.check` of any process of the same `group` answers.

    `config` is what confluent_kafka.Producer takes; `consumer_config` is added for the consumer
    of the check-backs. They are answered by a thread of this object, unless `in_background` is
    false: then call `serve_checks` often. The check topic is made if it is missing.
    """

    def __init__(
        self,
        config: Settings,
        listener: TransactionListener,
        check_topic: str,
        *,
        ingress: str = INGRESS,
        group: str | None = None,
        consumer_config: Settings | None = None,
        in_background: bool = True,
        max_block_s: float = MAX_BLOCK_S,
    ) -> None:
        given = {**connection_settings(config), **(consumer_config or {})}
        if TRANSACTIONAL_ID in config:
            raise ConfigRefused(
                "a transactional.id makes Kafka transactions, which half messages are not and do "
                "not need: leave it out"
            )
        need_all_acks(config, "a half message that a broker loses is never delivered")
        if not is_legal_topic(check_topic):
            raise ConfigRefused(f"the check topic {check_topic!r} is not a Kafka topic name")
        if not callable(getattr(listener, "check", None)):
            raise ConfigRefused(f"the listener {listener!r} has no method check(half): add one")
        settings = consumer_settings(given, group or f"{check_topic}.listeners")
        self._check_topic = check_topic
        self._writer = IngressWriter(config, ingress, max_block_s)
        try:
            self._check_backs = CheckBacks(settings, check_topic, listener, self._writer)
        except BaseException:
            self._writer.close(0)
            raise
        self._thread = CheckBackThread(self._check_backs) if in_background else None
        if self._thread is not None:
            self._finalizer = weakref.finalize(self, self._thread.stop)

    def send_in_transaction(
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
        *,
        local_transaction: LocalTransaction,
        immunity: Delay | None = None,
    ) -> TransactionResult:
        """Store the half message, run `local_transaction(half)`, tell the proxy what it returned.

        The transaction runs only once the half message is stored; else NotStored is raised. It
        should leave a mark under `half.id` that `listener.check` can find. COMMIT delivers, at
        the time that was asked for; ROLLBACK ends it; UNKNOWN or None leaves it to the check-back.
        An exception does so too, as in RocketMQ, for the transaction may have got through
        nevertheless; it is raised to the caller. `immunity` is how long the proxy waits before
        it asks first (its own default: 6 s), in any form of a delay. `id` is a fresh UUID unless
        given.
        """
        self._need_answers()
        ident = str(uuid.uuid4()) if id is None else id
        record = DelayedRecord(
            topic, value, key, headers, delay, deliver_at, level, ident, partition
        )
        request = prepared(record, ident, self._check_topic, immunity)
        receipt = self._writer.write(request).result()
        half = half_of(request)
        state = _run(local_transaction, half)
        return TransactionResult(half.id, state, receipt, self._decide(half.id, state))

    def serve_checks(self, timeout_s: float = 0.0) -> int:
        """Answer one check-back if one comes in time; how many were answered, 0 or 1."""
        if self._thread is not None:
            raise ClientError("check-backs are answered in the background: see in_background")
        return self._check_backs.serve(timeout_s)

    def close(self, timeout_s: float = CLOSE_WITHIN_S) -> None:
        """Stop answering and flush. Raises StillUnsent when decisions were not confirmed in time:
        the proxy will ask for them."""
        if self._thread is not None:
            self._thread.stop()
        self._check_backs.close()
        self._writer.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _decide(self, ident: str, state: State) -> Future[Receipt] | None:
        if state is State.UNKNOWN:
            return None
        try:
            decided = self._writer.write(decision(ident, state))
        except ClientError as error:
            decided = Future()
            decided.set_exception(error)
        decided.add_done_callback(_log_failure)
        return decided

    def _need_answers(self) -> None:
        if self._thread is not None and self._thread.failure is not None:
            raise ClientError(
                f"check-backs are no longer answered ({self._thread.failure}): close this "
                "producer and open another"
            ) from self._thread.failure


def _run(local_transaction: LocalTransaction, half: HalfMessage) -> State:
    try:
        state: object = local_transaction(half)
    except BaseException as error:
        error.add_note(f"the half message {half.id} is left to the check-back")
        raise
    if isinstance(state, State):
        return state
    if state is not None:
        log.error("the local transaction returned %r, no State: %s is unknown", state, half.id)
    return State.UNKNOWN


def _log_failure(decided: Future[Receipt]) -> None:
    if (error := decided.exception()) is not None:
        log.warning("a decision was not stored, the proxy will ask for it: %s", error)
