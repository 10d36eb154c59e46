"""The plan of a replay: letters, headers, targets, rate and marks. Pure."""

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from proxy.dead_letters.letter import Letter, Place
from proxy.protocol import headers as header
from proxy.protocol.body import Headers, delivery_of
from proxy.protocol.bounded_json import read_object, whole
from proxy.protocol.outcomes import REASONS, Rejection
from proxy.protocol.parsed import Cancel, Decision, Purge, Recall, RejectedHop
from proxy.protocol.position import LAST_OFFSET
from proxy.protocol.request_reader import RequestReader
from proxy.protocol.times import parse_delay_ms, parse_instant_ms

CLOCKS_APART_MS: Final = 60_000
"""Letters of a partition may be out of order by this much, because proxies' clocks may differ."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Filters of letters: shell patterns, and a time from `from_ms` to before `to_ms`."""

    reasons: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def is_all(self) -> bool:
        return self == Selection()

    def takes(self, letter: Letter) -> bool:
        origins = (str(letter.origin), letter.first_origin)
        return (
            _fits(self.reasons, letter.reason)
            and _fits(self.targets, letter.target)
            and any(_fits(self.origins, origin) for origin in origins)
            and (self.from_ms is None or letter.timestamp_ms >= self.from_ms)
            and (self.to_ms is None or letter.timestamp_ms < self.to_ms)
        )


def _fits(patterns: Sequence[str], text: str | None) -> bool:
    if not patterns:
        return True
    return text is not None and any(fnmatchcase(text, pattern) for pattern in patterns)


def read_reasons(texts: Iterable[str]) -> tuple[str, ...]:
    """Check codes of `timer-error`. Raises ValueError if a code does not exist."""
    for text in texts:
        if text not in REASONS:
            near = get_close_matches(text, REASONS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"reasons are {', '.join(REASONS)}"
            raise ValueError(f"{text!r} is not a reason: {hint}")
    return tuple(texts)


def read_moment_ms(text: str, now_ms: int) -> int:
    """Parse RFC 3339 with a zone, epoch ms, or an age (`2h`). Raises ValueError with a sentence."""
    if not text.isdigit():
        try:
            return now_ms - parse_delay_ms(text)
        except ValueError:
            pass
    try:
        return parse_instant_ms(text)
    except ValueError as error:
        raise ValueError(f"{error}; or an age (30m 2h 7d)") from None


_RATE: Final = re.compile(r"([1-9]\d{0,8})/(s|m|h)", re.ASCII)
_MS_PER: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}
BURST_MS: Final = 250
"""The letters that the rate allows in this time may be sent together."""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `letters` in `per_ms` milliseconds."""

    letters: int
    per_ms: int

    def at_once(self, most: int) -> int:
        return max(1, min(most, self.letters * BURST_MS // self.per_ms))

    def wait_ms(self, sent: int, since_ms: int) -> int:
        """Return the time to wait in ms after `sent` letters were sent in `since_ms`."""
        due_ms = -(-sent * self.per_ms // self.letters)
        return max(0, due_ms - since_ms)


def read_rate(text: str) -> Rate:
    """Parse `100/s`, `30/m` or `5/h`. Raises ValueError with a sentence."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is not a rate: write letters per second, minute or hour (100/s)"
        )
    return Rate(int(found[1]), _MS_PER[found[2]])


HOP_PREFIX: Final = "timer-hop-"
"""The proxy's own headers in rewritten records have names that begin with this prefix."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Headers to set, and headers to remove."""

    values: dict[str, bytes] = field(default_factory=dict)
    taken_out: frozenset[str] = frozenset()

    def applied(self, headers: Headers) -> Headers:
        """Return the edited headers. A set header keeps its position and comes once."""
        edited: Headers = []
        pending = dict(self.values)
        for name, value in headers:
            if name in self.values:
                if name in pending:
                    edited.append((name, pending.pop(name)))
            elif name not in self.taken_out:
                edited.append((name, value))
        return [*edited, *pending.items()]


def read_edits(to_set: Sequence[str], to_unset: Iterable[str]) -> Edits:
    """Parse `name=value` for each header to set, and `name` for each header to remove. Raises
    ValueError with a sentence."""
    values: dict[str, bytes] = {}
    for text in to_set:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise ValueError(
                f"{text!r} does not set a header: write name=value (timer-topic=orders)"
            )
        if name in values:
            raise ValueError(
                f"the header {name} is set twice: {values[name].decode()!r}, {value!r}"
            )
        values[name] = value.encode()
    taken_out = frozenset(to_unset)
    for name in [*values, *taken_out]:
        if "=" in name:
            raise ValueError(f"{name!r} is not a header name: --unset takes only the name")
        if is_stamp(name):
            raise ValueError(
                f"{name} is written by the proxy and cannot be changed. A replay drops all such "
                f"headers except {header.FIRST_ORIGIN}"
            )
    if both := sorted(taken_out & values.keys()):
        raise ValueError(f"the header {both[0]} is both set and unset: give only one")
    return Edits(values, taken_out)


