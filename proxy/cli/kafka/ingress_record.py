"""A record for the ingress topic as the commands write it, and what the proxy will make of it."""

from dataclasses import replace
from typing import Final, NamedTuple

from proxy.config.policy_from_settings import policy_of
from proxy.config.settings import Settings
from proxy.dead_letters.letters.letter import Origin
from proxy.records.body import Headers
from proxy.records.headers import CANCEL, ID, KEY, RECALL, TRANSACTION
from proxy.records.rejection import Rejection
from proxy.requests.parsed import Prepare, Scheduled
from proxy.requests.request_reader import request_reader

BY_KEY: Final = -1


class IngressRecord(NamedTuple):
    """What is written. `partition`: of the ingress; BY_KEY places it as Java clients do."""

    headers: Headers
    key: bytes | None = None
    value: bytes | None = None
    partition: int = BY_KEY


class ExpectedEnd(NamedTuple):
    """What will come of a record under these settings: a delivery, or a dead letter and why.
    Neither of a control record, which acts on another."""

    target: str | None
    due_ms: int | None
    rejection: Rejection | None


def named(ident: str, headers: Headers, key: bytes | None, value: bytes | None) -> IngressRecord:
    """A record with an id. It is keyed by the id, so that a cancel finds its way without knowing
    the key, which goes to the target by `timer-key`."""
    asked: Headers = [*headers, (ID, ident.encode()), (KEY, key)]
    return IngressRecord(asked, ident.encode(), value)


def cancel_of(ident: str, partition: int | None = None) -> IngressRecord:
    """A record that takes back what pends with the id."""
    return _control([(CANCEL, ident.encode())], ident, partition)


def decision_on(ident: str, what: str, partition: int | None = None) -> IngressRecord:
    """A record that decides a half message: `what` is `commit` or `rollback`."""
    return _control([(TRANSACTION, what.encode()), (ID, ident.encode())], ident, partition)


def recall_of(
    origin: Origin, key: bytes | None = None, ident: bytes | None = None
) -> IngressRecord:
    """A record that takes back the one at this origin, by the key or id that this one has; it goes
    to the same partition."""
    headers: Headers = [(RECALL, str(origin).encode())]
    if ident is not None:
        headers.append((ID, ident))
    return IngressRecord(headers, key, None, origin.partition)


def _control(headers: Headers, ident: str, partition: int | None) -> IngressRecord:
    chosen = BY_KEY if partition is None else partition
    return IngressRecord(headers, ident.encode(), None, chosen)


def expected_end(record: IngressRecord, settings: Settings, timestamp_ms: int) -> ExpectedEnd:
    """What a proxy with these settings will do with a record to be delivered."""
    policy = replace(policy_of(settings, None), roll_after_ms=None)
    parsed = request_reader(policy).read(
        record.headers, record.key, record.value, timestamp_ms, 0, 0
    )
    if isinstance(parsed, Rejection):
        return ExpectedEnd(None, None, parsed)
    if not isinstance(parsed, Scheduled | Prepare):
        return ExpectedEnd(None, None, None)
    return ExpectedEnd(parsed.entry[2], parsed.due_ms, None)
