"""What a person, or a program, sees of dead letters and of their replay."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from proxy.cli.terminal.output import say, say_json, say_table, shown_bytes, shown_time
from proxy.dead_letters.letters.letter import Letter, Place
from proxy.dead_letters.letters.marks import Mark
from proxy.dead_letters.letters.outlines import Outline
from proxy.dead_letters.letters.prospects import ALREADY, Goes, Prospect
from proxy.dead_letters.letters.remedies import meaning, remedy
from proxy.dead_letters.letters.selection import Selection
from proxy.dead_letters.letters.tally import Going, Staying, Tally
from proxy.records.headers import ERROR, ERROR_DETAIL, ORIGIN

STRANGER = "not the proxy's"
SHOWN_AS_FACTS = (ERROR, ERROR_DETAIL, ORIGIN)
TEXT_SHOWN = 2_000
HEX_SHOWN = 512
HEX_ROW = 16
WHOLE = ("place", "written")
TARGETS_SHOWN = 10
TOGETHER_MS = 1_000


def say_outlines(shown: Sequence[Outline], marks: Mapping[Place, Mark]) -> None:
    """One row a letter; on a narrow terminal cells fold, so that a place can be copied whole."""
    _say_folded(
        ["place", "written", "reason", "target", "key", "origin", "replayed"],
        [
            (
                str(one.place),
                shown_time(one.timestamp_ms),
                one.reason or STRANGER,
                _plain(one.target),
                shown_bytes(one.key),
                _plain(one.origin),
                _replayed(marks.get(one.place)),
            )
            for one in shown
        ],
    )


def outline_json(one: Outline, mark: Mark | None) -> dict[str, Any]:
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
        "key": _text(one.key),
        "value_bytes": one.value_bytes,
        **_mark_json(mark),
    }


def say_letter(letter: Letter, topic: str, mark: Mark | None, value_note: str | None) -> None:
    """Everything about one letter. `value_note` says why it has no value, where it has none."""
    say(f"{letter.place} of {topic}, written {shown_time(letter.timestamp_ms)}\n")
    for name, text in _facts(letter, mark):
        say(f"{name:<10}{text}")
    told = SHOWN_AS_FACTS if letter.is_ours else ()
    own = [header for header in letter.headers if header[0] not in told]
    for index, (name, value) in enumerate(own):
        say(f"{'headers' if index == 0 else '':<10}{_plain(name)}: {_header(value)}")
    if letter.value is None:
        say(f"{'value':<10}{value_note or 'null'}")
    else:
        say(f"{'value':<10}{_bytes(len(letter.value))}")
        for line in value_lines(letter.value):
            say(line)


def letter_json(letter: Letter, mark: Mark | None) -> dict[str, Any]:
    """Everything for a program; bytes that are no text are in `value_base64`."""
    return {
        "partition": letter.place.partition,
        "offset": letter.place.offset,
        "written_ms": letter.timestamp_ms,
        "reason": letter.reason,
        "meaning": None if letter.reason is None else meaning(letter.reason),
        "remedy": None if letter.reason is None else remedy(letter.reason),
        "detail": letter.detail,
        "target": letter.target,
        "origin": letter.text(ORIGIN),
        "first_origin": letter.first_origin,
        "headers": [[name, _text(value)] for name, value in letter.headers],
        **_bytes_json("key", letter.key),
        **_bytes_json("value", letter.value),
        **_mark_json(mark),
    }


def value_lines(value: bytes) -> Iterator[str]:
    """The value as text where it is text, else in hex; cut, with a hint, where it is long."""
    text = _readable(value)
    if text is not None:
        yield text[:TEXT_SHOWN]
        left, unit = len(text) - TEXT_SHOWN, "characters"
    else:
        yield from _hex_rows(value[:HEX_SHOWN])
        left, unit = len(value) - HEX_SHOWN, "bytes"
    if left > 0:
        yield f"… {left:,} {unit} more; --raw writes all of it to stdout"


def say_tally(tally: Tally, now_ms: int, *, was_done: bool) -> None:
    """Where letters go or went, and why others stay."""
    total = _count(tally.goes + tally.stays)
    head = (
        f"Replayed {_count(tally.goes)}" if was_done else f"Would replay {tally.goes:,} of {total}"
    )
    say(f"{head}{':' if tally.going else '.'}")
    most = sorted(tally.going.items(), key=lambda one: -one[1].letters)
    for target, going in most[:TARGETS_SHOWN]:
        say(f"  {going.letters:,} to {target}, {_when(going, now_ms)}")
    if len(most) > TARGETS_SHOWN:
        say(f"  and to {len(most) - TARGETS_SHOWN:,} topics more")
    if tally.staying:
        say(f"{'Did' if was_done else 'Would'} not replay {tally.stays:,}:")
    for kind, staying in sorted(tally.staying.items(), key=lambda one: -one[1].letters):
        say(f"  {staying.letters:,} {_why(kind, staying)}")


def say_prospects(prospects: Sequence[Prospect], now_ms: int) -> None:
    """One row a letter: what would happen to it."""
    rows = []
    for prospect in prospects:
        letter = prospect.letter
        rows.append((str(letter.place), _plain(letter.text(ORIGIN)), _fate(prospect, now_ms)))
    _say_folded(["place", "origin", "what a replay would do"], rows)


def prospect_json(prospect: Prospect, replayed_as: str | None = None) -> dict[str, Any]:
    """One letter of a replay, for a program."""
    letter = prospect.letter
    named = {
        "partition": letter.place.partition,
        "offset": letter.place.offset,
        "origin": letter.text(ORIGIN),
    }
    if isinstance(prospect, Goes):
        goes = {"target": prospect.target, "due_ms": prospect.due_ms}
        return {**named, "replay": True, **goes, "replayed_as": replayed_as}
    return {**named, "replay": False, "why": prospect.kind, "detail": prospect.detail}


def say_tally_json(tally: Tally, *, was_done: bool, is_stopped: bool) -> None:
    """The last line of a replay, for a program."""
    say_json(
        {
            "replayed" if was_done else "would_replay": tally.goes,
            "stayed": {kind: staying.letters for kind, staying in tally.staying.items()},
            "stopped": is_stopped,
        }
    )


def nothing_there(topic: str, selection: Selection) -> str:
    """The sentence where no letter is found."""
    if selection.is_all:
        return f"There are no dead letters in {topic}."
    return f"No dead letter in {topic} matches; `dead-letters list` without filters shows the last."


def _say_folded(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        say_table(columns, rows)
        return
    table = Table(*(Column(name, overflow="fold", no_wrap=name in WHOLE) for name in columns))
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _facts(letter: Letter, mark: Mark | None) -> Iterator[tuple[str, str]]:
    if letter.reason is None:
        yield "reason", "none: it has no timer-error, so the proxy did not write it"
    else:
        yield "reason", f"{_plain(letter.reason)}: {meaning(letter.reason)}"
        yield "detail", _plain(letter.detail)
        yield "do", remedy(letter.reason)
    yield "origin", _plain(letter.text(ORIGIN)) or "unknown"
    if letter.first_origin:
        yield "first", f"{_plain(letter.first_origin)} (it has been sent in again since)"
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


def _fate(prospect: Prospect, now_ms: int) -> str:
    if isinstance(prospect, Goes):
        return f"deliver to {prospect.target}, {_due(prospect.due_ms, now_ms)}"
    return f"nothing, {prospect.kind}: {_plain(prospect.detail)}"


def _when(going: Going, now_ms: int) -> str:
    first, last = _due(going.first_due_ms, now_ms), _due(going.last_due_ms, now_ms)
    if first == last or going.last_due_ms - going.first_due_ms < TOGETHER_MS:
        return first
    return f"the first {first}, the last {last}"


def _due(due_ms: int, now_ms: int) -> str:
    return "at once" if due_ms <= now_ms else f"at {shown_time(due_ms)}"


def _why(kind: str, staying: Staying) -> str:
    if kind == ALREADY:
        return "replayed already (--again replays once more)"
    others = f" and {staying.letters - 1:,} more" if staying.letters > 1 else ""
    return f"{kind}: {_plain(staying.detail)} ({staying.place}{others})"


def _count(letters: int) -> str:
    return f"{letters:,} letter{'' if letters == 1 else 's'}"


def _bytes(size_bytes: int) -> str:
    return f"{size_bytes:,} byte{'' if size_bytes == 1 else 's'}"


def _plain(text: str | None) -> str:
    """Safe on a terminal, and not cut."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text or ""
    )


def _header(raw: bytes | None) -> str:
    text = "null" if raw is None else _plain(_text(raw))
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


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "backslashreplace")


def _bytes_json(name: str, raw: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if raw is None else raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(raw or b"").decode()}
