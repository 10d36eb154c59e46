"""What may become of a transaction that is not committed."""


class SessionLost(Exception):
    """This producer cannot go on: drop all shards and recover them from the broker."""


class ClientStuck(SessionLost):
    """A call of the client library does not return, whatever time-out it was given.

    librdkafka 2.16, issues 5456 and 5511: send_offsets_to_transaction, when the group's
    coordinator has been away.
    """

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"the client library has not answered a call for {waited_s:.0f} s")


class TransactionAborted(Exception):
    """The transaction was aborted and may be made again.

    `code`: of the error that the broker or the client library gave for it, if any.
    """

    def __init__(self, why: str, code: int | None = None) -> None:
        super().__init__(why)
        self.code = code


class PartitionsUnavailable(Exception):
    """The transaction was given up and may be made again without what cannot be written now.

    Its producer is of no more use: its next transaction begins when the broker has written the end
    of this one everywhere, and there it cannot.
    """


class AbortUnfinished(Exception):
    """The transaction was given up, never committed, and may be made again by another producer.

    That one aborts it: this one still waits for answers about what it has sent.
    """


class GroupMoved(Exception):
    """The transaction was aborted: the group has gone on since the caller last heard from it.

    The consumer has to be polled before the shards still owned are planned anew (KIP-447).
    """


class Throttled(Exception):
    """The transaction was given up, never committed: the broker throttles, and it was too large.

    Another producer has aborted it. The shards have to be planned anew, in smaller transactions.
    """


class NotFlushed(Exception):
    """What was sent does not arrive, so that nothing can be sent alone: abort and try again."""
