"""Records of a shop, with typical errors."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, cast

from confluent_kafka import Producer

from tests.support.records import Headers, Outgoing, write

INGRESS: Final = "timer.ingress"
GROUP: Final = "billing"
TARGETS: Final = {"orders-eu": 45, "orders-us": 25, "invoices": 18, "reminders": 9, "surveys": 3}
"""Targets with their shares of the pending records."""
PAUSED: Final = "reminders"
RETRIES, GIVEN_UP = f"retry.{GROUP}", f"dlq.{GROUP}"
CHECKS: Final = "payments-checks"
TOPICS: Final = (*TARGETS, RETRIES, GIVEN_UP, CHECKS)
LATER: Final = ((55, 3_600), (30, 86_400), (10, 6 * 86_400), (5, 25 * 86_400))
"""Shares of the records in percent, and the seconds within which these records are due."""
FEW: Final = 40_000
VALUE: Final = b'{"customer":"c-4711","lines":[{"sku":"A-100","count":2}],"total":"49.90"}'
POLL_EVERY: Final = 2_000
ID_EVERY: Final = 10


def request(target: str, due_ms: int, ident: str | None = None) -> Headers:
    asked: Headers = [("timer-topic", target.encode()), ("timer-deliver-at", b"%d" % due_ms)]
    return asked if ident is None else [*asked, ("timer-id", ident.encode())]


def write_waiting(bootstrap: str, count: int, now_ms: int, first_s: int = 60) -> None:
    settings: dict[str, str | int] = {
        "bootstrap.servers": bootstrap,
        "linger.ms": 20,
        "queue.buffering.max.messages": 400_000,
    }
    producer = Producer(settings)
    for number, (target, due_ms) in enumerate(islice(_drawn(now_ms, first_s), count)):
        ident = f"{target}-{number}" if number % ID_EVERY == 0 else None
        while True:
            try:
                headers = cast(Any, request(target, due_ms, ident))
                producer.produce(INGRESS, VALUE, b"c-%d" % number, headers=headers)
                break
            except BufferError:
                producer.poll(0.1)
        if number % POLL_EVERY == 0:
            producer.poll(0)
    producer.flush()


def _drawn(now_ms: int, first_s: int) -> Iterator[tuple[str, int]]:
    """Yield random targets by their shares, with random due times. Early times are frequent."""
    draw = random.Random(7)
    shares, within = [share for share, _ in LATER], [seconds for _, seconds in LATER]
    while True:
        targets = draw.choices([*TARGETS], [*TARGETS.values()], k=1_000)
        spans = draw.choices(within, shares, k=1_000)
        for target, span_s in zip(targets, spans, strict=True):
            yield target, now_ms + 1_000 * first_s + int(draw.random() * span_s * 1_000)


def write_troubles(bootstrap: str, now_ms: int) -> None:
    """Write records for dead letters, a missing target, half messages, a pause and cancels."""
    far_ms = now_ms + 1_800_000
    refused = [request("secret-audit", far_ms, f"audit-{n}") for n in range(12)]
    misspelt = [[*request("orders-eu", far_ms), ("timer-dealy", b"5m")] for _ in range(5)]
    unclear: list[Headers] = [
        [("timer-topic", b"invoices"), ("timer-deliver-at", b"tomorrow at nine")] for _ in range(3)
    ]
    missing = [request("shipping", now_ms, f"parcel-{n}") for n in range(20)]
    half = [
        [
            *request("orders-eu", far_ms, f"payment-{n}"),
            ("timer-transaction", b"prepare"),
            ("timer-check-topic", CHECKS.encode()),
        ]
        for n in range(2)
    ]
    held = [request(PAUSED, now_ms, f"reminder-{n}") for n in range(250)]
    headers = [*refused, *misspelt, *unclear, *missing, *half, *held]
    write(bootstrap, INGRESS, [Outgoing(b"c-1", VALUE, asked) for asked in headers])
    cancelled = [ident for _, ident in _with_ids() if ident.startswith("orders-eu")][::3]
    cancels = [Outgoing(_key(one), b"", [("timer-cancel", one.encode())]) for one in cancelled]
    write(bootstrap, INGRESS, cancels)
    letters: Headers = [
        ("timer-origin", b"timer.ingress/0/1"),
        ("retry-exception", b"PaymentRefused: the card has expired"),
    ]
    write(bootstrap, GIVEN_UP, [Outgoing(b"c-%d" % n, VALUE, letters) for n in range(9)])


def far_id() -> str:
    return next(
        ident
        for due_ms, ident in _with_ids()
        if due_ms > 86_400_000 and ident.startswith("orders-us")
    )


def _with_ids() -> Iterator[tuple[int, str]]:
    for number, (target, due_ms) in enumerate(islice(_drawn(0, 0), FEW)):
        if number % ID_EVERY == 0:
            yield due_ms, f"{target}-{number}"


def _key(ident: str) -> bytes:
    return b"c-" + ident.rpartition("-")[2].encode()
