"""Steps of a run, with their times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Step(NamedTuple):
    name: str
    seconds: float
    seen: str


class Steps:
    """List of the steps that ended. Each prints one line."""

    def __init__(self, ended: list[Step] | None = None) -> None:
        self.ended = ended or []

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Time a step. The block says what it saw."""
        began, seen = time.monotonic(), list[str]()
        try:
            yield seen.append
        except BaseException:
            print(f"{time.monotonic() - began:7.1f} s  {name}: not done", flush=True)
            raise
        step = Step(name, time.monotonic() - began, ", ".join(seen))
        self.ended.append(step)
        print(f"{step.seconds:7.1f} s  {name}{': ' * bool(seen)}{step.seen}", flush=True)

    def table(self) -> str:
        width = max(len(step.name) for step in self.ended)
        lines = [f"{name:{width}}  {seconds:7.1f}  {seen}" for name, seconds, seen in self.ended]
        total = sum(step.seconds for step in self.ended)
        head = f"{'step':{width}}  seconds  seen"
        return "\n".join([head, *lines, f"{'all':{width}}  {total:7.1f}"])
