"""The shapes in which records leave the proxy as dead letters and outcomes (DESIGN 2, 3)."""

from __future__ import annotations

import json
from typing import NamedTuple, Protocol

from proxy.body import Delivery, Headers
from proxy.protocol import (
    ERROR,
    ERROR_DETAIL,
    INGRESS_KEY,
    ORIGIN,
    UNREADABLE,
    Rejection,
)


class Message(Protocol):
    """What the core asks of a fetched record; confluent_kafka.Message serves it."""

    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def error(self) -> object | None: ...


class DeadLetter(NamedTuple):
    """A record that ends in the dead-letter topic, as it was in the ingress, and why."""

    offset: int
    due_ms: int | None
    reason: Rejection
    key: bytes | None
    value: bytes | None
    headers: Headers


def dead_entry(entry: Delivery, reason: Rejection) -> DeadLetter:
    """An entry that cannot be delivered, turned back into the record it was in the ingress."""
    due_ms, offset, _target, _partition, key, value, headers = entry
    own_key = [header for header in headers if header[0] == INGRESS_KEY]
    if own_key:
        key = own_key[-1][1]
    kept = [header for header in headers if header[0] != INGRESS_KEY]
    return DeadLetter(offset, due_ms, reason, key, value, kept)


def dead_letter_headers(letter: DeadLetter, origin: str) -> Headers:
    """All headers of the record, and why it ended here."""
    said = [
        (ERROR, letter.reason.code.encode()),
        (ERROR_DETAIL, letter.reason.detail.encode("utf-8", "backslashreplace")),
        (ORIGIN, origin.encode()),
    ]
    names = {UNREADABLE, *(name for name, _ in said)}
    return [header for header in letter.headers if header[0] not in names] + said


def outcome_json(
    origin: str, outcome: str, due_ms: int | None, ident: str | None, detail: str
) -> bytes:
    """One record of the outcomes topic; its key is the origin."""
    fields = {"origin": origin, "outcome": outcome, "due": due_ms, "id": ident, "detail": detail}
    return json.dumps(fields, separators=(",", ":")).encode()
