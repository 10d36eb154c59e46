"""NATS JetStream's message scheduler: single scheduled messages.

Source: nats-io/nats-architecture-and-design, adr/ADR-51.md, revision 6. Names are spelt as there;
that an `@at` in the past fires at once, and which headers belong to recurring schedules, too.
"""

from typing import Final

from proxy.protocol.aliases.foreign import Ask, ForeignRecord, Refused, digits
from proxy.protocol.headers import DELIVER_AT, shown
from proxy.protocol.times import parse_instant_ms

SCHEDULE: Final = "Nats-Schedule"
TARGET: Final = "Nats-Schedule-Target"
SOURCE: Final = "Nats-Schedule-Source"
TIME_ZONE: Final = "Nats-Schedule-Time-Zone"
NEXT: Final = "Nats-Schedule-Next"
TRIGGERS: Final = frozenset({SCHEDULE, TARGET, NEXT})
HEADERS: Final = TRIGGERS | {SOURCE, TIME_ZONE}
AT: Final = b"@at "
LONGEST_INSTANT_BYTES: Final = 64


def read(record: ForeignRecord) -> Ask:
    """`@at` and the target; what the proxy cannot do is refused, never left undone in silence."""
    _refuse_purge(record)
    if SCHEDULE not in record.headers and TARGET not in record.headers:
        return {}
    _refuse(record, SOURCE, "the proxy delivers the record itself, not another's latest")
    _refuse(record, TIME_ZONE, "it belongs to recurring schedules, which are not served")
    return _time(record) | record.target(TARGET)


def _time(record: ForeignRecord) -> Ask:
    if not record.needs_time:
        return {}
    raw = record.headers.get(SCHEDULE)
    if not raw:
        found = shown(raw) if SCHEDULE in record.headers else "missing"
        raise Refused("time-unreadable", f"{SCHEDULE} is {found}: write @at and an RFC 3339 time")
    if not raw.startswith(AT):
        raise Refused(
            "header-unsupported",
            f"{SCHEDULE} is {shown(raw)}: recurring schedules (cron, @every, @daily, ...) are not "
            "served; a single one is: @at and an RFC 3339 time",
        )
    return {DELIVER_AT: (digits(_instant_ms(raw[len(AT) :])), SCHEDULE)}


def _instant_ms(raw: bytes) -> int:
    if raw.isdigit():
        raise Refused("time-unreadable", f"{SCHEDULE} is @at {shown(raw)}: write RFC 3339")
    try:
        return max(
            0, parse_instant_ms(raw[:LONGEST_INSTANT_BYTES].decode("utf-8", "backslashreplace"))
        )
    except ValueError as error:
        raise Refused("time-unreadable", f"{SCHEDULE}: {error}") from None


def _refuse(record: ForeignRecord, name: str, why: str) -> None:
    if name in record.headers:
        raise Refused("header-unsupported", f"{name} is not served: {why}")


def _refuse_purge(record: ForeignRecord) -> None:
    """A purge ends a schedule by its subject; records in Kafka have none."""
    if record.headers.get(NEXT) == b"purge":
        raise Refused(
            "header-unsupported",
            f"{NEXT}: purge is not served, for schedules have no subjects here: "
            "give records a timer-id and cancel them with timer-cancel",
        )
