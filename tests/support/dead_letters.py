"""Dead letters as the proxy writes them, for tests."""

from __future__ import annotations

from proxy.dead_letters.letter import Letter, Place
from tests.support.records import Headers, Outgoing

ORIGIN = "timer.ingress/1/7"


def letter_headers(
    reason: str = "target-refused",
    target: str | None = "secret-orders",
    origin: str = ORIGIN,
    more: Headers | None = None,
) -> Headers:
    asked: Headers = [] if target is None else [("timer-topic", target.encode())]
    return [
        *asked,
        *(more or []),
        ("timer-error", reason.encode()),
        ("timer-error-detail", b"because"),
        ("timer-origin", origin.encode()),
    ]


def a_letter(
    offset: int = 0,
    headers: Headers | None = None,
    *,
    partition: int = 0,
    timestamp_ms: int = 1_000,
    key: bytes | None = b"key",
    value: bytes | None = b"value",
) -> Letter:
    given = letter_headers() if headers is None else headers
    return Letter(Place(partition, offset), timestamp_ms, key, value, given)


def outgoing(letter: Letter) -> Outgoing:
    return Outgoing(letter.key, letter.value, letter.headers, letter.place.partition)
