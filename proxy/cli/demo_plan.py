"""What the demo sends, and what must come of it."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from proxy.headers import DELAY, DELIVER_AT, KEY, LEVEL, PARTITION, TOPIC
from proxy.settings import Settings

ORDERS = "demo-orders"
PAYMENTS = "demo-payments"
TARGETS = (ORDERS, PAYMENTS)
DEMO_ID = "demo-id"

Headers = list[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One record to send, and its fate.

    It is due `delay_ms` after the ingress record's timestamp, or at `due_ms` where that is set.
    With a `reason` it must end as a dead letter instead, under that code.
    """

    ident: str
    group: str
    topic: str
    headers: Headers
    key: bytes | None
    value: bytes | None
    target_key: bytes | None = None
    partition: int | None = None
    delay_ms: int = 0
    due_ms: int | None = None
    reason: str | None = None
    own_headers: Headers = field(default_factory=list)

    @property
    def all_headers(self) -> Headers:
        """Requests and the user's own, as they are sent."""
        return [*self.headers, *self.own_headers]


def make_plan(settings: Settings, now_ms: int, seed: int) -> list[Wanted]:
    """About 100 records: delays, levels, absolute times, at once, odd ones and bad ones."""
    chance = random.Random(seed)
    plan = [
        *_delays(chance),
        *_levels(settings.levels_ms),
        *_absolute(now_ms, chance),
        *_odd(),
        *_bad(settings),
    ]
    chance.shuffle(plan)
    return plan


def _wanted(
    group: str, number: int, topic: str, *requests: tuple[str, str], **fate: object
) -> Wanted:
    ident = f"{group}-{number}".replace(" ", "-")
    headers = [(TOPIC, topic.encode()), *((name, text.encode()) for name, text in requests)]
    own: Headers = [(DEMO_ID, ident.encode()), ("trace", bytes([0, 255, number % 256]))]
    parts = {"key": ident.encode(), "value": f"value of {ident}".encode(), **fate}
    parts.setdefault("target_key", parts["key"])
    return Wanted(ident, group, topic, headers, own_headers=own, **parts)  # type: ignore[arg-type]


def _delays(chance: random.Random) -> Iterator[Wanted]:
    for number in range(64):
        delay_ms = chance.randrange(1_000, 25_000)
        topic = TARGETS[number % 2]
        yield _wanted("delay", number, topic, (DELAY, str(delay_ms)), delay_ms=delay_ms)
    for number, text in enumerate(("2s", "5s", "PT7S", "PT12.5S"), start=64):
        delay_ms = {"2s": 2_000, "5s": 5_000, "PT7S": 7_000, "PT12.5S": 12_500}[text]
        yield _wanted("delay", number, ORDERS, (DELAY, text), delay_ms=delay_ms)


def _levels(levels_ms: tuple[int, ...]) -> Iterator[Wanted]:
    for level, delay_ms in enumerate(levels_ms[:3], start=1):
        for number in range(4):
            yield _wanted(
                "level", 10 * level + number, PAYMENTS, (LEVEL, str(level)), delay_ms=delay_ms
            )


def _absolute(now_ms: int, chance: random.Random) -> Iterator[Wanted]:
    for number in range(8):
        due_ms = now_ms + chance.randrange(6_000, 22_000)
        yield _wanted("time", number, ORDERS, (DELIVER_AT, str(due_ms)), due_ms=due_ms)
    yield _wanted("past", 0, ORDERS, (DELIVER_AT, "2001-01-01T00:00:00Z"), due_ms=978_307_200_000)
    yield _wanted("no time", 0, ORDERS)


def _odd() -> Iterator[Wanted]:
    yield _wanted("null value", 0, ORDERS, (DELAY, "3s"), delay_ms=3_000, value=None)
    yield _wanted("null key", 0, ORDERS, (DELAY, "3s"), delay_ms=3_000, key=None)
    yield _wanted(
        "other key", 0, ORDERS, (DELAY, "3s"), (KEY, "k-9"), delay_ms=3_000, target_key=b"k-9"
    )
    yield _wanted(
        "partition", 0, ORDERS, (DELAY, "3s"), (PARTITION, "2"), delay_ms=3_000, partition=2
    )
    yield _wanted("200 kB", 0, ORDERS, (DELAY, "4s"), delay_ms=4_000, value=bytes(200_000))


def _bad(settings: Settings) -> Iterator[Wanted]:
    yield _wanted("dead letter", 0, ORDERS, (DELAY, "soonish"), reason="time-unreadable")
    yield _wanted("dead letter", 1, ORDERS, (LEVEL, "high"), reason="level-unknown")
    yield _wanted("dead letter", 2, ORDERS, (DELAY, "99999d"), reason="delay-too-long")
    yield _wanted("dead letter", 3, "not/a/topic", (DELAY, "1s"), reason="target-illegal")
    yield _wanted("dead letter", 4, "demo-nowhere", (DELAY, "2s"), reason="target-unknown")
    yield _wanted("dead letter", 5, settings.topics.ingress, (DELAY, "1s"), reason="target-refused")
