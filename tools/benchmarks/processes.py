"""Separate processes, so that generator, relay and reader share no interpreter lock."""

import multiprocessing
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Generic, Self, TypeVar

from tools.benchmarks.errors import BenchmarkError

Result = TypeVar("Result")
Announce = Callable[[], None]


class Job(Generic[Result]):
    """One call of a function in a spawned process. The first argument of `work` is a callable that
    announces readiness. The end of the `with` block ends the process."""

    def __init__(self, work: Callable[..., Result], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._link, theirs = context.Pipe(duplex=False)
        self._name = work.__name__
        self._process = context.Process(
            target=_run, args=(theirs, work, arguments), name=self._name, daemon=True
        )
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.is_alive() and kind is not None:
            self._process.kill()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
        self._link.close()

    def wait_ready(self, timeout_s: float = 60) -> None:
        self._receive("ready", timeout_s)

    def result(self, timeout_s: float) -> Result:
        """Return the result of `work`. Raise BenchmarkError if it failed or timed out."""
        answer: Result = self._receive("done", timeout_s)  # type: ignore[assignment]
        return answer

    def _receive(self, wanted: str, timeout_s: float) -> object:
        while True:
            kind, content = self._next_message(timeout_s)
            if kind == "failed":
                raise BenchmarkError(f"The process `{self._name}` failed:\n{content}")
            if kind == wanted:
                return content

    def _next_message(self, timeout_s: float) -> tuple[str, object]:
        if not self._link.poll(timeout_s):
            raise BenchmarkError(f"The process `{self._name}` said nothing for {timeout_s:.0f} s.")
        try:
            kind, content = self._link.recv()
        except EOFError as error:
            raise BenchmarkError(f"The process `{self._name}` ended without a message.") from error
        return kind, content


def leave_on_sigterm() -> None:
    """Turn SIGTERM into SystemExit, so that brokers and proxies are stopped."""
    signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def _run(link: Connection, work: Callable[..., object], arguments: tuple[object, ...]) -> None:
    def announce() -> None:
        link.send(("ready", None))

    try:
        link.send(("done", work(announce, *arguments)))
    except BaseException:  # noqa: BLE001 - the parent process reports every failure
        link.send(("failed", traceback.format_exc()))
    finally:
        link.close()
