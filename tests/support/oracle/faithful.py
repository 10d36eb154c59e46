"""Detailed judge. It checks that deliveries equal the requests, byte for byte. Rewritten records
are compared with the producer's own record, not with the copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.support.oracle.asked import (
    Rules,
    asked_ident,
    asked_key,
    asked_ms,
    asked_topic,
    is_move,
    users,
)
from tests.support.oracle.committed_reader import Placed
from tests.support.oracle.ends import Ends, Outcome
from tests.support.oracle.lives import Life
from tests.support.records import Headers, Incoming

STAMPS = ["timer-origin", "timer-due"]
SAID_OF_LETTERS = ("timer-error", "timer-error-detail", "timer-origin")
SAID_ANEW = {
    "timer-deliver-at",
    "timer-delay",
    "timer-level",
    "timer-transaction",
    "timer-check-topic",
    "timer-check-immunity",
    "timer-first-origin",
}
SUPERSEDED = {"cancelled", "replaced"}


def wrong_life(ends: Ends, life: Life, rules: Rules) -> Iterator[str]:
    sent = ends.ingress[life.members[0]]
    due_ms = asked_ms(sent, rules)
    for member in life.members:
        if is_move(ends.ingress[member]):
            due_ms = asked_ms(ends.ingress[member], rules)
        if member != life.members[0]:
            yield from _wrong_successor(member, ends.ingress[member], life.members[0], sent, due_ms)
        for outcome in ends.outcomes.get(member, ()):
            yield from _wrong_outcome(ends, life, member, outcome, due_ms)
        for placed in ends.deliveries.get(member, ()):
            yield from _wrong_delivery(ends, life, member, placed, rules)


def _wrong_successor(
    place: str, record: Incoming, first: str, sent: Incoming, due_ms: int | None
) -> Iterator[str]:
    if (record.key, record.value) != (sent.key, sent.value):
        yield f"{place}: another key or value than {first}"
    if _kept(record.headers) != _kept(sent.headers):
        yield f"{place}: other headers than {first}: {record.headers}"
    said = record.header("timer-deliver-at") or b"nothing"
    if due_ms is not None and said != b"%d" % due_ms:
        yield f"{place} asks for {said!r}, {first} asked for {due_ms}"
    if record.header("timer-first-origin") != _first_origin(first, sent):
        yield f"{place} says that it began as {record.header('timer-first-origin')!r}: {first}"


def _wrong_outcome(
    ends: Ends, life: Life, place: str, outcome: Outcome, due_ms: int | None
) -> Iterator[str]:
    what = outcome["outcome"]
    if what in ("dead-lettered", "applied", "missed"):
        return
    is_judged = due_ms is not None and (outcome["due"] is not None or what not in SUPERSEDED)
    if is_judged and outcome["due"] != due_ms:
        yield f"{place} {what}, due {outcome['due']}: it asked for {due_ms}"
    ident = asked_ident(ends.ingress[place])
    if outcome["id"] != (ident and ident.decode("utf-8", "backslashreplace")):
        yield f"{place} {what} with the id {outcome['id']}, it has {ident!r}"
    if what == "replaced" and str(outcome.get("next_origin")) not in life.moved:
        yield from _wrong_next(ends, life, place, str(outcome.get("next_origin")))


def _wrong_next(ends: Ends, life: Life, place: str, after: str) -> Iterator[str]:
    record = ends.ingress.get(after)
    first = (life.superseded_by or "").rpartition("/")
    if record is None or record.header("timer-id") != life.ident:
        yield f"{place} was replaced by {after}, which has another id"
    elif after.rpartition("/")[0] != first[0] or record.offset < int(first[2] or 0):
        yield f"{place} was replaced by {after}, but {life.superseded_by} had replaced it"


def _wrong_delivery(
    ends: Ends, life: Life, origin: str, placed: Placed, rules: Rules
) -> Iterator[str]:
    got, sent = placed.record, ends.ingress[life.members[0]]
    purged_ms = ends.applied_ms.get(life.purged_by or "") if life.is_purged else None
    if purged_ms is not None and got.timestamp_ms > purged_ms + rules.transaction_ms:
        yield f"{origin} came after {life.purged_by} had purged it"
    yield from _early(ends, life, origin, got, life.due_ms(rules))
    if got.key != asked_key(sent):
        yield f"{origin}: another key"
    if got.value != sent.value:
        yield f"{origin}: another value"
    if users(got.headers) != users(sent.headers):
        yield f"{origin}: other headers: {got.headers}"
    first = _first_origin(life.members[0], sent) if len(life.members) > 1 else None
    first = first or sent.header("timer-first-origin")
    stamps = STAMPS if first is None else [*STAMPS, "timer-first-origin"]
    said = [name for name, _ in got.headers if name.startswith("timer-")]
    if said != stamps or got.header("timer-first-origin") != first:
        yield f"{origin}: other stamps: {got.headers}"
    if placed.topic != asked_topic(sent, rules):
        yield f"{origin}: in {placed.topic}, it asked for {asked_topic(sent, rules)}"


def _early(ends: Ends, life: Life, origin: str, got: Incoming, due_ms: int | None) -> Iterator[str]:
    stamped_ms = int(got.header("timer-due") or b"-1")
    if due_ms is not None and stamped_ms != due_ms:
        yield f"{origin} is stamped due {stamped_ms}, it asked for {due_ms}"
    again = ends.ingress[life.members[-1]].header("timer-hop-not-before")
    not_before_ms = max(stamped_ms, int(again or b"0"))
    if got.timestamp_ms < not_before_ms:
        yield f"{origin} came {not_before_ms - got.timestamp_ms} ms early"


def wrong_letters(ends: Ends) -> Iterator[str]:
    for origin, letters in ends.dead_letters.items():
        sent = ends.ingress.get(origin)
        for letter in letters if sent is not None else ():
            assert sent is not None
            outcomes = ends.outcomes.get(origin, [])
            if not _is_bare(letter, outcomes):
                is_cut = _says(outcomes, "; its dead letter has no value: ")
                yield from _wrong_letter(origin, sent, letter, is_cut=is_cut)


def _is_bare(letter: Incoming, outcomes: Sequence[Outcome]) -> bool:
    """Return whether a letter has only origin and reason, and its outcome says that nothing else
    fitted."""
    is_said = _says(outcomes, "; its dead letter has no key, ")
    return is_said and letter.key is None and letter.value is None and not _unsaid(letter.headers)


def _says(outcomes: Sequence[Outcome], what: str) -> bool:
    return any(what in str(one["detail"]) for one in outcomes)


def _wrong_letter(origin: str, sent: Incoming, letter: Incoming, *, is_cut: bool) -> Iterator[str]:
    value = None if is_cut else sent.value
    if letter.key != sent.key or letter.value != value:
        yield f"{origin}: its dead letter has another key or value"
    names = [name for name, _ in letter.headers]
    if any(names.count(name) != 1 for name in SAID_OF_LETTERS):
        yield f"{origin}: its dead letter does not say why: {letter.headers}"
    if _unsaid(letter.headers) != _unsaid(sent.headers):
        yield f"{origin}: its dead letter has other headers: {letter.headers}"


def _unsaid(headers: Headers) -> Headers:
    return [header for header in headers if header[0] not in SAID_OF_LETTERS]


def _kept(headers: Headers) -> Headers:
    return [h for h in headers if h[0] not in SAID_ANEW and not h[0].startswith("timer-hop-")]


def _first_origin(first: str, sent: Incoming) -> bytes:
    return sent.header("timer-first-origin") or first.encode()
