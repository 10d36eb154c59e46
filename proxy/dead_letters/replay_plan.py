"""Which dead letters a replay sends, in which order and how fast. Pure."""

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from proxy.dead_letters.letters.edits import Edits, is_stamp, requests_of
from proxy.dead_letters.letters.group_letter import GroupLetter
from proxy.dead_letters.letters.letter import Letter, Place
from proxy.protocol.body import Headers, delivery_of
from proxy.protocol.headers import UNREADABLE
from proxy.protocol.outcomes import REASONS, Rejection
from proxy.protocol.parsed import Cancel, Decision, Purge, Recall, RejectedHop
from proxy.protocol.position import LAST_OFFSET
from proxy.protocol.request_reader import RequestReader
from proxy.protocol.times import parse_delay_ms, parse_instant_ms

# Which letters a person means: by reason, target, origin and time.

CLOCKS_APART_MS: Final = 60_000
"""Letters are stamped by the proxies' own clocks: how far out of order they may lie."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted; an empty part wants all. Its texts are shell patterns.

    `from_ms` is within, `to_ms` is not; both are compared with when the letter was written.
    """

    reasons: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out."""
        return self == Selection()

    def takes(self, letter: Letter) -> bool:
        """Whether this letter is meant."""
        return (
            (not self.reasons or _is_any(self.reasons, letter.reason))
            and (not self.targets or _is_any(self.targets, letter.target))
            and (not self.origins or self._is_from(letter))
            and (self.from_ms is None or letter.timestamp_ms >= self.from_ms)
            and (self.to_ms is None or letter.timestamp_ms < self.to_ms)
        )

    def _is_from(self, letter: Letter) -> bool:
        known = (str(letter.origin), letter.first_origin)
        return any(_is_any(self.origins, origin) for origin in known)


def read_reasons(texts: Iterable[str]) -> tuple[str, ...]:
    """Codes of `timer-error`. Raises ValueError for one that no letter can have."""
    for text in texts:
        if text not in REASONS:
            near = get_close_matches(text, REASONS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(REASONS)}"
            raise ValueError(f"{text!r} is no reason: {hint}")
    return tuple(texts)


def read_moment_ms(text: str, now_ms: int) -> int:
    """A time as people give it: RFC 3339 with a zone, epoch ms, or an age (`2h`: two hours ago).

    Raises ValueError with a sentence.
    """
    if not text.isdigit():
        try:
            return now_ms - parse_delay_ms(text)
        except ValueError:
            pass
    try:
        return parse_instant_ms(text)
    except ValueError as error:
        raise ValueError(f"{error}; or an age (30m 2h 7d)") from None


def _is_any(patterns: Iterable[str], text: str | None) -> bool:
    return text is not None and any(fnmatchcase(text, pattern) for pattern in patterns)


# How fast a replay may go. Time is an argument.

_RATE: Final = re.compile(r"([1-9]\d{0,8})/(s|m|h)", re.ASCII)
_MS_PER: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}
BURST_MS: Final = 250
"""What falls into so much time may go out at once."""


@dataclass(frozen=True, slots=True)
class Rate:
    """So many letters in so many milliseconds."""

    letters: int
    per_ms: int

    def at_once(self, most: int) -> int:
        """How many to send together, from 1 to `most`."""
        return max(1, min(most, self.letters * BURST_MS // self.per_ms))

    def wait_ms(self, sent: int, since_ms: int) -> int:
        """How long to wait, `since_ms` after the start, before the next when `sent` have gone."""
        due_ms = -(-sent * self.per_ms // self.letters)
        return max(0, due_ms - since_ms)


def read_rate(text: str) -> Rate:
    """`100/s`, `30/m` or `5/h`. Raises ValueError with a sentence."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no rate: write letters per second, minute or hour (100/s)")
    return Rate(int(found[1]), _MS_PER[found[2]])


# What a replay does with a letter: where and when it arrives, or why it is not replayed.
#
# The proxy's own RequestReader reads the edited headers, under the settings of whoever asks.

NOT_OURS: Final = "not-a-dead-letter"
ALREADY: Final = "already-replayed"
GONE: Final = "original-gone"
A_CONTROL: Final = "(control record)"
"""In place of a target: a cancel, or a decision about a half message."""
NO_ACTION_NEEDED: Final = frozenset({NOT_OURS, ALREADY})
"""Kinds of `NotReplayed` that nobody has to do anything about."""


