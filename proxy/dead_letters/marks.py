"""Marks: one record for each letter that was replayed, written in the same transaction. Pure.

Marks lie in a compacted topic of their own. In the dead-letter topic they would look like letters,
and among the outcomes like a second end of the origin. A consumer group's offset cannot say that
letters 17 and 19 were replayed and 18 was not. A mark names the letter by the id of the dead-letter
topic and the letter's place, so a recreated topic begins without marks.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from proxy.dead_letters.letter import Letter, Place
from proxy.protocol.bounded_json import read_object, whole
from proxy.protocol.headers import ORIGIN

FORGOTTEN_AT_ONCE: Final = 10_000
UNREADABLE: Final = "unreadable"
"""Stands for the ingress record in a mark whose value cannot be read."""
_KEY: Final = re.compile(r"([^ ]+) (\d{1,10})/(\d{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Mark:
    """When a letter was replayed, and as which ingress record (`topic/partition/offset`)."""

    at_ms: int
    replayed_as: str

    def value(self, letter: Letter) -> bytes:
        """Return the value of the mark's record."""
        fields = {"at": self.at_ms, "as": self.replayed_as, "origin": letter.text(ORIGIN)}
        return json.dumps(fields, separators=(",", ":")).encode()


def transactional_id(dead_letters: str) -> str:
    """Return the id that all replays from this topic share: a later one fences an earlier one."""
    return dead_letters + ".replay"


def mark_key(topic_id: str, place: Place) -> bytes:
    """Return the key that names one letter for good."""
    return f"{topic_id} {place}".encode()


def read_mark_key(raw: bytes | None) -> tuple[str, Place] | None:
    """Return the dead-letter topic's id and the place. None if it is no mark's key."""
    found = _KEY.fullmatch((raw or b"").decode("utf-8", "replace"))
    return None if found is None else (found[1], Place(int(found[2]), int(found[3])))


def read_mark(raw: bytes | None, timestamp_ms: int) -> Mark | None:
    """Return the mark in a record's value. None for a tombstone.

    A mark that cannot be read still says that the letter was replayed.
    """
    if raw is None:
        return None
    try:
        fields = read_object(raw)
        return Mark(whole(fields["at"]), str(fields["as"]))
    except (ValueError, KeyError):
        return Mark(timestamp_ms, UNREADABLE)


class Replayed:
    """Which letters were replayed: one bit for each offset within `spans`, by partition.

    `outdated` holds keys of marks whose letters are gone, at most FORGOTTEN_AT_ONCE.
    """

    def __init__(self, topic_id: str, spans: Mapping[int, range]) -> None:
        self._topic_id, self._spans = topic_id, spans
        self._bits = {p: bytearray((len(span) + 7) // 8) for p, span in spans.items()}
        self.outdated: set[bytes] = set()

    def note(self, raw_key: bytes | None, raw_value: bytes | None) -> None:
        """Take one record of the marks topic. Call in the order of writing."""
        key = read_mark_key(raw_key)
        if key is None or raw_key is None:
            return
        topic_id, place = key
        if raw_value is None:
            self.outdated.discard(raw_key)
        elif topic_id != self._topic_id or self._is_gone(place):
            if len(self.outdated) < FORGOTTEN_AT_ONCE:
                self.outdated.add(raw_key)
        else:
            self.add(place)

    def add(self, place: Place) -> None:
        if place.offset in self._span(place):
            index = place.offset - self._span(place).start
            self._bits[place.partition][index >> 3] |= 1 << (index & 7)

    def __contains__(self, place: object) -> bool:
        if not isinstance(place, Place) or place.offset not in self._span(place):
            return False
        index = place.offset - self._span(place).start
        return bool(self._bits[place.partition][index >> 3] & 1 << (index & 7))

    def _span(self, place: Place) -> range:
        return self._spans.get(place.partition, range(0))

    def _is_gone(self, place: Place) -> bool:
        span = self._spans.get(place.partition)
        return span is not None and place.offset < span.start
