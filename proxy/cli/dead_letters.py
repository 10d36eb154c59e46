"""`dead-letters`: list, show, edit and replay."""

import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Annotated, Any, Final

import typer

from proxy.cli.terminal import (
    AsJson,
    Bootstrap,
    Config,
    Utc,
    checked,
    counted,
    progress,
    say,
    say_json,
    say_table,
    settings_for,
    show_utc,
    shown_bytes,
    shown_time,
    text_of,
)
from proxy.clock import wall_clock_ms
from proxy.dead_letters.letter import (
    Letter,
    LetterPages,
    LetterSummary,
    Origin,
    Place,
    oldest,
    read_place,
    summary_of,
)
from proxy.dead_letters.replay import OnDecision, Replay, ReplayOptions, preview
from proxy.dead_letters.replay_plan import (
    ALREADY,
    Mark,
    Original,
    ReasonCount,
    Replayable,
    ReplayCounts,
    ReplayDecision,
    Selection,
    TargetCount,
    read_edits,
    read_moment_ms,
    read_rate,
    read_reasons,
)
from proxy.dead_letters.topics import DeadLetterTopics, OnRead, checked_group
from proxy.kafka.access import explained
from proxy.logs import plain
from proxy.protocol.headers import ERROR, ERROR_DETAIL, ORIGIN
from proxy.worker.stop_signals import stop_signals

MOST_LISTED: Final = 100_000
app = typer.Typer(help="Records that could not be delivered.", no_args_is_help=True)

Reasons = Annotated[
    list[str] | None,
    typer.Option(
        "--reason",
        "-r",
        help="Only those with this timer-error, with --group an exception like this; repeatable.",
    ),
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", help="Only those for topics like this (orders.*); repeatable."),
]
Origins = Annotated[
    list[str] | None,
    typer.Option("--origin", "-o", help="Only those from there (timer.ingress/0/*); repeatable."),
]
From = Annotated[
    str | None,
    typer.Option("--from", help="Written then or later: RFC 3339, epoch ms, or an age (2h)."),
]
To = Annotated[str | None, typer.Option("--to", help="Written before: as --from.")]
Group = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Those of a group's consumers, instead of the proxy's."),
]


@app.command("list")
def list_letters(
    reason: Reasons = None,
    target: Targets = None,
    origin: Origins = None,
    from_: From = None,
    to: To = None,
    group: Group = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST_LISTED)] = 20,
    oldest_first: Annotated[
        bool, typer.Option("--oldest-first", help="The first ones instead of the last.")
    ] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
    utc: Utc = False,
) -> None:
    """List dead letters, the newest first, and whether they have been replayed."""
    show_utc(is_wanted=utc)
    selection = _selection(reason, target, origin, from_, to, group)
    settings = settings_for(config, bootstrap)
    with explained(settings):
        topics = DeadLetterTopics(settings, checked(checked_group, group))
        spans = topics.spans(selection)
        with _reading("looking", spans.values(), is_silent=as_json) as on_read:
            letters = partial(topics.letters, selection, on_read)
            if oldest_first:
                shown = oldest(letters, spans, limit)
            else:
                shown = LetterPages(letters, spans, time.monotonic).read(limit, inf).letters
            marks = topics.marks(shown)
    if as_json:
        for one in shown:
            say_json(summary_json(one, marks.get(one.place)))
    elif not shown:
        say(_nothing_there(topics.name, selection))
    else:
        say_summaries(shown, marks, group)
        if len(shown) == limit:
            say(f"These are the {'first' if oldest_first else 'last'} {limit}; --limit shows more.")


