"""What a person, or a program, sees of dead letters and of their replay."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from proxy.cli.terminal.output import (
    counted,
    say,
    say_json,
    say_table,
    shown_bytes,
    shown_time,
    text_of,
)
from proxy.dead_letters.letters.letter import Letter, Place
from proxy.dead_letters.letters.letter_summary import LetterSummary
from proxy.dead_letters.letters.marks import Mark
from proxy.dead_letters.letters.replay_counts import ReasonCount, ReplayCounts, TargetCount
from proxy.dead_letters.letters.replay_planner import ALREADY, Replayable, ReplayDecision
from proxy.dead_letters.letters.selection import Selection
from proxy.plain_text import plain
from proxy.records.headers import ERROR, ERROR_DETAIL, ORIGIN

NOT_THE_PROXYS = "not the proxy's"
SHOWN_AS_FACTS = (ERROR, ERROR_DETAIL, ORIGIN)
TEXT_SHOWN = 2_000
HEX_SHOWN = 512
HEX_ROW = 16
WHOLE = ("place", "written")
LAST = ("key", "origin", "replayed")
TARGETS_SHOWN = 10
TOGETHER_MS = 1_000


def say_summaries(
    shown: Sequence[LetterSummary], marks: Mapping[Place, Mark], group: str | None
) -> None:
    """One row a letter; on a narrow terminal cells fold, so that a place can be copied whole."""
    say_table(
        ["place", "written", "reason", "target" if group is None else "from", *LAST],
        [
            (
                str(one.place),
                shown_time(one.timestamp_ms),
                plain(one.reason) or NOT_THE_PROXYS,
                plain(one.target),
                shown_bytes(one.key),
                plain(one.origin),
                _replayed(marks.get(one.place)),
            )
            for one in shown
        ],
        WHOLE,
    )


def summary_json(one: LetterSummary, mark: Mark | None) -> dict[str, Any]:
    """The same for a program; times in epoch ms."""
    return {
        "partition": one.place.partition,
        "offset": one.place.offset,
        "written_ms": one.timestamp_ms,
        "reason": one.reason,
        "detail": one.detail,
        "target": one.target,
        "origin": one.origin,
        "first_origin": one.first_origin,
        "key": text_of(one.key),
        "value_bytes": one.value_bytes,
        **_mark_json(mark),
    }


def say_letter(letter: Letter, topic: str, mark: Mark | None, value_note: str | None) -> None:
    """Everything about one letter. `value_note` says why it has no value, where it has none."""
    say(f"{letter.place} of {topic}, written {shown_time(letter.timestamp_ms)}", "")
    for name, text in _facts(letter, mark):
        say(f"{name:<10}{text}")
    shown = SHOWN_AS_FACTS if letter.is_ours else ()
    own = [header for header in letter.headers if header[0] not in shown]
    for index, (name, value) in enumerate(own):
        say(f"{'headers' if index == 0 else '':<10}{plain(name)}: {_header(value)}")
    if letter.value is None:
        say(f"{'value':<10}{value_note or 'null'}")
    else:
        say(f"{'value':<10}{counted(len(letter.value), 'byte')}")
        for line in value_lines(letter.value):
            say(line)


def letter_json(letter: Letter, mark: Mark | None) -> dict[str, Any]:
    """Everything for a program; bytes that are no text are in `value_base64`."""
    return {
        "partition": letter.place.partition,
        "offset": letter.place.offset,
        "written_ms": letter.timestamp_ms,
        "reason": letter.reason,
        "meaning": None if letter.reason is None else letter.meaning,
        "remedy": None if letter.reason is None else letter.remedy,
        "detail": letter.detail,
        "target": letter.target,
        "origin": letter.text(ORIGIN),
        "first_origin": letter.first_origin,
        "headers": [[name, text_of(value)] for name, value in letter.headers],
        **_bytes_json("key", letter.key),
        **_bytes_json("value", letter.value),
        **_mark_json(mark),
    }


def value_lines(value: bytes) -> Iterator[str]:
    """The value as text where it is text, else in hex; cut, with a hint, where it is long."""
    text = _readable(value)
    if text is not None:
        yield from text[:TEXT_SHOWN].expandtabs().split("\n")
        left, unit = len(text) - TEXT_SHOWN, "characters"
    else:
        yield from _hex_rows(value[:HEX_SHOWN])
        left, unit = len(value) - HEX_SHOWN, "bytes"
    if left > 0:
        yield f"… {left:,} {unit} more; --raw writes all of it to stdout"


def say_counts(counts: ReplayCounts, now_ms: int, *, was_done: bool) -> None:
    """Where letters go or went, and why others are left."""
    total = counted(counts.replayable + counts.kept, "letter")
    head = (
        f"Replayed {counted(counts.replayable, 'letter')}"
        if was_done
        else f"Would replay {counts.replayable:,} of {total}"
    )
    say(f"{head}{':' if counts.by_target else '.'}")
    most = sorted(counts.by_target.items(), key=lambda one: -one[1].letters)
    for target, one in most[:TARGETS_SHOWN]:
        say(f"  {one.letters:,} to {target}, {_when(one, now_ms)}")
    if len(most) > TARGETS_SHOWN:
        say(f"  and to {len(most) - TARGETS_SHOWN:,} topics more")
    if counts.by_reason:
        say(f"{'Did' if was_done else 'Would'} not replay {counts.kept:,}:")
    for kind, left in sorted(counts.by_reason.items(), key=lambda one: -one[1].letters):
        say(f"  {left.letters:,} {_why(kind, left)}")


def say_decisions(decisions: Sequence[ReplayDecision], now_ms: int) -> None:
    """One row a letter: what would happen to it."""
    rows = []
    for decision in decisions:
        letter = decision.letter
        rows.append((str(letter.place), plain(letter.text(ORIGIN)), _planned(decision, now_ms)))
    say_table(["place", "origin", "what a replay would do"], rows, WHOLE)


def decision_json(decision: ReplayDecision, replayed_as: str | None = None) -> dict[str, Any]:
    """One letter of a replay, for a program."""
    letter = decision.letter
    named = {
        "partition": letter.place.partition,
        "offset": letter.place.offset,
        "origin": letter.text(ORIGIN),
    }
    if isinstance(decision, Replayable):
        replayable = {"target": decision.target, "due_ms": decision.due_ms}
        return {**named, "replay": True, **replayable, "replayed_as": replayed_as}
    return {**named, "replay": False, "why": decision.kind, "detail": decision.detail}


def say_counts_json(counts: ReplayCounts, *, was_done: bool, is_stopped: bool) -> None:
    """The last line of a replay, for a program."""
    say_json(
        {
            "replayed" if was_done else "would_replay": counts.replayable,
            "stayed": {kind: left.letters for kind, left in counts.by_reason.items()},
            "stopped": is_stopped,
        }
    )


def nothing_there(topic: str, selection: Selection) -> str:
    """The sentence where no letter is found."""
    if selection.is_all:
        return f"There are no dead letters in {topic}."
    return f"No dead letter in {topic} matches; `dead-letters list` without filters shows the last."


def _facts(letter: Letter, mark: Mark | None) -> Iterator[tuple[str, str]]:
    if letter.reason is None:
        yield "reason", "none: the proxy did not write it"
    else:
        yield "reason", f"{plain(letter.reason)}: {plain(letter.meaning)}"
        yield "detail", plain(letter.detail)
        yield "do", letter.remedy
    yield "origin", plain(letter.text(ORIGIN)) or "unknown"
    if letter.first_origin:
        yield "first", f"{plain(letter.first_origin)} (it has been sent in again since)"
    if letter.reason is not None:
        yield "replayed", _replayed(mark) or "no"
    yield "key", shown_bytes(letter.key)


def _replayed(mark: Mark | None) -> str:
    return f"{shown_time(mark.at_ms)} as {mark.replayed_as}" if mark else ""


def _mark_json(mark: Mark | None) -> dict[str, Any]:
    return {
        "replayed_ms": mark.at_ms if mark else None,
        "replayed_as": mark.replayed_as if mark else None,
    }


def _planned(decision: ReplayDecision, now_ms: int) -> str:
    if isinstance(decision, Replayable):
        return f"deliver to {decision.target}, {_due(decision.due_ms, now_ms)}"
    return f"nothing, {decision.kind}: {plain(decision.detail)}"


def _when(count: TargetCount, now_ms: int) -> str:
    first, last = _due(count.first_due_ms, now_ms), _due(count.last_due_ms, now_ms)
    if first == last or count.last_due_ms - count.first_due_ms < TOGETHER_MS:
        return first
    return f"the first {first}, the last {last}"


def _due(due_ms: int, now_ms: int) -> str:
    return "at once" if due_ms <= now_ms else f"at {shown_time(due_ms)}"


def _why(kind: str, left: ReasonCount) -> str:
    if kind == ALREADY:
        return "replayed already (--again replays once more)"
    others = f" and {left.letters - 1:,} more" if left.letters > 1 else ""
    return f"{kind}: {plain(left.detail)} ({left.place}{others})"


def _header(raw: bytes | None) -> str:
    text = "null" if raw is None else plain(text_of(raw))
    return text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}… ({len(raw or b''):,} bytes)"


def _readable(value: bytes) -> str | None:
    try:
        text = value.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        return None
    return text if all(c.isprintable() or c in "\n\t" for c in text) else None


def _hex_rows(value: bytes) -> Iterator[str]:
    for start in range(0, len(value), HEX_ROW):
        row = value[start : start + HEX_ROW]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        yield f"{start:08x}  {row.hex(' '):<{HEX_ROW * 3 - 1}}  {text}"


def _bytes_json(name: str, raw: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if raw is None else raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(raw or b"").decode()}
