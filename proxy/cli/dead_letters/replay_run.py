"""One call of `dead-letters replay`: a dry run or a replay, its progress and its result."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager

from proxy.cli.dead_letters.output import (
    decision_json,
    nothing_there,
    say_counts,
    say_counts_json,
    say_decisions,
)
from proxy.cli.terminal.output import progress, say, say_json
from proxy.clock import wall_clock_ms
from proxy.dead_letters.dead_letter_topics import DeadLetterTopics, OnRead
from proxy.dead_letters.letters.letter import Letter, Origin, Place
from proxy.dead_letters.letters.replay_counts import ReplayCounts
from proxy.dead_letters.letters.replay_planner import ReplayDecision
from proxy.dead_letters.letters.selection import Selection
from proxy.dead_letters.replay import OnDecision, Replay, ReplayOptions, preview
from proxy.worker.stop_signals import stop_signals

ROWS_SHOWN = 50
SAY_EVERY_S = 10.0


class ReplayRun:
    """The letters that a person named or chose.

    The topic's end is read once, before. Letters that come back during the replay are left alone.
    """

    def __init__(
        self,
        topics: DeadLetterTopics,
        selection: Selection,
        named: Sequence[Place | Origin],
        options: ReplayOptions,
        *,
        as_json: bool,
    ) -> None:
        self.counts, self.is_stopped = ReplayCounts(), False
        self._topics, self._selection, self._options = topics, selection, options
        self._as_json = as_json
        self._spans = topics.spans(selection)
        found = [find_letter(topics, one) for one in named]
        self._named = list({letter.place: letter for letter in found}.values())

    @property
    def exit_code(self) -> int:
        """0 when no letter is left that somebody has to look after."""
        return 1 if self.counts.needs_action or self.is_stopped else 0

    def preview(self) -> None:
        """Show what a replay would do with each letter."""
        rows: list[ReplayDecision] = []

        def keep(decision: ReplayDecision) -> None:
            if len(rows) < ROWS_SHOWN:
                rows.append(decision)

        with self._reading("looking") as on_read:
            preview(self._topics, self._letters(on_read), self._options, self._noting(keep))
        if rows and not self._as_json:
            say_decisions(rows, wall_clock_ms())
            more = self.counts.replayable + self.counts.kept - len(rows)
            say(*([f"… and {more:,} more"] if more else []), "")
        self._conclude(was_done=False)

    def replay(self) -> None:
        """Replay; the counts are printed even where it ends in an error."""
        replay = Replay(self._topics, self._options)
        try:
            with stop_signals() as is_stopping, self._reading("replaying") as on_read:
                on_decision = self._noting(self._now_and_then())
                replay.run(self._letters(on_read), on_decision, is_stopping)
                self.is_stopped = is_stopping()
        finally:
            self._conclude(was_done=True)

    def _letters(self, on_read: OnRead) -> Iterable[Letter]:
        if not self._named:
            return self._topics.every(self._selection, self._spans, on_read)
        return _counted(self._named, on_read)

    @contextmanager
    def _reading(self, text: str) -> Iterator[OnRead]:
        parts: Iterable[Sized] = [self._named] if self._named else self._spans.values()
        with reading(text, parts, is_silent=self._as_json) as on_read:
            yield on_read

    def _noting(self, also: Callable[[ReplayDecision], None]) -> OnDecision:
        def note(decision: ReplayDecision, replayed_as: str | None) -> None:
            self.counts.note(decision)
            also(decision)
            if self._as_json:
                say_json(decision_json(decision, replayed_as))

        return note

    def _now_and_then(self) -> Callable[[ReplayDecision], None]:
        """Says how far it is, where no bar shows it."""
        last_line_s = time.monotonic()

        def tell(_: ReplayDecision) -> None:
            nonlocal last_line_s
            if not self._as_json and time.monotonic() - last_line_s > SAY_EVERY_S:
                last_line_s = time.monotonic()
                say(f"{self.counts.replayable:,} replayed so far")

        return tell

    def _conclude(self, *, was_done: bool) -> None:
        if self._as_json:
            say_counts_json(self.counts, was_done=was_done, is_stopped=self.is_stopped)
        elif not self.counts.replayable and not self.counts.kept:
            say(nothing_there(self._topics.name, self._selection))
        else:
            say_counts(self.counts, wall_clock_ms(), was_done=was_done)
        if self.is_stopped and not self._as_json:
            goes_on = (
                "would begin anew (--again)" if self._options.is_again else "goes on from there"
            )
            say(f"Stopped before the end; the same command {goes_on}.")


@contextmanager
def reading(text: str, parts: Iterable[Sized], *, is_silent: bool) -> Iterator[OnRead]:
    """A bar of how much has been read of the ranges or letters `parts`."""
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


def find_letter(topics: DeadLetterTopics, named: Place | Origin) -> Letter:
    """The letter a person named. Raises NoSuchLetter."""
    if isinstance(named, Place):
        return topics.letter(named)
    with reading("looking", topics.spans().values(), is_silent=False) as on_read:
        return topics.letter(named, on_read)


def _counted(letters: Iterable[Letter], on_read: OnRead) -> Iterator[Letter]:
    for letter in letters:
        on_read(1)
        yield letter
