"""Dead letters and replays of them, as the API shows them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from proxy.admin.listing.record_content import content_of
from proxy.dead_letters.letter import Letter, Place
from proxy.dead_letters.listing import LetterPage, LetterSummary, summary_of
from proxy.dead_letters.marks import Mark
from proxy.dead_letters.replay_plan import ReplayCounts

Marks = Mapping[Place, Mark]


class LetterTopic(NamedTuple):
    """A topic of dead letters. group: whose, None for the proxy's own. offsets: how many it spans,
    None where the broker does not say."""

    name: str
    group: str | None
    offsets: int | None


class ListedPage(NamedTuple):
    """A page, and which of its letters have been replayed; None where there was no time to see."""

    page: LetterPage
    marks: Marks | None


class SeenLetter(NamedTuple):
    """One letter; its original's value where the letter has none and the ingress still has it."""

    letter: Letter
    mark: Mark | None
    original: bytes | None


def topics_json(topics: Sequence[LetterTopic]) -> dict[str, Any]:
    """The topics there are."""
    return {
        "topics": [
            {"topic": one.name, "group": one.group, "offsets": one.offsets} for one in topics
        ]
    }


def summary_json(one: LetterSummary, marks: Marks | None) -> dict[str, Any]:
    """One letter in a list."""
    key = None if one.key is None else one.key.decode("utf-8", "backslashreplace")
    return {
        "partition": one.place.partition,
        "offset": one.place.offset,
        "written": one.timestamp_ms,
        "reason": one.reason,
        "detail": one.detail,
        "target": one.target,
        "origin": one.origin,
        "first_origin": one.first_origin,
        "key": key,
        "bytes": one.value_bytes,
        "replayed": _mark_json((marks or {}).get(one.place)),
    }


def letter_json(topic: str, seen: SeenLetter) -> dict[str, Any]:
    """Everything about one."""
    letter = seen.letter
    is_in_ingress = letter.value is None and seen.original is not None
    value = seen.original if is_in_ingress else letter.value
    shown = summary_json(summary_of(letter), {} if seen.mark is None else {letter.place: seen.mark})
    del shown["key"], shown["bytes"]
    return {
        "topic": topic,
        **shown,
        "detail": letter.detail,
        "meaning": letter.meaning if letter.is_ours else None,
        "remedy": letter.remedy if letter.is_ours else None,
        "value_in_ingress": is_in_ingress,
        **content_of(letter.key, value, letter.headers),
    }


def counts_json(counts: ReplayCounts) -> dict[str, Any]:
    """What a replay has done, or a dry run would do."""
    return {
        "replayed": counts.replayable,
        "by_target": [
            {
                "target": target,
                "letters": one.letters,
                "first_due": one.first_due_ms,
                "last_due": one.last_due_ms,
            }
            for target, one in sorted(counts.by_target.items(), key=lambda t: -t[1].letters)
        ],
        "left": [
            {
                "reason": kind,
                "letters": one.letters,
                "detail": one.detail,
                "first": str(one.place),
            }
            for kind, one in sorted(counts.by_reason.items(), key=lambda r: -r[1].letters)
        ],
    }


def _mark_json(mark: Mark | None) -> dict[str, Any] | None:
    return None if mark is None else {"at": mark.at_ms, "as": mark.replayed_as}