def is_stamp(name: str) -> bool:
    """Whether only the proxy writes this header."""
    return name in header.STAMPS or name in header.PURGES or name.startswith(HOP_PREFIX)


def requests_of(letter: Letter, edits: Edits, group: str | None = None) -> Headers:
    """Return the headers of the ingress record that a letter becomes. The proxy's own headers are
    left out. Only the first origin is kept, if the letter is not a group's.

    A letter of a group goes back to the group immediately, as if the group had never failed to
    handle the record. The edits may change delay and topic.
    """
    own = [one for one in letter.headers if not is_stamp(one[0])]
    if group is not None:
        asked: Headers = [
            (header.RETRY_GROUP, group.encode()),
            (header.ATTEMPT, b"0"),
            (header.DELAY, b"0"),
        ]
        dropped = {header.RETRY_ATTEMPT, header.RETRY_EXCEPTION}
        return edits.applied([*asked, *(one for one in own if one[0] not in dropped)])
    first = letter.first_origin or letter.text(header.ORIGIN)
    stamp: Headers = [(header.FIRST_ORIGIN, first.encode())] if first else []
    return [*edits.applied(own), *stamp]


NOT_OURS: Final = "not-a-dead-letter"
ALREADY: Final = "already-replayed"
GONE: Final = "original-gone"
A_CONTROL: Final = "(control record)"
"""Stands for the target of a control record, which has no target."""
NO_ACTION_NEEDED: Final = frozenset({NOT_OURS, ALREADY})