@app.command("show")
def show_letter(
    place: Annotated[str, typer.Argument(help="partition/offset there, or the letter's origin.")],
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the value to stdout, byte for byte, and no more.")
    ] = False,
    group: Group = None,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
    utc: Utc = False,
) -> None:
    """Show everything about one dead letter: why it is one, what to do, headers, key and value."""
    show_utc(is_wanted=utc)
    named = checked(read_place, place)
    settings = settings_for(config, bootstrap)
    with explained(settings):
        topics = DeadLetterTopics(settings, checked(checked_group, group))
        letter = _find_letter(topics, named)
        asks_original = letter.lacks_value and (raw or not as_json)
        original = topics.original(letter) if asks_original else None
        if raw:
            value = letter.value if original is None else original[1]
            sys.stdout.buffer.write(value or b"")
            sys.stdout.buffer.flush()
            return
        mark = topics.marks([summary_of(letter)]).get(letter.place)
        if as_json:
            say_json(letter_json(letter, mark))
        else:
            note = _value_note(original) if letter.lacks_value else None
            say_letter(letter, topics.name, mark, note)


@app.command("replay")
def replay_letters(
    place: Annotated[
        list[str] | None, typer.Argument(help="Letters by place or origin; without: the filters.")
    ] = None,
    reason: Reasons = None,
    target: Targets = None,
    origin: Origins = None,
    from_: From = None,
    to: To = None,
    group: Group = None,
    to_set: Annotated[
        list[str] | None, typer.Option("--set", help="Give a header this value: name=value.")
    ] = None,
    to_unset: Annotated[
        list[str] | None, typer.Option("--unset", help="Take a header out: its name.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")
    ] = False,
    rate: Annotated[str | None, typer.Option(help="At most so many: 100/s, 30/m, 5/h.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Replay so many, the oldest first.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also those that have been replayed already.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it.")] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters in again, with edited headers if need be; none twice unless asked to.

    Look first with --dry-run, then say --yes."""
    selection = _selection(reason, target, origin, from_, to, group)
    named = [checked(read_place, text) for text in place or []]
    if named and not selection.is_all:
        raise typer.BadParameter("name letters, or choose them by filters; not both")
    edits = checked(read_edits, to_set or [], to_unset or [])
    options = ReplayOptions(edits, again, limit, None if rate is None else checked(read_rate, rate))
    if not (dry_run or yes):
        raise typer.BadParameter("look first with --dry-run, then say --yes")
    settings = settings_for(config, bootstrap)
    with explained(settings):
        topics = DeadLetterTopics(settings, checked(checked_group, group))
        replay = _ReplayRun(topics, selection, named, options, as_json=as_json)
        replay.preview() if dry_run else replay.replay()
    raise typer.Exit(replay.exit_code)


def _selection(
    reasons: list[str] | None,
    targets: list[str] | None,
    origins: list[str] | None,
    from_: str | None,
    to: str | None,
    group: str | None,
) -> Selection:
    now_ms = wall_clock_ms()
    from_ms = None if from_ is None else checked(read_moment_ms, from_, now_ms)
    to_ms = None if to is None else checked(read_moment_ms, to, now_ms)
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise typer.BadParameter("--from must be before --to")
    codes = tuple(reasons or ()) if group else checked(read_reasons, reasons or [])
    return Selection(codes, tuple(targets or ()), tuple(origins or ()), from_ms, to_ms)


def _find_letter(topics: DeadLetterTopics, named: Place | Origin) -> Letter:
    if isinstance(named, Place):
        return topics.letter(named)
    with _reading("looking", topics.spans().values(), is_silent=False) as on_read:
        return topics.letter(named, on_read)


def _value_note(original: Original | None) -> str:
    if original is None:
        return (
            "none here, and the original is no longer in the ingress: it was null, or too large "
            "for this topic and is lost"
        )
    value = original[1]
    if value is None:
        return "null, as in the ingress"
    return (
        f"{len(value):,} bytes, too large for this topic; they are still in the ingress: "
        "--raw writes them to stdout, a replay takes them from there"
    )


@contextmanager
def _reading(text: str, parts: Iterable[Sized], *, is_silent: bool) -> Iterator[OnRead]:
    if is_silent:
        yield lambda _: None
        return
    passed = 0
    with progress(text, sum(map(len, parts))) as show:

        def on_read(more: int) -> None:
            nonlocal passed
            passed += more
            show(passed)

        yield on_read


ROWS_SHOWN: Final = 50
SAY_EVERY_S: Final = 10.0


class _ReplayRun:
    def __init__(
        self,
        topics: DeadLetterTopics,
        selection: Selection,
        named: Sequence[Place | Origin],
        options: ReplayOptions,
        *,
        as_json: bool,
    ) -> None:
        self._counts, self._is_stopped = ReplayCounts(), False
        self._topics, self._selection, self._options = topics, selection, options
        self._as_json = as_json
        self._spans = topics.spans(selection)
        found = [_find_letter(topics, one) for one in named]
        self._named = list({letter.place: letter for letter in found}.values())

    @property
    def exit_code(self) -> int:
        return 1 if self._counts.needs_action or self._is_stopped else 0

    def preview(self) -> None:
        rows: list[ReplayDecision] = []

        def keep(decision: ReplayDecision) -> None:
            if len(rows) < ROWS_SHOWN:
                rows.append(decision)

        with self._progress("looking") as on_read:
            preview(self._topics, self._letters(on_read), self._options, self._noting(keep))
        if rows and not self._as_json:
            say_decisions(rows, wall_clock_ms())
            more = self._counts.replayable + self._counts.kept - len(rows)
            say(*([f"… and {more:,} more"] if more else []), "")
        self._conclude(was_done=False)

    def replay(self) -> None:
        """Replay. Print the counts even after an error."""
        replay = Replay(self._topics, self._options)
        try:
            with stop_signals() as is_stopping, self._progress("replaying") as on_read:
                on_decision = self._noting(self._now_and_then())
                replay.run(self._letters(on_read), on_decision, is_stopping)
                self._is_stopped = is_stopping()
        finally:
            self._conclude(was_done=True)

    def _letters(self, on_read: OnRead) -> Iterator[Letter]:
        if not self._named:
            yield from self._topics.every(self._selection, self._spans, on_read)
        for letter in self._named:
            on_read(1)
            yield letter

    @contextmanager
    def _progress(self, text: str) -> Iterator[OnRead]:
        parts: Iterable[Sized] = [self._named] if self._named else self._spans.values()
        with _reading(text, parts, is_silent=self._as_json) as on_read:
            yield on_read

    def _noting(self, also: Callable[[ReplayDecision], None]) -> OnDecision:
        def note(decision: ReplayDecision, replayed_as: str | None) -> None:
            self._counts.note(decision)
            also(decision)
            if self._as_json:
                say_json(decision_json(decision, replayed_as))

        return note

    def _now_and_then(self) -> Callable[[ReplayDecision], None]:
        last_line_s = time.monotonic()

        def tell(_: ReplayDecision) -> None:
            nonlocal last_line_s
            if not self._as_json and time.monotonic() - last_line_s > SAY_EVERY_S:
                last_line_s = time.monotonic()
                say(f"{self._counts.replayable:,} replayed so far")

        return tell

    def _conclude(self, *, was_done: bool) -> None:
        counts = self._counts
        if self._as_json:
            stayed = {kind: left.letters for kind, left in counts.by_reason.items()}
            done = {"replayed" if was_done else "would_replay": counts.replayable}
            say_json({**done, "stayed": stayed, "stopped": self._is_stopped})
            return
        if not counts.replayable and not counts.kept:
            say(_nothing_there(self._topics.name, self._selection))
        else:
            say_counts(counts, wall_clock_ms(), was_done=was_done)
        if self._is_stopped:
            goes_on = (
                "would begin anew (--again)" if self._options.is_again else "goes on from there"
            )
            say(f"Stopped before the end; the same command {goes_on}.")


NOT_THE_PROXYS: Final = "not the proxy's"
SHOWN_AS_FACTS: Final = (ERROR, ERROR_DETAIL, ORIGIN)
TEXT_SHOWN: Final = 2_000
HEX_SHOWN: Final = 512
HEX_ROW: Final = 16
WHOLE: Final = ("place", "written")
TARGETS_SHOWN: Final = 10
TOGETHER_MS: Final = 1_000


def say_summaries(
    shown: Sequence[LetterSummary], marks: Mapping[Place, Mark], group: str | None
) -> None:
    """Print one row per letter."""
    target = "target" if group is None else "from"
    columns = ["place", "written", "reason", target, "key", "origin", "replayed"]
    rows = [
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
    ]
    say_table(columns, rows, WHOLE)


def summary_json(one: LetterSummary, mark: Mark | None) -> dict[str, Any]:
    """Return a row of the list, for a program. Times are epoch ms."""
    size = {"origin": one.origin, "key": text_of(one.key), "value_bytes": one.value_bytes}
    return {**_known_json(one, mark), **size}


def letter_json(letter: Letter, mark: Mark | None) -> dict[str, Any]:
    """Return everything about a letter, for a program. Binary data is in base64."""
    is_ours = letter.reason is not None
    return {
        **_known_json(letter, mark),
        "origin": letter.text(ORIGIN),
        "meaning": letter.meaning if is_ours else None,
        "remedy": letter.remedy if is_ours else None,
        "headers": [[name, text_of(value)] for name, value in letter.headers],
        **_bytes_json("key", letter.key),
        **_bytes_json("value", letter.value),
    }


def _known_json(one: Letter | LetterSummary, mark: Mark | None) -> dict[str, Any]:
    return {
        **one.place._asdict(),
        "written_ms": one.timestamp_ms,
        "reason": one.reason,
        "detail": one.detail,
        "target": one.target,
        "first_origin": one.first_origin,
        "replayed_ms": mark.at_ms if mark else None,
        "replayed_as": mark.replayed_as if mark else None,
    }


def _bytes_json(name: str, raw: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if raw is None else raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(raw or b"").decode()}


def say_letter(letter: Letter, topic: str, mark: Mark | None, value_note: str | None) -> None:
    """Print everything about a letter. `value_note` says why it has no value."""
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
        say(*value_lines(letter.value))


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


def _header(raw: bytes | None) -> str:
    text = "null" if raw is None else plain(text_of(raw))
    return text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}… ({len(raw or b''):,} bytes)"


def value_lines(value: bytes) -> Iterator[str]:
    """Yield the value as text, else in hex. A long value is cut, with a hint."""
    text = _readable(value)
    if text is not None:
        yield from text[:TEXT_SHOWN].expandtabs().split("\n")
        left, unit = len(text) - TEXT_SHOWN, "characters"
    else:
        yield from _hex_rows(value[:HEX_SHOWN])
        left, unit = len(value) - HEX_SHOWN, "bytes"
    if left > 0:
        yield f"… {left:,} {unit} more; --raw writes all of it to stdout"


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


def say_counts(counts: ReplayCounts, now_ms: int, *, was_done: bool) -> None:
    """Print where letters go or went, and why others stay."""
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


def say_decisions(decisions: Sequence[ReplayDecision], now_ms: int) -> None:
    """Print the decision about each letter."""
    rows = []
    for one in decisions:
        if isinstance(one, Replayable):
            planned = f"deliver to {one.target}, {_due(one.due_ms, now_ms)}"
        else:
            planned = f"nothing, {one.kind}: {plain(one.detail)}"
        rows.append((str(one.letter.place), plain(one.letter.text(ORIGIN)), planned))
    say_table(["place", "origin", "what a replay would do"], rows, WHOLE)


def decision_json(decision: ReplayDecision, replayed_as: str | None = None) -> dict[str, Any]:
    """Return one letter of a replay, for a program."""
    letter = decision.letter
    named = {**letter.place._asdict(), "origin": letter.text(ORIGIN)}
    if isinstance(decision, Replayable):
        replayable = {"target": decision.target, "due_ms": decision.due_ms}
        return {**named, "replay": True, **replayable, "replayed_as": replayed_as}
    return {**named, "replay": False, "why": decision.kind, "detail": decision.detail}


def _nothing_there(topic: str, selection: Selection) -> str:
    if selection.is_all:
        return f"There are no dead letters in {topic}."
    return f"No dead letter in {topic} matches; `dead-letters list` without filters shows the last."
