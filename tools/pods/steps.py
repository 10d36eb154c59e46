"""Steps of a run. Each prints a line with its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]


@contextmanager
def step(name: str) -> Iterator[Say]:
    """Time a step. The block says what it saw. A step that fails is printed as not held."""
    began, seen = time.monotonic(), list[str]()
    how = "NOT HELD"
    try:
        yield seen.append
        how = ", ".join(seen)
    finally:
        print(f"{time.monotonic() - began:7.1f} s  {name}{': ' * bool(how)}{how}", flush=True)
