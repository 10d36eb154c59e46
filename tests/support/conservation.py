"""The judge: every ingress record ended exactly once, none early, its bytes unchanged.

It looks at the topics alone (read_committed) and knows nothing of the proxy's code: what a record
asked for is worked out here anew, from the two plainest headers.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tests.support.committed_reader import CommittedReader, Placed
from tests.support.records import Headers, Incoming

SHOWN = 10
DELIVERED = "delivered"
STAMPS = ("timer-origin", "timer-due")
FIRST_ORIGIN = "timer-first-origin"


class Topics(Protocol):
    """The topics of one installation of the proxy."""

    @property
    def bootstrap(self) -> str: ...
    @property
    def ingress(self) -> str: ...
    @property
    def dead_letters(self) -> str: ...
    @property
    def outcomes(self) -> str: ...
    @property
    def targets(self) -> Sequence[str]: ...


@dataclass(slots=True)
class Ends:
    """What became of the ingress records, by origin (`topic/partition/offset`)."""

    ingress: dict[str, Incoming] = field(default_factory=dict)
    deliveries: dict[str, list[Placed]] = field(default_factory=lambda: defaultdict(list))
    outcomes: dict[str, list[dict[str, object]]] = field(default_factory=lambda: defaultdict(list))
    dead_letters: dict[str, list[Incoming]] = field(default_factory=lambda: defaultdict(list))

    @property
    def counts(self) -> Counter[str]:
        """How many ended in which way: `delivered`, or the outcome."""
        kinds = [str(o["outcome"]) for found in self.outcomes.values() for o in found]
        return Counter({DELIVERED: sum(map(len, self.deliveries.values())), **Counter(kinds)})

    @property
    def lateness_ms(self) -> list[int]:
        """Broker's append time at the target minus due, of every delivery."""
        placed = [p for found in self.deliveries.values() for p in found]
        return [p.record.timestamp_ms - int(p.record.header("timer-due") or b"0") for p in placed]


def ends_so_far(topics: Topics) -> int:
    """How many deliveries and outcomes are committed by now."""
    with CommittedReader(topics.bootstrap) as counter:
        return counter.count([*topics.targets, topics.outcomes])


def await_ends(topics: Topics, records: int | None, timeout_s: float) -> None:
    """Return when so many ingress records (None: all there are) have ended; fail when not."""
    deadline = time.monotonic() + timeout_s
    with CommittedReader(topics.bootstrap) as counter:
        wanted = counter.count([topics.ingress]) if records is None else records
        ended = counter.count([*topics.targets, topics.outcomes], wanted, deadline)
    assert ended >= wanted, f"{ended} of {wanted} records had ended after {timeout_s:g} s"


def judge(topics: Topics) -> Ends:
    """Read all topics and hold them against each other; the ends, for more to be asked of them."""
    ends = _read(topics)
    wrong = [*_not_conserved(ends), *_early(ends), *_changed(ends)]
    shown = "\n".join(wrong[:SHOWN])
    assert not wrong, f"{len(wrong)} violations, {dict(ends.counts)}, the first:\n{shown}"
    return ends


def _read(topics: Topics) -> Ends:
    ends = Ends()
    with CommittedReader(topics.bootstrap) as reader:
        for placed in reader.read([topics.ingress]):
            ends.ingress[placed.place] = placed.record
        for placed in reader.read(topics.targets):
            ends.deliveries[_origin(placed.record)].append(placed)
        for placed in reader.read([topics.outcomes]):
            outcome = json.loads(placed.record.value or b"")
            assert placed.record.key == outcome["origin"].encode(), outcome
            ends.outcomes[outcome["origin"]].append(outcome)
        for placed in reader.read([topics.dead_letters]):
            ends.dead_letters[_origin(placed.record)].append(placed.record)
    return ends


def _origin(record: Incoming) -> str:
    return (record.header("timer-origin") or b"without an origin").decode()


def _not_conserved(ends: Ends) -> Iterator[str]:
    for origin in ends.ingress:
        found = len(ends.deliveries.get(origin, ())) + len(ends.outcomes.get(origin, ()))
        if found != 1:
            yield f"{origin} has {found} ends"
    for origin in {*ends.deliveries, *ends.outcomes, *ends.dead_letters} - set(ends.ingress):
        yield f"{origin} was never in the ingress"
    for origin in {*ends.outcomes, *ends.dead_letters}:
        said = [o["outcome"] for o in ends.outcomes.get(origin, ())].count("dead-lettered")
        buried = len(ends.dead_letters.get(origin, ()))
        if said != buried:
            yield f"{origin}: {said} outcomes say dead-lettered, {buried} dead letters"


def _early(ends: Ends) -> Iterator[str]:
    for origin, found in ends.deliveries.items():
        for placed in found:
            due_ms = int(placed.record.header("timer-due") or b"-1")
            asked_ms = _asked_ms(ends.ingress.get(origin))
            if asked_ms is not None and due_ms != asked_ms:
                yield f"{origin} is stamped due {due_ms}, it asked for {asked_ms}"
            if placed.record.timestamp_ms < due_ms:
                yield f"{origin} came {due_ms - placed.record.timestamp_ms} ms early"


def _asked_ms(record: Incoming | None) -> int | None:
    """When the record wants to fire, where it says so in plain milliseconds."""
    if record is None:
        return None
    instant, delay = record.header("timer-deliver-at"), record.header("timer-delay")
    if instant is not None:
        return int(instant) if instant.isdigit() else None
    return record.timestamp_ms + int(delay) if delay is not None and delay.isdigit() else None


def _changed(ends: Ends) -> Iterator[str]:
    for origin, found in ends.deliveries.items():
        for placed in found:
            yield from _changed_delivery(origin, ends.ingress.get(origin), placed)
    for origin, letters in ends.dead_letters.items():
        for letter in letters:
            yield from _changed_letter(origin, ends.ingress.get(origin), letter)


def _changed_delivery(origin: str, sent: Incoming | None, placed: Placed) -> Iterator[str]:
    if sent is None:
        return
    got = placed.record
    asked_key = [value for name, value in sent.headers if name == "timer-key"]
    if got.key != (asked_key[-1] if asked_key else sent.key):
        yield f"{origin}: another key"
    if got.value != sent.value:
        yield f"{origin}: another value"
    if _users(got.headers) != _users(sent.headers):
        yield f"{origin}: other headers: {got.headers}"
    stamps = [*STAMPS, FIRST_ORIGIN] if sent.header(FIRST_ORIGIN) else [*STAMPS]
    if [name for name, _ in got.headers if name.startswith("timer-")] != stamps:
        yield f"{origin}: other stamps: {got.headers}"
    if placed.topic != (sent.header("timer-topic") or b"").decode():
        yield f"{origin}: in {placed.topic}, it asked for {sent.header('timer-topic')!r}"


def _changed_letter(origin: str, sent: Incoming | None, letter: Incoming) -> Iterator[str]:
    if sent is None:
        return
    if letter.key != sent.key or letter.value not in (sent.value, None):
        yield f"{origin}: its dead letter has another key or value"
    said = ("timer-error", "timer-error-detail", "timer-origin")
    if [h for h in letter.headers if h[0] not in said] != [
        h for h in sent.headers if h[0] not in said
    ]:
        yield f"{origin}: its dead letter has other headers: {letter.headers}"


def _users(headers: Headers) -> Headers:
    return [header for header in headers if not header[0].startswith("timer-")]
