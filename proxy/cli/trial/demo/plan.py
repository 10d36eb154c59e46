"""What the demo sends, and what must come of it: plain deliveries, and bad records."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from proxy.config.settings import Settings
from proxy.records.body import Headers
from proxy.records.headers import DELAY, DELIVER_AT, KEY, LEVEL, PARTITION, TOPIC
from proxy.records.outcome import DEAD_LETTERED

ORDERS = "demo-orders"
PAYMENTS = "demo-payments"
DEMO_ID = "demo-id"
LONGEST_DELAY_MS = 17_000
"""Shorter than the age at which the demo's proxy rewrites a record."""


class Step(IntEnum):
    """When a record is written: the steps of the demo, in order; the last by the proxy itself."""

    FIRST = 0
    START = 1
    SOON = 2
    ARRIVED = 3
    DOWN = 4
    CALLED = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """One record to send, and what must become of it.

    It is due `delay_ms` after the ingress record's timestamp, or at `due_ms` where that is set.
    With a `reason` it must end as a dead letter instead, under that code.

    step, after: when it is sent; in a later step once the record `after` has arrived.
    arrives: whether anything of it is to be seen in a target or among the dead letters.
    ends: outcomes of this record and of those that the proxy wrote to go on from it.
    checks_ms: times after the record's timestamp at which its producer is asked about it.
    recalls: it takes back this other record, by its receipt, and asks for nothing else.
    """

    ident: str
    group: str
    topic: str
    headers: Headers
    key: bytes | None
    value: bytes | None
    delay_ms: int = 0
    due_ms: int | None = None
    reason: str | None = None
    own_headers: Headers = field(default_factory=list)
    step: Step = Step.START
    after: str | None = None
    arrives: bool = True
    ends: tuple[str, ...] = ()
    checks_ms: tuple[int, ...] = ()
    recalls: str | None = None

    @property
    def all_headers(self) -> Headers:
        """Requests and the user's own, as they are sent."""
        return [*self.headers, *self.own_headers]

    def due_when_sent(self, timestamp_ms: int) -> int:
        """When it is due if the ingress has it with that timestamp; 0 at the earliest."""
        return max(0, timestamp_ms + self.delay_ms if self.due_ms is None else self.due_ms)


def expected_verdicts(plan: Sequence[Wanted]) -> Counter[str]:
    """How many ingress records must get which verdict of the audit: those of the plan, and those
    that the proxy writes to go on from them."""
    verdicts = Counter(end.replace("-", "_") for one in plan for end in one.ends)
    verdicts["delivered"] += sum(one.arrives and one.reason is None for one in plan)
    return verdicts


def plain_plan(settings: Settings, now_ms: int, seed: int) -> list[Wanted]:
    """About 100 records: delays, levels, absolute times, at once, odd ones and bad ones."""
    chance = random.Random(seed)
    return [
        wanted("the very first", 0, ORDERS, step=Step.FIRST),
        *_delays(chance),
        *_levels(settings.levels_ms),
        *_absolute(now_ms, chance),
        *_odd(),
        *_bad(settings),
    ]


def wanted(
    group: str, number: int, topic: str, *requests: tuple[str, str], **expected: object
) -> Wanted:
    """A record for `topic` with these request headers, and what is expected of it."""
    ident = f"{group}-{number}".replace(" ", "-")
    headers: Headers = [
        (TOPIC, topic.encode()),
        *((name, text.encode()) for name, text in requests),
    ]
    own: Headers = [(DEMO_ID, ident.encode()), ("trace", bytes([0, 255, number % 256]))]
    parts = {"key": ident.encode(), "value": f"value of {ident}".encode(), **expected}
    if parts.get("reason"):
        parts.setdefault("ends", (DEAD_LETTERED,))
    return Wanted(ident, group, topic, headers, own_headers=own, **parts)  # type: ignore[arg-type]


def _delays(chance: random.Random) -> Iterator[Wanted]:
    for number in range(64):
        delay_ms = chance.randrange(1_000, LONGEST_DELAY_MS)
        topic = (ORDERS, PAYMENTS)[number % 2]
        yield wanted("delay", number, topic, (DELAY, str(delay_ms)), delay_ms=delay_ms)
    for number, text in enumerate(("2s", "5s", "PT7S", "PT12.5S"), start=64):
        delay_ms = {"2s": 2_000, "5s": 5_000, "PT7S": 7_000, "PT12.5S": 12_500}[text]
        yield wanted("delay", number, ORDERS, (DELAY, text), delay_ms=delay_ms)


def _levels(levels_ms: tuple[int, ...]) -> Iterator[Wanted]:
    for level, delay_ms in enumerate(levels_ms[:3], start=1):
        for number in range(4):
            yield wanted(
                "level", 10 * level + number, PAYMENTS, (LEVEL, str(level)), delay_ms=delay_ms
            )


def _absolute(now_ms: int, chance: random.Random) -> Iterator[Wanted]:
    for number in range(8):
        due_ms = now_ms + chance.randrange(6_000, LONGEST_DELAY_MS)
        yield wanted("time", number, ORDERS, (DELIVER_AT, str(due_ms)), due_ms=due_ms)
    yield wanted("at once", 0, ORDERS, (DELIVER_AT, "2001-01-01T00:00:00Z"), due_ms=978_307_200_000)
    yield wanted("at once", 1, ORDERS)


def _odd() -> Iterator[Wanted]:
    """No value, no key, another key, a partition, 200 kB."""
    yield wanted("odd", 0, ORDERS, (DELAY, "3s"), delay_ms=3_000, value=None)
    yield wanted("odd", 1, ORDERS, (DELAY, "3s"), delay_ms=3_000, key=None)
    yield wanted("odd", 2, ORDERS, (DELAY, "3s"), (KEY, "k-9"), delay_ms=3_000)
    yield wanted("odd", 3, ORDERS, (DELAY, "3s"), (PARTITION, "2"), delay_ms=3_000)
    yield wanted("odd", 4, ORDERS, (DELAY, "4s"), delay_ms=4_000, value=bytes(200_000))


def _bad(settings: Settings) -> Iterator[Wanted]:
    yield wanted("dead letter", 0, ORDERS, (DELAY, "soonish"), reason="time-unreadable")
    yield wanted("dead letter", 1, ORDERS, (LEVEL, "high"), reason="level-unknown")
    yield wanted("dead letter", 2, ORDERS, (DELAY, "99999d"), reason="delay-too-long")
    yield wanted("dead letter", 3, "not/a/topic", (DELAY, "1s"), reason="target-illegal")
    yield wanted("dead letter", 4, settings.topics.ingress, (DELAY, "1s"), reason="target-refused")
