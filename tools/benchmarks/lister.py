"""Listing of pending records, page after page, during another measurement."""

import json
import threading
import time
from types import TracebackType
from typing import Self
from urllib.parse import quote

from tools.benchmarks.errors import BenchmarkError
from tools.benchmarks.proxy_process import ProxyProcess

PAGE_RECORDS = 1_000
PAGE_WITHIN_S = 30


class Lister:
    """Thread that lists pages while its `with` block runs. After the last page it begins again.
    `records` counts the records that were listed in `seconds`. The slowest page took
    `longest_s`."""

    def __init__(self, proxy: ProxyProcess) -> None:
        self.records = 0
        self.seconds = self.longest_s = 0.0
        self._proxy = proxy
        self._closed = threading.Event()
        self._failed: str | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._thread.join(2 * PAGE_WITHIN_S)
        if kind is None and (self._failed or self._thread.is_alive() or not self.records):
            why = self._failed or "no record was listed"
            raise BenchmarkError(f"Pending records could not be listed: {why}")

    @property
    def pages_per_s(self) -> float:
        return round(self.records / PAGE_RECORDS / self.seconds, 1) if self.seconds else 0.0

    def _run(self) -> None:
        cursor = ""
        started_s = time.monotonic()
        while not self._closed.is_set() and not self._failed:
            asked_s = time.monotonic()
            try:
                cursor = self._page(cursor)
            except Exception as error:  # noqa: BLE001 - __exit__ raises it in the other thread
                self._failed = repr(error)
            ended_s = time.monotonic()
            self.longest_s = max(self.longest_s, ended_s - asked_s)
            self.seconds = ended_s - started_s

    def _page(self, cursor: str) -> str:
        """List one page. Return the next cursor, which is empty after the last page."""
        after = f"&cursor={quote(cursor)}" if cursor else ""
        status, text = self._proxy.get(
            f"/api/v1/pending/records?limit={PAGE_RECORDS}{after}", PAGE_WITHIN_S
        )
        if status != 200:
            self._failed = f"{status} {text}"
            return ""
        answer = json.loads(text)
        self.records += len(answer["records"])
        return str(answer["cursor"] or "")
