"""Cost of a part of a measurement in this process. The cost of making test entries is left out."""

import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

from tools.benchmarks.accounting import disk_traffic, resident

Result = TypeVar("Result")
LOOK_EVERY = 64


class Account:
    """Counters inside a `with` block. `cpu_s` covers all threads. `loop_s` is the wall time of the
    calls to the store. A worker's loop can do nothing else in this time. `longest_s` is the longest
    call between two transactions. `peak_bytes` is the growth of anonymous memory from the start to
    its peak. `read_bytes` and `written_bytes` are as in `DiskTraffic`."""

    def __init__(self) -> None:
        self.cpu_s = self.loop_s = self.longest_s = 0.0
        self.read_bytes = self.written_bytes = 0.0
        self.peak_bytes = 0
        self._uncounted_s = 0.0

    def __enter__(self) -> Self:
        self._first_bytes = resident(os.getpid()).anonymous_bytes
        self._traffic = disk_traffic(os.getpid())
        self._began_s = time.process_time()
        return self

    def __exit__(self, *raised: object) -> None:
        self.look()
        self.cpu_s = time.process_time() - self._began_s - self._uncounted_s
        traffic = disk_traffic(os.getpid())
        self.read_bytes = traffic.read_bytes - self._traffic.read_bytes
        self.written_bytes = traffic.written_bytes - self._traffic.written_bytes

    def steady(self, call: Callable[[], Result]) -> Result:
        """Make a call that a worker makes between two transactions, and update `longest_s`. Due
        records wait during such a call."""
        result, took_s = self.once(call)
        self.longest_s = max(self.longest_s, took_s)
        return result

    def once(self, call: Callable[[], Result]) -> tuple[Result, float]:
        began_s = time.perf_counter()
        result = call()
        took_s = time.perf_counter() - began_s
        self.loop_s += took_s
        return result, took_s

    def uncounted(self, made: Iterator[Result]) -> Iterator[Result]:
        """Yield the items. Leave out the cost of making them."""
        for number in itertools.count():
            if number % LOOK_EVERY == 0:
                self.look()
            began_s = time.thread_time()
            one = next(made, None)
            self._uncounted_s += time.thread_time() - began_s
            if one is None:
                return
            yield one

    def look(self) -> None:
        """Sample the memory. Leave out the cost of sampling."""
        began_s = time.thread_time()
        now_bytes = resident(os.getpid()).anonymous_bytes - self._first_bytes
        self.peak_bytes = max(self.peak_bytes, now_bytes)
        self._uncounted_s += time.thread_time() - began_s
