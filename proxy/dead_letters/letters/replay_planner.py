"""What a replay does with a letter: where and when it arrives, or why it is not replayed.

The proxy's own RequestReader reads the edited headers, under the settings of whoever asks.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Final, TypeAlias

from proxy.dead_letters.letters.edits import Edits, is_stamp, requests_of
from proxy.dead_letters.letters.group_letter import GroupLetter
from proxy.dead_letters.letters.letter import Letter, Place
from proxy.records.body import Headers
from proxy.records.delivery import delivery_of
from proxy.records.headers import UNREADABLE
from proxy.records.position import LAST_OFFSET
from proxy.records.rejection import Rejection
from proxy.requests.parsed import Cancel, Decision, Purge, Recall, RejectedHop
from proxy.requests.request_reader import RequestReader

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
