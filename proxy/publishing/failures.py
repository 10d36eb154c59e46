"""Failures of a transaction. Each class says what can be done next."""


class SessionLost(Exception):
    """This producer cannot go on: drop all shards and recover them from the broker."""


class ClientStuck(SessionLost):
    """A call of the client library ignores its time-out. In librdkafka 2.16 this can be
    send_offsets_to_transaction, after the group's coordinator was away (issues 5456 and 5511)."""

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"the client library has not answered a call for {waited_s:.0f} s")


class TransactionAborted(Exception):
    """The transaction was aborted, and may be made again. `code`: the error code of the cause."""

    def __init__(self, why: str, code: int | None = None) -> None:
        super().__init__(why)
        self.code = code


class PartitionsUnavailable(Exception):
    """The transaction is given up. Another producer may repeat it without records for unavailable
    partitions. This producer's next transaction would have to wait for these partitions."""


class AbortUnfinished(Exception):
    """The transaction is given up, and was not committed. Another producer may abort and repeat it,
    while this producer still waits for answers about its sent records."""


class GroupMoved(Exception):
    """The transaction was aborted, because the group has a new generation. Poll the consumer, then
    plan the owned shards anew (KIP-447)."""


class Throttled(Exception):
    """The transaction is given up, and was not committed: it is too large for the broker's quota.
    Plan a smaller transaction."""


class NotFlushed(Exception):
    """Produced records do not arrive in time. Abort the transaction, and make it again."""
