"""Apache RocketMQ: message properties, under their property names, as Kafka headers.

Source: apache/rocketmq, common/.../message/MessageConst.java (the names),
broker/.../util/HookUtils.java (the level beats TIMER_DELAY_SEC, that TIMER_DELAY_MS, that
TIMER_DELIVER_MS; a level of 0 or less is none; what has passed fires at once),
store/.../timer/TimerMessageStore.java (a delete names the UNIQ_KEY, newer versions the topic, `+`
and the UNIQ_KEY).
`__STARTDELIVERTIME`: Tencent Cloud TDMQ for RocketMQ, "Scheduled and delayed messages", 4.x client.
"""

from typing import Final

from proxy.protocol.aliases.foreign import SECONDS, Ask, ForeignRecord, Refused, digits
from proxy.protocol.headers import CANCEL, ID, LEVEL, shown

DELAY_LEVEL: Final = "DELAY"
DELAY_SEC: Final = "TIMER_DELAY_SEC"
DELAY_MS: Final = "TIMER_DELAY_MS"
DELIVER_MS: Final = "TIMER_DELIVER_MS"
START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
DELETE: Final = "TIMER_DEL_UNIQKEY"
UNIQUE_KEY: Final = "UNIQ_KEY"
TIMES: Final = frozenset({DELAY_LEVEL, DELAY_SEC, DELAY_MS, DELIVER_MS, START_DELIVER_TIME})
TRIGGERS: Final = TIMES | {DELETE}
HEADERS: Final = TRIGGERS | {UNIQUE_KEY}


def read(record: ForeignRecord) -> Ask:
    """What Apache's broker reads; a delete needs no time here."""
    if DELETE in record.headers:
        return _cancel(record)
    return _time(record) | _identity(record)


def read_cloud(record: ForeignRecord) -> Ask:
    """The clouds' own property. Nobody ranks it: beside another time it must say the same."""
    if START_DELIVER_TIME not in record.headers or DELETE in record.headers:
        return {}
    return record.due_at(START_DELIVER_TIME, signed=True)


def _time(record: ForeignRecord) -> Ask:
    if not record.needs_time:
        return {}
    if DELAY_LEVEL in record.headers:
        level = record.whole(DELAY_LEVEL, "level-unknown", signed=True)
        if level > 0:
            return {LEVEL: (digits(level), DELAY_LEVEL)}
    if DELAY_SEC in record.headers:
        return record.due_after(DELAY_SEC, SECONDS, signed=True)
    if DELAY_MS in record.headers:
        return record.due_after(DELAY_MS, signed=True)
    if DELIVER_MS in record.headers:
        return record.due_at(DELIVER_MS, signed=True)
    return {}


def _identity(record: ForeignRecord) -> Ask:
    unique_key = record.headers.get(UNIQUE_KEY)
    return {} if ID in record.headers or not unique_key else {ID: (unique_key, UNIQUE_KEY)}


def _cancel(record: ForeignRecord) -> Ask:
    """RocketMQ's topic names have no `+`, so what follows the last one is the key."""
    named = record.headers[DELETE]
    unique_key = (named or b"").rpartition(b"+")[2]
    if not unique_key:
        raise Refused(
            "header-unreadable", f"{DELETE} is {shown(named)}: it must name the {UNIQUE_KEY}"
        )
    return {CANCEL: (unique_key, DELETE)}