@dataclass(frozen=True, slots=True)
class Replayable:
    """A letter, and the ingress record that it becomes."""

    letter: Letter
    target: str
    due_ms: int
    partition: int
    """-1: the key decides."""
    value: bytes | None
    headers: Headers

    @property
    def size_bytes(self) -> int:
        return len(self.letter.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class NotReplayed:
    """A letter that is not replayed. `kind` is NOT_OURS, ALREADY, GONE or a code of REASONS."""

    letter: Letter
    kind: str
    detail: str


ReplayDecision: TypeAlias = Replayable | NotReplayed
Original: TypeAlias = tuple[bytes | None, bytes | None, Headers]
"""Key, value and headers of an ingress record."""


@dataclass(frozen=True, slots=True)
class ReplayPlanner:
    """Decides about each letter of a replay."""

    reader: RequestReader
    """Reads the edited headers with this program's settings. The running proxy's may differ."""
    edits: Edits
    replayed: Container[Place]
    original_of: Callable[[Letter], Original | None]
    refusal: Callable[[str, int], Rejection | None]
    """Returns why the broker would refuse a delivery to a target and a partition (-1: any)."""
    ingress: str
    ingress_partitions: int
    group: str | None = None

    def decide(self, letter: Letter, now_ms: int) -> ReplayDecision:
        if not letter.is_ours:
            return NotReplayed(letter, NOT_OURS, "the proxy did not write it")
        if letter.place in self.replayed:
            return NotReplayed(letter, ALREADY, "--again replays it again")
        value = letter.value
        if letter.lacks_value:
            original = self.original_of(letter)
            if original is None or not is_original(letter, original):
                return NotReplayed(letter, GONE, _gone(letter))
            value = original[1]
        return self._decide_requests(letter, value, now_ms)

    def _decide_requests(self, letter: Letter, value: bytes | None, now_ms: int) -> ReplayDecision:
        headers, partition = requests_of(letter, self.edits, self.group), self._partition_of(letter)
        parsed = self.reader.read(
            headers, letter.key, value, now_ms, max(partition, 0), LAST_OFFSET
        )
        if isinstance(parsed, RejectedHop):
            parsed = parsed.rejection
        if isinstance(parsed, Rejection):
            return NotReplayed(letter, parsed.code, parsed.detail)
        if isinstance(parsed, Cancel | Recall | Purge | Decision):
            return Replayable(letter, A_CONTROL, now_ms, partition, value, headers)
        asked = delivery_of(parsed.entry)
        if refusal := self.refusal(asked.target, asked.partition):
            return NotReplayed(letter, refusal.code, refusal.detail)
        return Replayable(letter, asked.target, asked.due_ms, partition, value, headers)

    def _partition_of(self, letter: Letter) -> int:
        """Return the ingress partition of the original, because an id is valid only within its
        partition. Return -1 if the key must decide."""
        origin = letter.origin
        if origin and origin.topic == self.ingress and origin.partition < self.ingress_partitions:
            return origin.partition
        return -1


def is_original(letter: Letter, original: Original) -> bool:
    """Whether the letter was made from this record. If the ingress topic was created again, another
    record may be at the original's place."""
    key, _value, headers = original
    return key == letter.key and _own(headers) == _own(letter.headers)


def _own(headers: Headers) -> Headers:
    return [one for one in headers if not is_stamp(one[0]) and one[0] != header.UNREADABLE]


def _gone(letter: Letter) -> str:
    where = letter.origin or "unknown place: the letter names no origin"
    if letter.key is None and not _own(letter.headers):
        return (
            "the letter has no key, no headers and no value: read the original in the ingress "
            f"({where}) and send it again"
        )
    return (
        f"the letter has no value, and the original is no longer in the ingress ({where}): its "
        "producer must send it again"
    )


MOST_TARGETS_COUNTED: Final = 1_000
OTHERS: Final = "other topics"


@dataclass(slots=True)
class TargetCount:
    """Number of letters for one target, with their earliest and their latest due."""

    first_due_ms: int
    last_due_ms: int
    letters: int = 0

    def note(self, due_ms: int) -> None:
        self.letters += 1
        self.first_due_ms = min(self.first_due_ms, due_ms)
        self.last_due_ms = max(self.last_due_ms, due_ms)


@dataclass(slots=True)
class ReasonCount:
    """Number of letters that are not replayed, for the same reason. `place` and `detail` belong to
    the first of these letters."""

    place: Place
    detail: str
    letters: int = 0


@dataclass(slots=True)
class ReplayCounts:
    """Numbers of replayable letters by target, and of other letters by reason.

    After MOST_TARGETS_COUNTED targets, all further targets are counted as OTHERS."""

    by_target: dict[str, TargetCount] = field(default_factory=dict)
    by_reason: dict[str, ReasonCount] = field(default_factory=dict)

    def note(self, decision: ReplayDecision) -> None:
        if isinstance(decision, Replayable):
            many = (
                len(self.by_target) >= MOST_TARGETS_COUNTED
                and decision.target not in self.by_target
            )
            name, due_ms = OTHERS if many else decision.target, decision.due_ms
            self.by_target.setdefault(name, TargetCount(due_ms, due_ms)).note(due_ms)
        else:
            first = ReasonCount(decision.letter.place, decision.detail)
            self.by_reason.setdefault(decision.kind, first).letters += 1

    @property
    def replayable(self) -> int:
        return sum(one.letters for one in self.by_target.values())

    @property
    def kept(self) -> int:
        return sum(one.letters for one in self.by_reason.values())

    @property
    def needs_action(self) -> bool:
        return not self.by_reason.keys() <= NO_ACTION_NEEDED


# A mark says that a letter was replayed. The same transaction writes the mark and the new ingress
# record. Marks have a compacted topic of their own. In the dead-letter topic marks would look
# like letters, and in the outcomes topic like a second end of a record. Offsets of a consumer group
# cannot name single letters. A mark names the dead-letter topic by its id, so old marks do not
# apply if the topic is created again.

FORGOTTEN_AT_ONCE: Final = 10_000
UNREADABLE_MARK: Final = "unreadable"
"""Stands for the place of the new ingress record in a mark that cannot be parsed."""
_MARK_KEY: Final = re.compile(r"([^ ]+) (\d{1,10})/(\d{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Mark:
    """When a letter was replayed, and as which record."""

    at_ms: int
    replayed_as: str

    def value(self, letter: Letter) -> bytes:
        fields = {"at": self.at_ms, "as": self.replayed_as, "origin": letter.text(header.ORIGIN)}
        return json.dumps(fields, separators=(",", ":")).encode()


def mark_key(topic_id: str, place: Place) -> bytes:
    """Return the key of a letter's mark."""
    return f"{topic_id} {place}".encode()


def read_mark_key(raw: bytes | None) -> tuple[str, Place] | None:
    """Return the dead-letter topic's id and the letter's place, or None for another key."""
    found = _MARK_KEY.fullmatch((raw or b"").decode("utf-8", "replace"))
    return None if found is None else (found[1], Place(int(found[2]), int(found[3])))


def read_mark(raw: bytes | None, timestamp_ms: int) -> Mark | None:
    """Return the mark in a record's value. A null value, which removes a mark, gives None. A value
    that cannot be parsed is a mark, too."""
    if raw is None:
        return None
    try:
        fields = read_object(raw)
        return Mark(whole(fields["at"]), str(fields["as"]))
    except (ValueError, KeyError):
        return Mark(timestamp_ms, UNREADABLE_MARK)


class Replayed:
    """The set of replayed letters, with one bit for each offset of `spans`. `outdated` holds the
    keys of at most FORGOTTEN_AT_ONCE marks whose letters no longer exist."""

    def __init__(self, topic_id: str, spans: Mapping[int, range]) -> None:
        self._topic_id, self._spans = topic_id, spans
        self._bits = {p: bytearray((len(span) + 7) // 8) for p, span in spans.items()}
        self.outdated: set[bytes] = set()

    def note(self, raw_key: bytes | None, raw_value: bytes | None) -> None:
        """Take the next record of the marks topic. Records must come in the order of offsets."""
        key = read_mark_key(raw_key)
        if key is None or raw_key is None:
            return
        topic_id, place = key
        if raw_value is None:
            self.outdated.discard(raw_key)
        elif topic_id != self._topic_id or place.offset < self._span(place).start:
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
