"""A parent process leaves no worker process behind."""

from __future__ import annotations

from typing import Any, cast

import pytest

from proxy.worker.run import WorkerProcesses


class Child:
    """A process that runs until it is stopped. The second one cannot start."""

    started: list[Child]

    def __init__(self, **_: object) -> None:
        self.exitcode: int | None = None

    def start(self) -> None:
        if Child.started:
            raise OSError("Resource temporarily unavailable")
        Child.started.append(self)

    def terminate(self) -> None:
        self.exitcode = 0


class Spawn:
    Process = Child

    def Pipe(self, duplex: bool = True) -> tuple[Any, Any]:  # noqa: N802
        return Ignoring(), Ignoring()


class Ignoring:
    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


def test_no_worker_is_left_when_another_cannot_be_started() -> None:
    Child.started = []
    processes = WorkerProcesses(cast(Any, None), 2, cast(Any, Ignoring()), cast(Any, Ignoring()))
    processes._spawn = cast(Any, Spawn())
    with pytest.raises(OSError, match="unavailable"):
        processes.run(lambda: False)
    assert [child.exitcode for child in Child.started] == [0]
