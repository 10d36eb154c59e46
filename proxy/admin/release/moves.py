"""Moves a record that waits to another time: it is read, and written anew in its place."""

import time
from collections.abc import Sequence
from typing import Annotated, Final, Protocol, cast

from pydantic import BeforeValidator

from proxy.admin.broker_access import Cancelled
from proxy.admin.exchange import Problem
from proxy.admin.query_mailbox import FindMoving, FindRecord
from proxy.admin.query_values import Body, whole
from proxy.admin.workers import Workers
from proxy.dispatch.hops import NOT_COMMITTED, Moving
from proxy.protocol.body import Message
from proxy.protocol.outcomes import MISSED
from proxy.protocol.times import LATEST_MS, parse_instant_ms
from proxy.scheduling.batch import AuxiliaryRecord

MOST_STEPS: Final = 5
"""A record is found again so often where it was rewritten, and tried again where it just was."""
COMMITTED_WITHIN_S: Final = 3.0
LOOK_EVERY_S: Final = 0.05
WHY_NOT: Final = {
    "not-committed": "It has been read, and that is not committed yet. Try again in a moment.",
    "target-refused": "Its target is refused by now (targets.allow, targets.deny): moved, it would "
    "become a dead letter. It waits as before.",
    "half-message": "It is a half message that nobody has decided: it has no time yet. Commit it.",
    "ended": "It has ended, as far as is known: its target or the outcomes topic has its end.",
}


class MoveBody(Body):
    """Body of a move: epoch ms, or RFC 3339 with a zone."""

    deliver_at: Annotated[int | str, BeforeValidator(whole)]


class MovePort(Protocol):
    """What a move asks of `proxy.admin.broker_access.BrokerAccess`."""

    max_delay_ms: int

    def read(self, partition: int, offset: int) -> Message | None: ...
    def move(self, record: AuxiliaryRecord, wait_s: float) -> Cancelled: ...


class Moves:
    """Raises Problem, NoAnswer and MailboxFull."""

    def __init__(self, workers: Workers, broker: MovePort) -> None:
        self._workers, self._broker = workers, broker

    def move(self, partition: int, offset: int, deliver_at_ms: int, wait_s: float) -> Cancelled:
        """Write what takes the place of the record there, or of what was rewritten from it, and
        wait for what becomes of it."""
        done: Cancelled | None = None
        for _ in range(MOST_STEPS):
            moving = self._find_committed(partition, offset, deliver_at_ms)
            if moving.at != offset:
                offset = moving.at
                continue
            if moving.record is None:
                if done is not None:
                    break
                raise Problem(409, moving.state, WHY_NOT[moving.state])
            done = self._broker.move(moving.record, wait_s)
            if done.outcome != MISSED:
                break
        if done is None:
            raise Problem(503, "busy", "It is rewritten again and again just now; try again.")
        return done

    def check_time(self, body: MoveBody, now_ms: int) -> int:
        """The time asked for, in epoch ms."""
        try:
            asked_ms = parse_instant_ms(str(body.deliver_at))
        except ValueError as error:
            raise Problem(409, "no-such-time", f"`deliver_at`: {error}.") from None
        latest_ms = min(now_ms + self._broker.max_delay_ms, LATEST_MS)
        if asked_ms > latest_ms:
            detail = f"`deliver_at` lies beyond {latest_ms}, now and the setting `max_delay`."
            raise Problem(409, "too-far", detail)
        return asked_ms

    def _find_committed(self, partition: int, offset: int, deliver_at_ms: int) -> Moving:
        """A move of what is not committed would outlive it: the record may be read otherwise."""
        until_s = time.monotonic() + COMMITTED_WITHIN_S
        while True:
            moving = self._find(partition, offset, deliver_at_ms)
            if moving.state != NOT_COMMITTED or time.monotonic() > until_s:
                return moving
            time.sleep(LOOK_EVERY_S)

    def _find(self, partition: int, offset: int, deliver_at_ms: int) -> Moving:
        message = self._broker.read(partition, offset)
        if message is None:
            detail = (
                "The ingress has no record there any more. If it waits, it was rewritten: "
                "`pending list` and /pending/records show where it lies now."
            )
            raise Problem(404, "not-found", detail)
        content = message.key(), message.value(), message.headers()
        record = FindRecord((partition, offset), content, message.timestamp())
        answers = cast(
            Sequence[Sequence[Moving]], self._workers.ask(FindMoving(record, deliver_at_ms))
        )
        found = [one for answer in answers for one in answer]
        if not found:
            raise Problem(404, "not-served-here", "The partition has just gone to another worker.")
        return found[0]
