"""Of one partition: which records have been read and are not done, what is behind them. Pure."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

from proxy.client.request import Request

Range: TypeAlias = tuple[int, int]
"""Offsets from the first one on, up to the second one without it."""


class Progress:
    """What has been read since the last commit, from the offset `first` on; records end in any
    order.

    `remembered` are ranges behind it that a commit says are done: what is read of them is left out.
    Memory is taken by what is not done, and not by what is.
    """

    def __init__(self, first: int, remembered: Iterable[Range] = ()) -> None:
        self.committed = self.position = first
        """`position` is behind all that was read, and what follows it and is done."""
        self.ended = 0
        """Records that were handled or have failed since the last commit."""
        self.requests: dict[int, Request] = {}
        """Of records that have failed: they are not done before these are stored."""
        self.request_bytes = self.new_request_bytes = 0
        """Of all of them; and of all that have failed since the last commit."""
        self.is_too_much = False
        """What is done behind the end is in too many pieces to be committed with it."""
        self._undone: list[int] = []
        self._after_done: set[int] = set()
        """Those of them with a done record between them and the one before them."""
        self._is_last_done = False
        self._remembered = deque(remembered)

    @property
    def undone(self) -> int:
        """How many records have been read and are not done."""
        return len(self._undone)

    @property
    def is_over(self) -> bool:
        """Whether nothing has to be kept in mind once the position is committed."""
        return not self._undone and not self._remembered

    def take(self, offset: int) -> bool:
        """The record there has been read. False when it had been before, or is done."""
        self._pass_remembered(offset)
        if offset < self.position:
            return False
        if self._is_last_done:
            self._after_done.add(offset)
        self._is_last_done = False
        self._undone.append(offset)
        self.position = offset + 1
        self._pass_remembered(self.position)
        return True

    def failed(self, offset: int, request: Request) -> None:
        """The record there is done with once the request is stored."""
        self.ended += 1
        self.requests[offset] = request
        self.request_bytes += request.size_bytes
        self.new_request_bytes += request.size_bytes

    def done(self, offset: int) -> None:
        """The record there is done with."""
        place = bisect_left(self._undone, offset)
        assert self._undone[place] == offset
        del self._undone[place]
        if request := self.requests.pop(offset, None):
            self.request_bytes -= request.size_bytes
        self._after_done.discard(offset)
        if place < len(self._undone):
            self._after_done.add(self._undone[place])
        else:
            self._is_last_done = True

    def end(self, *, is_stored: bool = False) -> int:
        """The offset that can be committed; or could be, were all requests before it stored."""
        held = (one for one in self._undone if not (is_stored and one in self.requests))
        return next(held, self.position)

    def done_behind(self, end: int) -> Iterator[Range]:
        """What is done behind this end, in order; what lies in between is not."""
        for before, after in pairwise(self._undone):
            if after in self._after_done and before >= end:
                yield before + 1, after
        if self._is_last_done and self._undone and self._undone[-1] >= end:
            yield self._undone[-1] + 1, self.position
        yield from self._remembered

    def settled(self) -> None:
        """The end is committed, with what is done behind it."""
        self.committed, self.ended, self.new_request_bytes = self.end(), 0, 0

    def _pass_remembered(self, offset: int) -> None:
        while self._remembered and self._remembered[0][0] <= offset:
            self.position = max(self.position, self._remembered.popleft()[1])
            self._is_last_done = True
