"""`dead-letters`: list, show, edit and replay."""

import sys
import time
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from typing import Any, Final

import typer
from rich.console import Console
from rich.progress import Progress

from proxy.cli.terminal import (
    AtBroker,
    Times,
    argument,
    checked,
    counted,
    flag,
    option,
    say,
    say_json,
    say_table,
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
from proxy.dead_letters.replay import Replay, ReplayOptions, preview
from proxy.dead_letters.replay_plan import (
    ALREADY,
    Mark,
    Original,
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
WHOLE: Final = ("place", "written")


@dataclass(frozen=True, kw_only=True)
class TopicOptions(Times, AtBroker):
    """Options that name the dead-letter topic.

    Other commands have an option `--set` that overrides a setting. These commands lack it, because
    the `--set` of `replay` is for headers."""

    chosen: None = None  # no settings are overridden
    group: str | None = option(
        "Use the dead-letter topic of this consumer group instead of the proxy's.", "--group", "-g"
    )

    def topics(self) -> DeadLetterTopics:
        return DeadLetterTopics(self.settings, checked(checked_group, self.group))


@dataclass(frozen=True, kw_only=True)
class LetterFilters(TopicOptions):
    """Options that choose letters."""

    reason: list[str] | None = option(
        "Only letters with this timer-error. With --group: only letters whose exception matches "
        "this pattern. Repeatable.",
        "--reason",
        "-r",
    )
    target: list[str] | None = option(
        "Only letters for targets that match this pattern (orders.*). Repeatable.", "--target", "-t"
    )
    origin: list[str] | None = option(
        "Only letters whose origin matches this pattern (timer.ingress/0/*). Repeatable.",
        "--origin",
        "-o",
    )
    from_: str | None = option(
        "Only letters written at this time or later: RFC 3339, epoch ms, or an age (2h).", "--from"
    )
    to: str | None = option("Only letters written before this time. Same forms as --from.")

    @cached_property
    def selection(self) -> Selection:
        now_ms = wall_clock_ms()
        from_ms, to_ms = (
            None if text is None else checked(read_moment_ms, text, now_ms)
            for text in (self.from_, self.to)
        )
        if from_ms is not None and to_ms is not None and from_ms >= to_ms:
            raise typer.BadParameter("--from must be before --to")
        reasons = self.reason or []
        codes = tuple(reasons) if self.group else checked(read_reasons, reasons)
        return Selection(codes, tuple(self.target or ()), tuple(self.origin or ()), from_ms, to_ms)

    def nothing_in(self, topic: str) -> str:
        """Return a sentence that says that no letter was found."""
        if self.selection.is_all:
            return f"There are no dead letters in {topic}."
        hint = "`dead-letters list` without filters shows the newest letters."
        return f"No dead letter in {topic} matches; {hint}"


@dataclass(frozen=True, kw_only=True)
class ListOptions(LetterFilters):
    """Options of `dead-letters list`."""

    limit: int = option(
        "Show at most this many letters.", "--limit", "-n", default=20, min=1, max=MOST_LISTED
    )
    oldest_first: bool = flag("Start with the oldest letters.")


def list_letters(asked: ListOptions) -> None:
    """List dead letters and their replays, the newest first."""
    selection = asked.selection
    with explained(asked.settings):
        topics = asked.topics()
        spans = topics.spans(selection)
        with _reading("looking", spans.values(), is_silent=asked.as_json) as on_read:
            letters = partial(topics.letters, selection, on_read)
            if asked.oldest_first:
                shown = oldest(letters, spans, asked.limit)
            else:
                shown = LetterPages(letters, spans, time.monotonic).read(asked.limit, inf).letters
            marks = topics.marks(shown)
    if asked.as_json:
        for one in shown:
            row = {"origin": one.origin, "key": text_of(one.key), "value_bytes": one.value_bytes}
            say_json({**_known_json(one, marks.get(one.place)), **row})
        return
    if not shown:
        say(asked.nothing_in(topics.name))
        return
    target = "target" if asked.group is None else "from"
    columns = ["place", "written", "reason", target, "key", "origin", "replayed"]
    say_table(columns, [_row(one, marks.get(one.place)) for one in shown], WHOLE)
    if len(shown) == asked.limit:
        which = "first" if asked.oldest_first else "last"
        say(f"These are the {which} {asked.limit}; --limit shows more.")


@dataclass(frozen=True, kw_only=True)
class ShowOptions(TopicOptions):
    """Options of `dead-letters show`."""

    place: str = argument("The letter's partition/offset in the dead-letter topic, or its origin.")
    raw: bool = flag("Write only the value to stdout, byte for byte.")


def show_letter(asked: ShowOptions) -> None:
    """Show one dead letter: the reason, the remedy, its headers, key and value."""
    named = checked(read_place, asked.place)
    with explained(asked.settings):
        topics = asked.topics()
        letter = _find_letter(topics, named)
        asks_original = letter.lacks_value and (asked.raw or not asked.as_json)
        original = topics.original(letter) if asks_original else None
        if asked.raw:
            value = letter.value if original is None else original[1]
            sys.stdout.buffer.write(value or b"")
            sys.stdout.buffer.flush()
            return
        mark = topics.marks([summary_of(letter)]).get(letter.place)
        if asked.as_json:
            say_json(letter_json(letter, mark))
        else:
            note = _value_note(original) if letter.lacks_value else None
            say_letter(letter, topics.name, mark, note)


@dataclass(frozen=True, kw_only=True)
class ReplayCommandOptions(LetterFilters):
    """Options of `dead-letters replay`."""

    place: list[str] | None = argument(
        "Letters to replay: partition/offset in the dead-letter topic, or origin. Default: all "
        "letters that the filters select.",
        default=None,
    )
    to_set: list[str] | None = option("Set a header: name=value.", "--set")
    to_unset: list[str] | None = option("Remove the header of this name.", "--unset")
    dry_run: bool = flag("Show what would happen, without a change.")
    rate: str | None = option("Highest rate: 100/s, 30/m, 5/h.")
    limit: int | None = option(
        "Replay at most this many letters, partition by partition, the oldest first.",
        "--limit",
        "-n",
        min=1,
    )
    again: bool = flag("Include letters that have been replayed before.")
    yes: bool = flag("Replay the letters.", "--yes", "-y")


def replay_letters(asked: ReplayCommandOptions) -> None:
    """Send dead letters to the ingress topic again, with edited headers if you wish.

    Letters that were replayed before are left out, unless you give --again. Look first with
    --dry-run, then give --yes."""
    selection = asked.selection  # reports a fault in the filters before the broker is asked
    named = [checked(read_place, text) for text in asked.place or []]
    if named and not selection.is_all:
        raise typer.BadParameter("name letters or use filters, not both")
    edits = checked(read_edits, asked.to_set or [], asked.to_unset or [])
    rate = None if asked.rate is None else checked(read_rate, asked.rate)
    if not (asked.dry_run or asked.yes):
        raise typer.BadParameter("look with --dry-run first, then give --yes")
    with explained(asked.settings):
        run = _ReplayRun(asked, named, ReplayOptions(edits, asked.again, asked.limit, rate))
        run.preview() if asked.dry_run else run.replay()
    raise typer.Exit(1 if run.counts.needs_action or run.is_stopped else 0)


def _find_letter(topics: DeadLetterTopics, named: Place | Origin) -> Letter:
    if isinstance(named, Place):
        return topics.letter(named)
    with _reading("looking", topics.spans().values(), is_silent=False) as on_read:
        return topics.letter(named, on_read)


def _value_note(original: Original | None) -> str:
    if original is None:
        return (
            "not in the letter, and the original record is no longer in the ingress. The value was "
            "null, or it was too large for the dead-letter topic and is lost"
        )
    value = original[1]
    if value is None:
        return "null, as in the ingress"
    return (
        f"{len(value):,} bytes, too large for this topic. They are still in the ingress: --raw "
        "writes them to stdout, and a replay reads them there"
    )


@contextmanager
def _reading(text: str, parts: Iterable[Sized], *, is_silent: bool) -> Iterator[OnRead]:
    with Progress(transient=True, disable=is_silent or not Console().is_terminal) as bar:
        yield partial(bar.advance, bar.add_task(text, total=sum(map(len, parts))))


ROWS_SHOWN: Final = 50
SAY_EVERY_S: Final = 10.0


class _ReplayRun:
    def __init__(
        self, asked: ReplayCommandOptions, named: Sequence[Place | Origin], options: ReplayOptions
    ) -> None:
        self.counts, self.is_stopped = ReplayCounts(), False
        self._asked, self._options = asked, options
        self._topics = asked.topics()
        self._spans = self._topics.spans(asked.selection)
        found = [_find_letter(self._topics, one) for one in named]
        self._named = list({letter.place: letter for letter in found}.values())
        self._first: list[ReplayDecision] = []
        self._said_s = time.monotonic()

    def preview(self) -> None:
        with self._letters("looking") as letters:
            preview(self._topics, letters, self._options, self._note)
        if not self._asked.as_json and self._first:
            say_decisions(self._first, wall_clock_ms())
            more = self.counts.replayable + self.counts.kept - len(self._first)
            say(*([f"… and {more:,} more"] if more else []), "")
        self._conclude()

    def replay(self) -> None:
        """Replay the letters. Print the counts even after an error."""
        replay = Replay(self._topics, self._options)
        try:
            with stop_signals() as is_stopping, self._letters("replaying") as letters:
                replay.run(letters, self._note, is_stopping)
                self.is_stopped = is_stopping()
        finally:
            self._conclude()

    def _note(self, decision: ReplayDecision, replayed_as: str | None) -> None:
        self.counts.note(decision)
        if len(self._first) < ROWS_SHOWN:
            self._first.append(decision)
        if self._asked.as_json:
            say_json(decision_json(decision, replayed_as))
        elif not self._asked.dry_run and time.monotonic() - self._said_s > SAY_EVERY_S:
            self._said_s = time.monotonic()
            say(f"{self.counts.replayable:,} replayed so far")

    @contextmanager
    def _letters(self, text: str) -> Iterator[Iterator[Letter]]:
        parts: Iterable[Sized] = [self._named] if self._named else self._spans.values()
        with _reading(text, parts, is_silent=self._asked.as_json) as on_read:
            yield self._each(on_read)

    def _each(self, on_read: OnRead) -> Iterator[Letter]:
        if not self._named:
            yield from self._topics.every(self._asked.selection, self._spans, on_read)
        for letter in self._named:
            on_read(1)
            yield letter

    def _conclude(self) -> None:
        counts = self.counts
        if self._asked.as_json:
            stayed = {kind: left.letters for kind, left in counts.by_reason.items()}
            did = "would_replay" if self._asked.dry_run else "replayed"
            say_json({did: counts.replayable, "stayed": stayed, "stopped": self.is_stopped})
            return
        if counts.replayable or counts.kept:
            say_counts(counts, wall_clock_ms(), was_done=not self._asked.dry_run)
        else:
            say(self._asked.nothing_in(self._topics.name))
        if self.is_stopped:
            anew = "starts again at the beginning, because of --again"
            goes_on = anew if self._options.is_again else "continues where this one stopped"
            say(f"Stopped before the end. The same command {goes_on}.")


SHOWN_AS_FACTS: Final = (ERROR, ERROR_DETAIL, ORIGIN)
TEXT_SHOWN: Final = 2_000
HEX_SHOWN: Final = 512
HEX_ROW: Final = 16
TARGETS_SHOWN: Final = 10
TOGETHER_MS: Final = 1_000


def _row(one: LetterSummary, mark: Mark | None) -> tuple[str, ...]:
    return (
        str(one.place),
        shown_time(one.timestamp_ms),
        plain(one.reason) or "none: not written by the proxy",
        plain(one.target),
        shown_bytes(one.key),
        plain(one.origin),
        _replayed(mark),
    )


def letter_json(letter: Letter, mark: Mark | None) -> dict[str, Any]:
    """Return everything about a letter as fields for JSON. Binary data is in base64."""
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
    """Print everything about a letter. `value_note` says why the letter has no value, or where the
    value is."""
    say(f"{letter.place} of {topic}, written {shown_time(letter.timestamp_ms)}", "")
    for name, text in _facts(letter, mark):
        say(f"{name:<10}{text}")
    if letter.value is None:
        say(f"{'value':<10}{value_note or 'null'}")
    else:
        say(f"{'value':<10}{counted(len(letter.value), 'byte')}", *value_lines(letter.value))


def _facts(letter: Letter, mark: Mark | None) -> Iterator[tuple[str, str]]:
    if letter.reason is None:
        yield "reason", "none: the proxy did not write it"
    else:
        yield "reason", f"{plain(letter.reason)}: {plain(letter.meaning)}"
        yield "detail", plain(letter.detail)
        yield "do", letter.remedy
    yield "origin", plain(letter.text(ORIGIN)) or "unknown"
    if letter.first_origin:
        yield (
            "first",
            f"{plain(letter.first_origin)} (the producer's record, since rewritten or replayed)",
        )
    if letter.reason is not None:
        yield "replayed", _replayed(mark) or "no"
    yield "key", shown_bytes(letter.key)
    shown = SHOWN_AS_FACTS if letter.is_ours else ()
    title = "headers"
    for name, raw in letter.headers:
        if name not in shown:
            text = "null" if raw is None else plain(text_of(raw))
            if len(text) > TEXT_SHOWN:
                text = f"{text[:TEXT_SHOWN]}… ({len(raw or b''):,} bytes)"
            yield title, f"{plain(name)}: {text}"
            title = ""


def _replayed(mark: Mark | None) -> str:
    return f"{shown_time(mark.at_ms)} as {mark.replayed_as}" if mark else ""


def value_lines(value: bytes) -> Iterator[str]:
    """Yield the value as text, or in hex if it is not text. Cut a long value and add a hint."""
    try:
        text = value.decode().replace("\r\n", "\n")
    except UnicodeDecodeError:
        text = "\0"  # not printable, so that the branch for hex is taken
    if all(c.isprintable() or c in "\n\t" for c in text):
        yield from text[:TEXT_SHOWN].expandtabs().split("\n")
        left, unit = len(text) - TEXT_SHOWN, "characters"
    else:
        yield from map(partial(_hex_row, value), range(0, min(len(value), HEX_SHOWN), HEX_ROW))
        left, unit = len(value) - HEX_SHOWN, "bytes"
    if left > 0:
        yield f"… {left:,} {unit} more; --raw writes all of it to stdout"


def _hex_row(value: bytes, start: int) -> str:
    row = value[start : start + HEX_ROW]
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
    return f"{start:08x}  {row.hex(' '):<{HEX_ROW * 3 - 1}}  {text}"


def say_counts(counts: ReplayCounts, now_ms: int, *, was_done: bool) -> None:
    """Print the targets of replayed letters, and why the other letters stay."""
    total = counted(counts.replayable + counts.kept, "letter")
    would = f"Would replay {counts.replayable:,} of {total}"
    head = f"Replayed {counted(counts.replayable, 'letter')}" if was_done else would
    say(f"{head}{':' if counts.by_target else '.'}")
    most = sorted(counts.by_target.items(), key=lambda one: -one[1].letters)
    for target, one in most[:TARGETS_SHOWN]:
        say(f"  {one.letters:,} to {target}, {_when(one, now_ms)}")
    if len(most) > TARGETS_SHOWN:
        say(f"  and to {len(most) - TARGETS_SHOWN:,} more topics")
    if counts.by_reason:
        say(f"{'Did' if was_done else 'Would'} not replay {counts.kept:,}:")
    for kind, left in sorted(counts.by_reason.items(), key=lambda one: -one[1].letters):
        others = f" and {left.letters - 1:,} more" if left.letters > 1 else ""
        why = f"{kind}: {plain(left.detail)} ({left.place}{others})"
        if kind == ALREADY:
            why = "were already replayed (--again replays them once more)"
        say(f"  {left.letters:,} {why}")


def _when(count: TargetCount, now_ms: int) -> str:
    first, last = _due(count.first_due_ms, now_ms), _due(count.last_due_ms, now_ms)
    if first == last or count.last_due_ms - count.first_due_ms < TOGETHER_MS:
        return first
    return f"the first {first}, the last {last}"


def _due(due_ms: int, now_ms: int) -> str:
    return "at once" if due_ms <= now_ms else f"at {shown_time(due_ms)}"


def say_decisions(decisions: Sequence[ReplayDecision], now_ms: int) -> None:
    """Print the decision about each letter."""
    rows = []
    for one in decisions:
        if isinstance(one, Replayable):
            planned = f"deliver to {one.target}, {_due(one.due_ms, now_ms)}"
        else:
            planned = f"nothing, {one.kind}: {plain(one.detail)}"
        rows.append((str(one.letter.place), plain(one.letter.text(ORIGIN)), planned))
    say_table(["place", "origin", "what a replay does"], rows, WHOLE)


def decision_json(decision: ReplayDecision, replayed_as: str | None = None) -> dict[str, Any]:
    """Return the decision about one letter as fields for JSON."""
    letter = decision.letter
    named = {**letter.place._asdict(), "origin": letter.text(ORIGIN)}
    if isinstance(decision, Replayable):
        replayable = {"target": decision.target, "due_ms": decision.due_ms}
        return {**named, "replay": True, **replayable, "replayed_as": replayed_as}
    return {**named, "replay": False, "why": decision.kind, "detail": decision.detail}
