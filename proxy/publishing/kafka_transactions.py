"""The transactional calls of a producer: each with a time-out, its failures sorted by meaning."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from proxy.publishing.errors import ClientStuck, GroupMoved, SessionLost, TransactionAborted

CALL_TIMEOUT_S: Final = 10.0
LOOK_EVERY_S: Final = 0.5
STUCK_AFTER_S: Final = 2.0
"""A call that has not returned so long after its time-out never will."""

OTHER_GENERATION: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)


class KafkaTransactions:
    """The transactions of `producer`, one at a time.

    Made, it has fenced every producer with the same transactional id, and settled what they left
    open. `commits` is where commits are waited for; `heartbeat` is called meanwhile, so that
    waiting is not taken for hanging.
    """

    def __init__(
        self, producer: Producer, commits: Executor, heartbeat: Callable[[], None]
    ) -> None:
        self._producer, self._commits, self._heartbeat = producer, commits, heartbeat
        self._called_at_s = 0.0
        self._call(producer.init_transactions)

    def begin(self) -> None:
        """Begin a transaction: what is produced from now on belongs to it."""
        self._producer.begin_transaction()

    def commit(self, offsets: Sequence[TopicPartition], group_metadata: object) -> Future[None]:
        """Ask for the commit of what was produced, and of `offsets`; not waited for."""
        self._called_at_s = time.monotonic()
        return self._commits.submit(self._commit, list(offsets), group_metadata)

    def wait_for(self, commit: Future[None]) -> None:
        """Return once it is committed.

        Raises TransactionAborted, GroupMoved, or SessionLost when the result stays unknown;
        ClientStuck when the client library ignores its time-out.
        """
        while True:
            try:
                return commit.result(LOOK_EVERY_S)
            except TimeoutError:
                self._heartbeat()
                waited_s = time.monotonic() - self._called_at_s
                if waited_s > CALL_TIMEOUT_S + STUCK_AFTER_S:
                    raise ClientStuck(waited_s) from None

    def abort(self) -> None:
        """Abort; what was produced and not yet sent is purged, its reports served."""
        self._called_at_s = time.monotonic()
        try:
            self._producer.abort_transaction(CALL_TIMEOUT_S)
        except KafkaException as error:
            raise SessionLost(f"abort failed: {error}") from error

    def close(self) -> None:
        """Give the producer up with all it has in hand; the broker keeps what is committed.

        Its own `close` would abort and flush first, which can wait for a broker that is away.
        """
        self._commits.shutdown()
        self._producer.purge(blocking=False)
        del self._producer

    def _commit(self, offsets: list[TopicPartition], group_metadata: object) -> None:
        self._call(self._producer.send_offsets_to_transaction, offsets, group_metadata)
        self._call(self._producer.commit_transaction)

    def _call(self, call: Callable[..., None], *args: object) -> None:
        """One call; SessionLost when its result stays unknown (docs/exactly-once.md, rule 6).

        After a time-out librdkafka would take the same call once more, but that can wait for
        ever (2.16: send_offsets_to_transaction, after a broker was killed). The next session
        asks the broker instead.
        """
        self._called_at_s = time.monotonic()
        try:
            call(*args, CALL_TIMEOUT_S)
        except KafkaException as raised:
            error: KafkaError = raised.args[0]
            if not error.txn_requires_abort():
                raise SessionLost(error.str()) from raised
            self.abort()
            kind = GroupMoved if error.code() in OTHER_GENERATION else TransactionAborted
            raise kind(error.str()) from raised
