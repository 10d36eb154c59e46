"""Reads single header values beyond targets and times: partitions, ids, failures, hops."""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias, TypeVar

from proxy.records.header_text import shown
from proxy.records.headers import (
    ATTEMPT,
    COMMIT,
    EXPIRE,
    FIRST_ORIGIN,
    HOP_FROM,
    HOP_MAC,
    HOPS,
    ID,
    PARTITION,
    RECALL,
    ROLLBACK,
    TRANSACTION,
)
from proxy.records.rejection import Rejection
from proxy.requests.parsed import Decision
from proxy.requests.times import MAX_DIGITS

Asked: TypeAlias = Mapping[str, bytes | None]
"""A record's headers by name, the last of each."""

BY_KEY: Final = -1
"""Partition of an entry that leaves the choice to the key."""
LONGEST_ID_BYTES: Final = 256
LONGEST_FAILURES_DIGITS: Final = 9
OFFSET: Final = re.compile("0|[1-9][0-9]{0,17}")
DECISIONS: Final = {COMMIT, ROLLBACK, EXPIRE}

T = TypeVar("T")


class Rejected(Exception):
    """Carries a rejection out of the depth of reading."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.detail)
        self.rejection = rejection


def read_partition(raw: bytes | None) -> int | Rejection:
    """The partition that `timer-partition` asks for."""
    if raw is not None and raw.isdigit() and int(raw[:10]) < 2**31 and len(raw) <= 10:
        return int(raw)
    return Rejection(
        "partition-bad", f"{PARTITION} is {shown(raw)}: it must be a partition number from 0"
    )


def or_raise(answer: T | Rejection) -> T:
    """The answer; raises Rejected where it is a rejection."""
    if isinstance(answer, Rejection):
        raise Rejected(answer)
    return answer


def read_failures(asked: Asked) -> int:
    """How often the consumer has failed before (`timer-attempt`); raises Rejected."""
    raw = asked.get(ATTEMPT, b"0")
    if raw is not None and raw.isdigit() and len(raw) <= LONGEST_FAILURES_DIGITS:
        return int(raw)
    why = f"{ATTEMPT} is {shown(raw)}: it must be how often it failed before, from 0"
    raise Rejected(Rejection("retry-bad", why))


def is_ident(raw: bytes | None) -> bool:
    """Whether this can be an id."""
    return bool(raw) and len(raw or b"") <= LONGEST_ID_BYTES


def read_ident(name: str, raw: bytes | None) -> bytes:
    """The id in the header `name`; raises Rejected."""
    if raw is not None and is_ident(raw):
        return raw
    length = f"{len(raw)} bytes long" if raw else "empty"
    why = f"{name} is {length}: an id has 1 to {LONGEST_ID_BYTES} bytes"
    raise Rejected(Rejection("id-bad", why))


def read_receipt(raw: bytes | None, topic: str, partition: int, before: int) -> int:
    """The offset in an origin of a record of this ingress partition, below `before`."""
    prefix = f"{topic}/{partition}/"
    text = (raw or b"").decode("utf-8", "replace")
    digits = text.removeprefix(prefix)
    if text.startswith(prefix) and OFFSET.fullmatch(digits) and int(digits) < before:
        return int(digits)
    why = f"{RECALL} is {shown(raw)}: it must be {prefix} and the offset of an earlier record"
    raise Rejected(Rejection("recall-bad", why))


def required_ident(ident: bytes | None, what: bytes | None) -> bytes:
    """The id of a record that must have one; raises Rejected."""
    if ident is None:
        why = f"{TRANSACTION} is {shown(what)}, but there is no {ID} header"
        raise Rejected(Rejection("id-bad", why))
    return ident


def read_decision(raw: bytes | None, ident: bytes | None, hop_from: int | None) -> Decision:
    """What `timer-transaction` decides about a half message; raises Rejected."""
    is_own = (raw == EXPIRE) == (hop_from is not None)
    if raw is None or raw not in DECISIONS or not is_own:
        why = f"{TRANSACTION} is {shown(raw)}: prepare, commit or rollback"
        raise Rejected(Rejection("transaction-bad", why))
    return Decision(required_ident(ident, raw), raw.decode(), hop_from)


def read_hop_from(asked: Asked, offset: int) -> int | None:
    """The entry that the record goes on from: as the proxy writes it, or not at all."""
    given = [name for name in HOPS if name in asked]
    if not given:
        return None
    numbers = {name: read_number(asked, name) for name in given if name != HOP_MAC}
    is_whole = FIRST_ORIGIN in asked or asked.get(TRANSACTION) == EXPIRE
    if is_whole and numbers.get(HOP_FROM, offset) < offset:
        return numbers[HOP_FROM]
    why = f"{' and '.join(sorted(given))}: only the proxy itself writes these, and not so"
    raise Rejected(Rejection("hop-bad", why))


def read_number(asked: Asked, name: str) -> int:
    """A number that the proxy itself writes; raises Rejected."""
    return _own_number(asked, name, "hop-bad")


def read_purge_ms(asked: Asked, name: str, without_ms: int) -> int:
    """A time of a purge in epoch ms, `without_ms` where it has none; raises Rejected."""
    return _own_number(asked, name, "purge-bad") if name in asked else without_ms


def _own_number(asked: Asked, name: str, code: str) -> int:
    raw = asked[name]
    if raw is not None and raw.isdigit() and len(raw) <= MAX_DIGITS:
        return int(raw)
    raise Rejected(Rejection(code, f"{name} is {shown(raw)}: only the proxy itself writes it"))
