"""The undecided half messages of a shard, to be listed a few at a time."""

from bisect import bisect_right
from typing import NamedTuple

from proxy.scheduling.half_messages import HalfMessages


class UndecidedMessage(NamedTuple):
    """A half message by the offset of its prepare. size_bytes: None where it was not read since
    the shard was taken over."""

    offset: int
    ident: bytes
    due_ms: int
    target: str
    size_bytes: int | None


class ListedHalfMessages(HalfMessages):
    """`HalfMessages` that can be looked through."""

    def beyond(self, offset: int, most: int) -> list[tuple[int, bytes, int | None]]:
        """Offset, id and size of the first `most` beyond `offset`."""
        offsets = list(self._idents)
        first = bisect_right(offsets, offset)
        return [(at, self._idents[at], self._sizes.get(at)) for at in offsets[first : first + most]]
