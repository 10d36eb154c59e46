"""Random ingress records with right and wrong requests. Header values are valid or nearly valid.
Most records can be served, so that later checks are reached, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

from proxy.protocol.proofs import HopAuthenticator

NOW_MS: Final = 1_800_000_000_000
Value = bytes | None
Headers = list[tuple[str, Value]]


class AnyRecord(NamedTuple):
    partition: int
    offset: int
    timestamp_ms: int
    key: Value
    value: Value
    headers: Headers


JUNK: Final[list[Value]] = [
    *(None, b"", b" ", b"soon", b"-1", b"+1", b" 5", b"5 ", b"\xff\xfe", b"\xff", b"1.5", b"1e3"),
    *(b"0", b"7", b"007", b"9" * 15, b"9" * 16, b"9" * 19, b"9" * 40, b"1" * 300),
    *("٣".encode(), b"5\x00", b"\n5", b"5\n", b"null", b"true", b"0x10", b"--5", b"5.", b".5"),
]
TOPICS: Final[list[Value]] = [
    *(b"orders", b"orders.eu", b"shop.a", b"shop.secret", b"a", b"A-b_c.9", b"x" * 249),
    *(b"x" * 250, b".", b"..", b"...", b"a b", b"a/b", b"orders\n", b"\xff", "é".encode()),
    *(b"timer.ingress", b"timer.dead-letters", b"timer.outcomes", b"timer.settings", b"__x"),
    *(b"_x", b"retry.g", b"dlq.secret", b"timer.dead-letters.marks", b"", None),
]
INSTANTS: Final[list[Value]] = [
    *(b"%d" % (NOW_MS + ahead) for ahead in (-5, 0, 1, 5_000, 31_622_400_000, 31_622_400_001)),
    *(b"2027-01-15T08:00:00Z", b"2027-01-15t09:00:00.5+01:00", b"2027-01-15 08:00:00.0001z"),
    *(b"2027-01-15T08:00:00", b"2027-13-01T08:00:00Z", b"2027-02-29T08:00:00Z"),
    *(b"2028-02-29T23:59:59.999999999-23:59", b"2027-01-15T08:00:60Z", b"2027-01-15T24:00:00Z"),
    *(b"0000-01-01T00:00:00Z", b"0001-01-01T00:00:00+14:00", b"9999-12-31T23:59:59.9-12:00"),
    *(b"2027-01-15T08:00:00+24:00", b"2027-01-15T08:00:00+23:60", b"2027-01-15T08:00:00+00:99"),
    *(b"2027-01-15T08:00:00-00:00", b"1969-12-31T23:59:59.5Z", b"2027-01-15T08:00Z"),
    *(b"2027-01-15T08:00:00.1234567890Z", b"2027-01-15T08:00:00.Z", b"20270115T080000Z"),
    *(b"2027-01-15T08:00:00Z ", b"2027-01-15T08:00:00Z\n", "\uff12027-01-15T08:00:00Z".encode()),
]
DELAYS: Final[list[Value]] = [
    *(b"0", b"1500", b"500ms", b"30s", b"5m", b"2h", b"7d", b"366d", b"367d", b"0ms", b"s", b"ms"),
    *(b"PT30S", b"P1DT2H", b"P1W", b"P", b"PT", b"P1DT", b"PT0.0001S", b"PT1,5S", b"PT1.5M"),
    *(b"P1Y", b"P1M", b"PT1H1M1.000000001S", b"P1W1D", b"-PT1S", b"pt1s", b"PT1S ", b"P 1D"),
    *(b"999999999999d", b"9999999999999d", b"31622400001", b"1.5s", b"5x", b"5 s", b"5S"),
    *(b"PT999999999H", b"P999999W", b"PT1234567890123S", b"PT.5S", b"PT1.S", "5㎳".encode()),
]
LEVELS: Final[list[Value]] = [b"0", b"1", b"3", b"18", b"19", b"99", b"03", b"high"]
IDENTS: Final[list[Value]] = [
    *(b"a", b"b", b"x" * 256, b"x" * 257, b"\xff\x00", b" ", b"", None, b"no id", "ü".encode()),
]
KEYS: Final[list[Value]] = [None, b"", b"k", b"\x00\xff", b"key-of-some-length", b" \t\n", b"a"]
ATTEMPTS: Final[list[Value]] = [
    *(b"0", b"1", b"2", b"3", b"15", b"16", b"17", b"999999999", b"1000000000", b"-1"),
]
OFFSETS: Final[list[Value]] = [b"0", b"1", b"3", b"99999999999999", b"00", b"-1"]
OWN: Final[dict[str, list[Value]]] = {
    "timer-topic": TOPICS,
    "timer-deliver-at": INSTANTS,
    "timer-delay": DELAYS,
    "timer-level": LEVELS,
    "timer-key": KEYS,
    "timer-partition": [b"0", b"3", b"2147483647", b"2147483648", b"00000000003", b"0000000003"],
    "timer-id": IDENTS,
    "timer-cancel": IDENTS,
    "timer-recall": [
        *(
            b"timer.ingress/%d/%d" % place
            for place in ((0, 0), (0, 1), (1, 0), (2, 7), (3, 5), (4, 9), (0, 99_999))
        ),
        *(b"timer.ingress/0/00", b"timer.ingress/0/1\n", b"timer.ingress/0/" + b"9" * 18),
        *(b"timer.ingress/0/" + b"9" * 19, b"timer.ingress/0/-1", b"timer.ingress/0/", b"a/0/0"),
    ],
    "timer-retry-group": [b"g", b"own", b"secret", b"g!", b"g" * 243, b"g" * 246, b"\xff", b""],
    "timer-attempt": ATTEMPTS,
    "timer-transaction": [b"prepare", b"commit", b"rollback", b"expire", b"check", b"Prepare"],
    "timer-check-topic": TOPICS,
    "timer-check-immunity": DELAYS,
    "timer-hop-from": OFFSETS,
    "timer-hop-not-before": INSTANTS,
    "timer-hop-resumed": INSTANTS,
    "timer-hop-attempt": ATTEMPTS,
    "timer-hop-first": OFFSETS,
    "timer-hop-fires": [*OFFSETS, b"9" * 15, b"9" * 16, b"5s", b"", None],
    "timer-hop-due": [*OFFSETS, b"9" * 15, b"9" * 16, b"5s", b"", None],
    "timer-hop-mac": [b"0" * 32],
    "timer-purge": [
        *(b"orders", b"*", b"sh[a-o]p.?", b"[!a]-_*", b"a" * 249, b"a" * 250, b"a/b", b"", None),
        *(b"orders\n", b"\xff", "größe".encode(), b"{a}", b"[", b"]", b"a,b"),
    ],
    "timer-purge-from": [*OFFSETS, b"9" * 15, b"9" * 16, b"5s", b"", None, b"1\n"],
    "timer-purge-to": [*OFFSETS, b"9" * 15, b"9" * 16, b"5s", b"", None, b"1\n"],
    "timer-first-origin": [b"timer.ingress/0/1", b"", None, b"\xff"],
    "timer-origin": [b"timer.ingress/0/1"],
    "timer-due": [b"5"],
    "timer-error": [b"too-large"],
    "timer-error-detail": [b"a sentence"],
    "timer-ingress-key": KEYS,
    "timer-check": [b"1"],
    "timer-unreadable": [None],
    "timer-dealy": [b"5s"],
    "timer-": [b""],
    "timer-hop-": [b"1"],
    "timer-entry": [b"1/2/3"],
}
SIGNED: Final = ("timer-hop-from", "timer-purge")
TIMESTAMPS_MS: Final = [-1, -5, 0, 1, NOW_MS + 3, 10**15 - 1, 10**15, 2**63 - 1]
USERS: Final = ["trace", "Timer-Topic", "timer", "TIMER-ID", "", "ü", "x-timer-topic", "timer_id"]

Shape = tuple[str, ...]
SHAPES: Final[list[Shape]] = [
    ("timer-topic",),
    ("timer-topic", "timer-delay"),
    ("timer-topic", "timer-deliver-at"),
    ("timer-topic", "timer-level"),
    ("timer-topic", "timer-id", "timer-delay"),
    ("timer-topic", "timer-key", "timer-partition", "timer-deliver-at"),
    ("timer-cancel",),
    ("timer-recall",),
    ("timer-recall", "timer-id"),
    ("timer-purge",),
    ("timer-purge", "timer-purge-from", "timer-purge-to"),
    ("timer-retry-group", "timer-attempt"),
    ("timer-retry-group", "timer-attempt", "timer-topic"),
    ("timer-retry-group", "timer-attempt", "timer-deliver-at"),
    ("timer-transaction", "timer-id", "timer-topic"),
    ("timer-transaction", "timer-id", "timer-topic", "timer-delay", "timer-check-topic"),
    ("timer-transaction", "timer-id", "timer-topic", "timer-check-immunity"),
    ("timer-transaction", "timer-id"),
    ("timer-transaction", "timer-id", "timer-hop-from"),
    ("timer-topic", "timer-deliver-at", "timer-hop-from", "timer-first-origin"),
    ("timer-topic", "timer-id", "timer-deliver-at", "timer-hop-from", "timer-first-origin"),
    (
        *("timer-topic", "timer-deliver-at", "timer-hop-from", "timer-first-origin"),
        *("timer-hop-not-before", "timer-hop-resumed", "timer-hop-attempt"),
    ),
    ("timer-topic", "timer-deliver-at", "timer-hop-from", "timer-hop-first", "timer-first-origin"),
    (
        *("timer-topic", "timer-deliver-at", "timer-hop-fires", "timer-hop-due"),
        *("timer-hop-from", "timer-hop-first", "timer-first-origin"),
    ),
    (
        *("timer-topic", "timer-id", "timer-deliver-at", "timer-hop-due", "timer-hop-fires"),
        *("timer-hop-from", "timer-first-origin"),
    ),
    (
        *("timer-retry-group", "timer-attempt", "timer-deliver-at", "timer-hop-from"),
        "timer-first-origin",
    ),
    (),
]
SOUND: Final[dict[str, list[Value]]] = {
    "timer-topic": [b"orders", b"shop.a"],
    "timer-check-topic": [b"orders", b"shop.a"],
    "timer-deliver-at": [b"%d" % (NOW_MS + 5_000), b"2027-01-15T09:00:00.5+01:00"],
    "timer-delay": [b"30s", b"1500", b"PT1.5S"],
    "timer-level": [b"3"],
    "timer-id": [b"a"],
    "timer-cancel": [b"a"],
    "timer-attempt": [b"1", b"16"],
    "timer-transaction": [b"prepare", b"prepare", b"commit"],
    "timer-retry-group": [b"g", b"own"],
    "timer-hop-from": [b"0"],
    "timer-hop-first": [b"0"],
    "timer-hop-fires": [b"%d" % NOW_MS],
    "timer-hop-due": [b"%d" % (NOW_MS + 5)],
    "timer-first-origin": [b"timer.ingress/0/1"],
    "timer-purge": [b"orders", b"*", b"sh[a-o]p.?", b"[!a]-_*"],
    "timer-purge-from": [b"0", b"5"],
    "timer-purge-to": [b"9", b"%d" % NOW_MS],
}


class AnyRequests:
    """Generator of random ingress records. `foreign` adds header names with values. `sound` adds
    valid values. With an authenticator most hops and purges are signed. Some signatures are for
    another partition or record."""

    def __init__(
        self,
        seed: int,
        shapes: Sequence[Shape] = SHAPES,
        foreign: Mapping[str, list[Value]] = MappingProxyType({}),
        sound: Mapping[str, list[Value]] = MappingProxyType({}),
        authenticator: HopAuthenticator | None = None,
    ) -> None:
        self._authenticator = authenticator
        self._random = Random(seed)
        self._values = {**OWN, **foreign}
        self._sound = {**SOUND, **sound}
        self._shapes = list(shapes)
        self._names = list(self._values)

    def records(self, partition: int, offsets: range) -> list[AnyRecord]:
        return [self._record(partition, offset) for offset in offsets]

    def _record(self, partition: int, offset: int) -> AnyRecord:
        draw = self._random
        timestamp_ms = draw.choice([NOW_MS] * 20 + TIMESTAMPS_MS)
        value = draw.choice([b"value", b"value", b"", None])
        key, headers = draw.choice(KEYS), self._headers()
        if self._authenticator and any(name in SIGNED for name, _ in headers):
            headers = self._signed(partition, key, value, headers)
        return AnyRecord(partition, offset, timestamp_ms, key, value, headers)

    def _signed(self, partition: int, key: Value, value: Value, headers: Headers) -> Headers:
        draw, sign = self._random, self._authenticator
        assert sign
        other = draw.choice([None] * 12 + list(range(6)))
        if other is None:
            return sign.signed(partition, key, value, headers)
        return [
            headers,
            sign.signed(partition + 1, key, value, headers),
            sign.signed(partition, b"other", value, headers),
            sign.signed(partition, key, b"other", headers),
            [*sign.signed(partition, key, value, headers), ("trace", b"behind")],
            [*headers[1:], sign.signed(partition, key, value, headers)[-1]],
        ][other]

    def _headers(self) -> Headers:
        draw = self._random
        names = list(draw.choice(self._shapes))
        names += draw.choices(self._names, k=draw.choice([0, 0, 0, 0, 1, 1, 2]))
        names += draw.choices(names or [""], k=draw.choice([0, 0, 0, 1]))
        names += draw.choices(USERS, k=draw.choice([0, 0, 1, 2]))
        if draw.random() < 0.3:
            draw.shuffle(names)
        return [(name, self._value(name)) for name in names]

    def _value(self, name: str) -> Value:
        draw, kind = self._random, self._random.random()
        if kind < 0.6 and name in self._sound:
            return draw.choice(self._sound[name])
        return draw.choice(self._values.get(name, JUNK) if kind < 0.94 else JUNK)
