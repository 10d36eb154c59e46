"""Gives a record in the headers of other schedulers our own headers that ask for the same.

Its own headers, key and value stay as they are, and reach the target byte for byte. The answer is a
pure function of the record and the enabled names: a relative time stays relative.
"""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Final, NamedTuple, TypeAlias

from proxy.protocol.aliases import cesium, etf1, karafka, nats, rabbitmq, rocketmq, spring
from proxy.protocol.aliases.foreign import TIMES, Ask, ForeignRecord, Refused
from proxy.protocol.body import Headers
from proxy.protocol.headers import CANCEL, HOP_FROM, PARTITION, RECALL, TOPIC, shown
from proxy.protocol.outcomes import Rejection

Request: TypeAlias = tuple[Headers, bytes | None, bytes | None]
"""(headers, key, value) of a record."""


class Alias(NamedTuple):
    """One scheduler's words: what makes us read them, all names read, and the readers.

    Two readers of one alias may contradict each other as two aliases may.
    """

    triggers: frozenset[str]
    headers: frozenset[str]
    readers: tuple[Callable[[ForeignRecord], Ask], ...]


ALIASES: Final = {
    "cesium": Alias(cesium.HEADERS, cesium.HEADERS, (cesium.read,)),
    "etf1": Alias(etf1.HEADERS, etf1.HEADERS, (etf1.read,)),
    "karafka": Alias(karafka.HEADERS, karafka.HEADERS, (karafka.read,)),
    "rocketmq": Alias(rocketmq.TRIGGERS, rocketmq.HEADERS, (rocketmq.read, rocketmq.read_cloud)),
    "rabbitmq": Alias(rabbitmq.HEADERS, rabbitmq.HEADERS, (rabbitmq.read,)),
    "nats": Alias(nats.TRIGGERS, nats.HEADERS, (nats.read,)),
    "spring": Alias(spring.HEADERS, spring.HEADERS, (spring.read,)),
}
KNOWN_ALIASES: Final = tuple(ALIASES)

CONTRADICTION_CODES: Final = {
    "time": "time-unreadable",
    TOPIC: "target-illegal",
    PARTITION: "partition-bad",
}


class Translator:
    """Reads records under a fixed choice of aliases. Stateless: threads may share it.

    `triggers` are the foreign headers that make a record worth translating, and `deletions` says
    that a null value may, too: a caller that has the names at hand can skip `translate` by them.
    """

    __slots__ = ("_aliases", "_decisive", "deletions", "triggers")

    def __init__(self, aliases: tuple[Alias, ...], decisive: frozenset[str]) -> None:
        self._aliases, self._decisive = aliases, decisive
        self.triggers = frozenset[str]().union(*(alias.triggers for alias in aliases))
        self.deletions = ALIASES["etf1"] in aliases

    def translate(
        self, headers: Headers, key: bytes | None, value: bytes | None
    ) -> Request | Rejection:
        """The record with our own request headers added behind its own.

        A record that asks for nothing in foreign words comes back with the very same `headers`.
        Never raises: what cannot be read is a Rejection that names the foreign header.
        """
        asked = dict(headers)
        if self.triggers.isdisjoint(asked) and not (value is None and self.deletions):
            return headers, key, value
        if not self._decisive.isdisjoint(asked):
            return headers, key, value
        try:
            ask = _one_request(self._asks(ForeignRecord(asked, key, value)))
        except Refused as refused:
            return Rejection(refused.code, refused.detail)
        if ask:
            headers = [*headers, *((name, answer) for name, (answer, _) in ask.items())]
        return headers, key, value

    def _asks(self, record: ForeignRecord) -> list[Ask]:
        if self.triggers.isdisjoint(record.headers):
            return [record.cancel()] if etf1.is_deletion(record) else []
        return [
            reader(record)
            for alias in self._aliases
            if not alias.triggers.isdisjoint(record.headers)
            for reader in alias.readers
        ]


def alias_reader(names: tuple[str, ...], *, has_recalls: bool = True) -> Translator:
    """A translator for the aliases named; their order means nothing. A cancel, or a recall where
    there are recalls, decides everything, and what the proxy wrote itself has our own headers.

    Raises ValueError with the nearest known name for one that is unknown.
    """
    for name in names:
        if name not in ALIASES:
            near = get_close_matches(name, KNOWN_ALIASES, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(KNOWN_ALIASES)}"
            raise ValueError(f"{name!r} is no header alias: {hint}")
    decisive = frozenset({CANCEL, HOP_FROM, *([RECALL] if has_recalls else [])})
    return Translator(tuple(alias for name, alias in ALIASES.items() if name in names), decisive)


def _one_request(asks: list[Ask]) -> Ask:
    """What all readers ask for together; Refused where two want different things."""
    if len(asks) == 1:
        return asks[0]
    found: dict[str, tuple[str, bytes | None, str]] = {}
    for ask in asks:
        for name, (value, source) in ask.items():
            about = "time" if name in TIMES else name
            before = found.setdefault(about, (name, value, source))
            if before[:2] != (name, value):
                raise _contradiction(about, before, (name, value, source))
    if CANCEL in found and len(found) > 1:
        other = next(one for about, one in found.items() if about != CANCEL)
        raise _contradiction(CANCEL, found[CANCEL], other)
    return {name: (value, source) for name, value, source in found.values()}


def _contradiction(
    about: str, one: tuple[str, bytes | None, str], other: tuple[str, bytes | None, str]
) -> Refused:
    asked = " and ".join(
        f"{source} asks for {name}: {shown(value)}" for name, value, source in (one, other)
    )
    return Refused(
        CONTRADICTION_CODES.get(about, "header-unreadable"),
        f"two header aliases contradict each other: {asked}; leave one out, or let our own "
        "header decide",
    )
