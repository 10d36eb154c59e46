"""The last turns of a worker's loop: how long each step of each took.

The loop writes and other threads read, without a lock and without asking it: a loop that stands
still is seen while it does.
"""

import struct
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar, TypeVarTuple, get_args

import numpy as np
import numpy.typing as npt

Step = Literal["fetch", "confirm", "put", "due", "publish", "tidy", "answer", "look"]
STEPS: Final[tuple[Step, ...]] = get_args(Step)
"""Of `proxy.session.pipeline` and, the last two, of `proxy.session.session`; in their order."""
OTHER: Final = "other"
"""What passes outside all steps: memory of the turn is freed; or no session is open."""
MOST_TURNS: Final = 65_536
"""A minute of a thousand turns a second."""
MINUTE_S: Final = 60.0

TURN: Final = np.dtype(
    [
        *[("began_s", "f8"), ("began_wall_s", "f8")],
        *[("took_s", "f4"), ("cpu_s", "f4"), ("may_wait_s", "f4")],
        *[(step, "f4") for step in STEPS],
        *[("fetched", "u4"), ("ended", "u4")],
    ]
)
"""A turn, in seconds: when it began, by the monotonic and by the wall clock; how long it took in
all, and how much of that its thread had a CPU; how long its fetch was to wait for a record at most;
each step. Then records: fetched, and ended by the transaction begun."""
_TURN: Final = struct.Struct(f"=2d{3 + len(STEPS)}f2I")

Rows: TypeAlias = npt.NDArray[np.void]
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class Turns(NamedTuple):
    """Turns of `TURN`, the oldest first. The last one goes on: `doing` a step, or OTHER, for so
    long; its CPU time is not known yet, and 0."""

    rows: Rows
    doing: str
    doing_s: float


@dataclass(slots=True)
class _Turn:
    """The turn under way; all turns of a lower number have been written."""

    number: int
    began_s: float
    began_wall_s: float
    began_cpu_s: float
    doing: tuple[str, float]
    may_wait_s: float = 0.0
    took_s: dict[Step, float] = field(default_factory=lambda: dict.fromkeys(STEPS, 0.0))
    fetched: int = 0
    ended: int = 0

    def row(self, until_s: float, cpu_s: float) -> tuple[float, ...]:
        """In the order of `TURN`."""
        return (
            self.began_s,
            self.began_wall_s,
            until_s - self.began_s,
            cpu_s,
            self.may_wait_s,
            *self.took_s.values(),
            self.fetched,
            self.ended,
        )


class TurnLog:
    """Of one worker, over all its sessions. Bounded: a turn takes the place of the oldest.

    Turn 0 is the time until the first one begins. `now_s` is monotonic, `cpu_s` is what the loop's
    thread has used of CPUs.
    """

    def __init__(
        self,
        most: int = MOST_TURNS,
        now_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:
        self._bytes = np.zeros(most * TURN.itemsize, np.uint8)
        self._rows: Rows = self._bytes.view(TURN)
        self._most, self._now_s, self._wall_s, self._cpu_s = most, now_s, wall_s, cpu_s
        self._turn = self._new_turn(0, now_s(), cpu_s())

    def begin(self) -> None:
        """The turn before has ended, the next one begins."""
        now_s, cpu_s, turn = self._now_s(), self._cpu_s(), self._turn
        place = turn.number % self._most * _TURN.size
        _TURN.pack_into(self._bytes.data, place, *turn.row(now_s, cpu_s - turn.began_cpu_s))
        self._turn = self._new_turn(turn.number + 1, now_s, cpu_s)

    def timed(
        self, step: Step, do: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """What `do` returns or raises; the time it takes is the step's."""
        turn, began_s = self._turn, self._now_s()
        turn.doing = step, began_s
        try:
            return do(*arguments)
        finally:
            ended_s = self._now_s()
            turn.doing = OTHER, ended_s
            turn.took_s[step] += ended_s - began_s

    def may_wait(self, wait_s: float) -> None:
        """So long at most fetch waits for a first record: that is rest, and no delay."""
        self._turn.may_wait_s = wait_s

    def count_fetched(self, records: int) -> None:
        """So many have come."""
        self._turn.fetched += records

    def count_ended(self, records: int) -> None:
        """So many end with the transaction begun."""
        self._turn.ended += records

    def read(self, seconds: float = MINUTE_S) -> Turns:
        """The turns of the last so many seconds, from any thread; the one under way among them.

        Those that the loop has overwritten meanwhile, or may be writing now, are left out.
        """
        turn, now_s = self._turn, self._now_s()
        first = self._first_since(now_s - seconds, turn.number)
        rows = self._rows.take(np.arange(first, turn.number + 1), mode="wrap")
        overwritten = self._turn.number - self._most + 1 - first
        doing, doing_s = _write_as_it_stands(turn, now_s, rows[-1:])
        return Turns(rows[max(0, min(overwritten, len(rows) - 1)) :], doing, doing_s)

    def _new_turn(self, number: int, now_s: float, cpu_s: float) -> _Turn:
        return _Turn(number, now_s, self._wall_s(), cpu_s, (OTHER, now_s))

    def _first_since(self, since_s: float, end: int) -> int:
        """The number of the turn that was under way then, or of the oldest one kept."""
        oldest, began_s = max(0, end - self._most), self._rows["began_s"]
        kept = range(oldest, end)
        later = bisect_left(kept, since_s, key=lambda number: began_s[number % self._most])
        return oldest + max(0, later - 1)


def _write_as_it_stands(turn: _Turn, now_s: float, row: Rows) -> tuple[str, float]:
    """Read in this order, no time counts twice while the loop goes from step to step."""
    row[0] = turn.row(now_s, 0.0)
    doing, since_s = turn.doing
    doing_s = max(0.0, now_s - since_s)
    if doing != OTHER:
        row[doing] += doing_s
    return doing, doing_s
