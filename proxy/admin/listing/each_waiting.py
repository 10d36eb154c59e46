"""Every record that waits, one by one, for as long as a caller has patience."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from proxy.admin.listing.filters import place_of
from proxy.admin.listing.page_reader import Ask, PageReader
from proxy.scheduling.pending import Sought, WaitingRecord

COUNTED_WITHIN_S: Final = 20.0
AT_ONCE: Final = 1_000


class EachWaiting:
    """Those of these partitions that are sought, page after page. is_all: whether there are no
    others than those given; after COUNTED_WITHIN_S no more are looked for."""

    def __init__(
        self,
        ask: Ask,
        sought: Sought,
        partitions: Iterable[int],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._sought, self._now_s = ask, sought, now_s
        self._partitions = set(partitions)
        self.is_all = False

    def __iter__(self) -> Iterator[WaitingRecord]:
        """Raises NoAnswer, MailboxFull."""
        until_s, place = self._now_s() + COUNTED_WITHIN_S, place_of(None, self._sought)
        while True:
            page = PageReader(self._ask, self._sought, self._partitions, place).read(AT_ONCE)
            yield from page.records
            self.is_all = page.next is None
            if page.next is None or self._now_s() > until_s:
                return
            place = page.next