@dataclass(frozen=True, slots=True)
class Replayable:
    """A letter and the ingress record it becomes; `partition` is the ingress's, -1 by the key."""

    letter: Letter
    target: str
    due_ms: int
    partition: int
    value: bytes | None
    headers: Headers

    @property
    def size_bytes(self) -> int:
        return len(self.letter.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class NotReplayed:
    """A letter that is not replayed: one of the kinds above or a code of `rejection.REASONS`."""

    letter: Letter
    kind: str
    detail: str


ReplayDecision: TypeAlias = Replayable | NotReplayed
Original: TypeAlias = tuple[bytes | None, bytes | None, Headers]
"""Key, value and headers of an ingress record."""


@dataclass(frozen=True, slots=True)
class ReplayPlanner:
    """Decides about each letter of one replay.

    `original_of` reads an ingress record again, None when it is gone. `refusal` says what the
    broker would refuse now of a target and a partition (-1: any). `ingress_partitions` is how many
    the ingress topic `ingress` has. Letters of a `group` go to its consumers.
    """

    reader: RequestReader
    edits: Edits
    replayed: Container[Place]
    original_of: Callable[[Letter], Original | None]
    refusal: Callable[[str, int], Rejection | None]
    ingress: str
    ingress_partitions: int
    group: str | None = None

    def decide(self, letter: Letter, now_ms: int) -> ReplayDecision:
        """What becomes of this letter if it is sent in again now."""
        if not letter.is_ours:
            return NotReplayed(letter, NOT_OURS, "the proxy did not write it")
        if letter.place in self.replayed:
            return NotReplayed(letter, ALREADY, "--again replays it once more")
        value = letter.value
        if letter.lacks_value:
            original = self.original_of(letter)
            if original is None or not is_original(letter, original):
                return NotReplayed(letter, GONE, _gone(letter))
            value = original[1]
        return self._decide_requests(letter, value, now_ms)

    def _decide_requests(self, letter: Letter, value: bytes | None, now_ms: int) -> ReplayDecision:
        headers, partition = self._requests_of(letter), self._partition_of(letter)
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

    def _requests_of(self, letter: Letter) -> Headers:
        if self.group is not None and isinstance(letter, GroupLetter):
            return letter.requests(self.edits, self.group)
        return requests_of(letter, letter.headers, self.edits)

    def _partition_of(self, letter: Letter) -> int:
        """Where it came from: an id means something within its own ingress partition only."""
        origin = letter.origin
        if origin and origin.topic == self.ingress and origin.partition < self.ingress_partitions:
            return origin.partition
        return -1


def is_original(letter: Letter, original: Original) -> bool:
    """Whether this is the record that the letter was made of, and not another in its place."""
    key, _value, headers = original
    return key == letter.key and _own(headers) == _own(letter.headers)


def _own(headers: Headers) -> Headers:
    return [header for header in headers if not is_stamp(header[0]) and header[0] != UNREADABLE]


def _gone(letter: Letter) -> str:
    where = letter.origin or "nowhere: the letter names no origin"
    if letter.key is None and not _own(letter.headers):
        return (
            "the letter has neither key nor headers, nor a value: read the original in the ingress "
            f"({where}) and send it again"
        )
    return (
        "the letter has no value, and the original is no longer in the ingress "
        f"({where}): its producer has to send it again"
    )


# What a replay does or would do, counted: by target, and by reason why a letter is left.

TOLD_APART: Final = 1_000
OTHERS: Final = "other topics"


@dataclass(slots=True)
class TargetCount:
    """Letters for one target, and the times between which they are due."""

    first_due_ms: int
    last_due_ms: int
    letters: int = 0

    def note(self, due_ms: int) -> None:
        self.letters += 1
        self.first_due_ms = min(self.first_due_ms, due_ms)
        self.last_due_ms = max(self.last_due_ms, due_ms)


@dataclass(slots=True)
class ReasonCount:
    """Letters that are not replayed for one reason; place and detail are the first one's."""

    place: Place
    detail: str
    letters: int = 0


@dataclass(slots=True)
class ReplayCounts:
    """Letters by target and by reason; TOLD_APART targets at most are told apart."""

    by_target: dict[str, TargetCount] = field(default_factory=dict)
    by_reason: dict[str, ReasonCount] = field(default_factory=dict)

    def note(self, decision: ReplayDecision) -> None:
        """One letter more."""
        if isinstance(decision, Replayable):
            many = len(self.by_target) >= TOLD_APART and decision.target not in self.by_target
            name, due_ms = OTHERS if many else decision.target, decision.due_ms
            self.by_target.setdefault(name, TargetCount(due_ms, due_ms)).note(due_ms)
        else:
            first = ReasonCount(decision.letter.place, decision.detail)
            self.by_reason.setdefault(decision.kind, first).letters += 1

    @property
    def replayable(self) -> int:
        """How many letters can be replayed, or have been."""
        return sum(one.letters for one in self.by_target.values())

    @property
    def kept(self) -> int:
        """How many are left where they are."""
        return sum(one.letters for one in self.by_reason.values())

    @property
    def needs_action(self) -> bool:
        """Whether a letter is left that somebody has to do something about."""
        return not self.by_reason.keys() <= NO_ACTION_NEEDED
