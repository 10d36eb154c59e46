"""Half messages: stored but undelivered until their transaction is decided.

Pure (docs/guide.md#half-messages). A half message, its decision and its check-backs share one id,
which is the ingress key.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from proxy.client.errors import RequestRefused
from proxy.client.request import DelayedRecord, Request, WireHeaders, delayed, id_bytes
from proxy.client.when import Delay, delay_text
from proxy.protocol.headers import (
    CHECK,
    CHECK_BACK,
    CHECK_IMMUNITY,
    CHECK_TOPIC,
    COMMIT,
    ID,
    KEY,
    PREFIX,
    PREPARE,
    ROLLBACK,
    TOPIC,
    TRANSACTION,
)

MOST_DIGITS: Final = 9


class State(Enum):
    """What became of a local transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """Not known yet: the proxy will ask again."""


@dataclass(frozen=True, slots=True)
class HalfMessage:
    """A half message as the local transaction and the listener see it.

    `topic` is where it will be delivered, None if a check-back does not say. `headers` are the
    caller's own. `check` is 0 before anybody asked, then 1, 2, ... up to the proxy's `max_checks`.
    """

    id: str
    topic: str | None
    key: bytes | None
    value: bytes | None
    headers: WireHeaders
    check: int = 0

    def header(self, name: str) -> bytes | None:
        """The last header of that name, None without one."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


def prepared(
    record: DelayedRecord, ident: str | bytes, check_topic: str, immunity: Delay | None
) -> Request:
    """The half message's request; `immunity` is how long nobody asks. Raises RequestRefused."""
    request = delayed(replace(record, id=ident))
    asked: WireHeaders = [(TRANSACTION, PREPARE), (CHECK_TOPIC, check_topic.encode())]
    if immunity is not None:
        asked.append((CHECK_IMMUNITY, delay_text(immunity, "immunity").encode()))
    return replace(request, headers=asked + request.headers)


def decision(ident: str, state: State) -> Request:
    """The request that commits a half message or rolls it back. Raises RequestRefused."""
    words = {State.COMMIT: COMMIT, State.ROLLBACK: ROLLBACK}
    if state not in words:
        raise RequestRefused(f"{state} decides nothing: there is nothing to be written")
    key = id_bytes(ident)
    return Request(key, None, [(TRANSACTION, words[state]), (ID, key)])


def half_of(request: Request) -> HalfMessage:
    """The half message that a prepare asks for."""
    return _half(request.key, request.value, request.headers)


def check_back(key: bytes | None, value: bytes | None, headers: WireHeaders) -> HalfMessage | None:
    """The half message that a record of the check topic asks about; None if it is no check-back."""
    asked = dict(headers)
    if asked.get(TRANSACTION) != CHECK_BACK or not asked.get(ID):
        return None
    return _half(key, value, headers)


def _half(key: bytes | None, value: bytes | None, headers: WireHeaders) -> HalfMessage:
    asked = dict(headers)
    topic, check = asked.get(TOPIC), asked.get(CHECK)
    return HalfMessage(
        (asked.get(ID) or b"").decode("utf-8", "replace"),
        None if topic is None else topic.decode("utf-8", "replace"),
        asked.get(KEY, key),
        value,
        [header for header in headers if not header[0].startswith(PREFIX)],
        int(check) if check and check.isdigit() and len(check) <= MOST_DIGITS else 0,
    )
