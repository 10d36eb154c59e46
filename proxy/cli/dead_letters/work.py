"""One call of `dead-letters replay`, as a person meets it: survey, question, progress, result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager

import typer

from proxy.cli.dead_letters.replay import OnProspect, Replay, Wishes, survey
from proxy.cli.dead_letters.shown import (
    nothing_there,
    prospect_json,
    say_prospects,
    say_tally,
    say_tally_json,
)
from proxy.cli.dead_letters.topics import DeadLetterTopics, OnRead
from proxy.cli.terminal.output import progress, say, say_json
from proxy.clock import wall_clock_ms
from proxy.dead_letters.letters.letter import Letter, Origin, Place
from proxy.dead_letters.letters.prospects import Prospect
from proxy.dead_letters.letters.selection import Selection
from proxy.dead_letters.letters.tally import Tally
from proxy.worker.stop_signals import stop_signals

ROWS_SHOWN = 50
SAY_EVERY_S = 10.0


class Work:
    """The same letters are surveyed first and replayed then.

    The topic's end is taken once, before: letters that come back while they are replayed are
    left for another time.
    """

    def __init__(
        self,
        topics: DeadLetterTopics,
        selection: Selection,
        named: Sequence[Place | Origin],
        wishes: Wishes,
        *,
        as_json: bool,
    ) -> None:
        self.tally, self.is_stopped = Tally(), False
        self._topics, self._selection, self._wishes = topics, selection, wishes
        self._as_json = as_json
        self._spans = topics.spans(selection)
        found = [find_letter(topics, one) for one in named]
        self._named = list({letter.place: letter for letter in found}.values())

    @property
    def exit_code(self) -> int:
        """0 when no letter is left that somebody has to look after."""
        return 1 if self.tally.needs_care or self.is_stopped else 0

    def survey(self, *, is_dry: bool) -> None:
        """Find out what a replay would do, and say so; a dry run shows each letter."""
        rows: list[Prospect] = []

        def keep(prospect: Prospect) -> None:
            if len(rows) < ROWS_SHOWN:
                rows.append(prospect)

        with self._reading("looking") as on_read:
            on_prospect = self._noting(keep, is_silent=not is_dry)
            survey(self._topics, self._letters(on_read), self._wishes, on_prospect)
        if is_dry and rows and not self._as_json:
            say_prospects(rows, wall_clock_ms())
            more = self.tally.goes + self.tally.stays - len(rows)
            say(f"… and {more:,} more\n" if more else "")
        if is_dry or not self._as_json:
            self._conclude(was_done=False)

    def ask(self) -> None:
        """Ends the command, with exit code 1, unless the answer is yes."""
        ingress = self._topics.settings.topics.ingress
        typer.confirm(f"Send {self.tally.goes:,} into {ingress}?", err=True, abort=True)

    def replay(self) -> None:
        """Do it; what was done is told even where it ends in an error."""
        self.tally = Tally()
        replay = Replay(self._topics, self._wishes)
        try:
            with stop_signals() as is_stopping, self._reading("replaying") as on_read:
                on_prospect = self._noting(self._now_and_then())
                replay.run(self._letters(on_read), on_prospect, is_stopping)
                self.is_stopped = is_stopping()
        finally:
            self._conclude(was_done=True)

    def _letters(self, on_read: OnRead) -> Iterable[Letter]:
        if not self._named:
            return self._topics.every(self._selection, self._spans, on_read)
        return _counted(self._named, on_read)

    @contextmanager
    def _reading(self, text: str) -> Iterator[OnRead]:
        stretches: Iterable[Sized] = [self._named] if self._named else self._spans.values()
        with reading(text, stretches, is_silent=self._as_json) as on_read:
            yield on_read

    def _noting(self, also: Callable[[Prospect], None], *, is_silent: bool = False) -> OnProspect:
        def note(prospect: Prospect, replayed_as: str | None) -> None:
            self.tally.note(prospect)
            also(prospect)
            if self._as_json and not is_silent:
                say_json(prospect_json(prospect, replayed_as))

        return note

    def _now_and_then(self) -> Callable[[Prospect], None]:
        """Says how far it is, where no bar shows it."""
        said_s = time.monotonic()

        def tell(_: Prospect) -> None:
            nonlocal said_s
            if not self._as_json and time.monotonic() - said_s > SAY_EVERY_S:
                said_s = time.monotonic()
                say(f"{self.tally.goes:,} replayed so far")

        return tell

    def _conclude(self, *, was_done: bool) -> None:
        if self._as_json:
            say_tally_json(self.tally, was_done=was_done, is_stopped=self.is_stopped)
        elif not self.tally.goes and not self.tally.stays:
            say(nothing_there(self._topics.name, self._selection))
        else:
            say_tally(self.tally, wall_clock_ms(), was_done=was_done)
        if self.is_stopped and not self._as_json:
            goes_on = (
                "would begin anew (--again)" if self._wishes.is_again else "goes on from there"
            )
            say(f"Stopped before the end; the same command {goes_on}.")


@contextmanager
def reading(text: str, stretches: Iterable[Sized], *, is_silent: bool) -> Iterator[OnRead]:
    """A bar that is told how much of the stretches has been passed."""
    if is_silent:
        yield lambda _: None
        return
    passed = 0
    with progress(text, sum(map(len, stretches))) as show:

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
