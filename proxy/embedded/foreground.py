"""The embedded broker in the foreground, as the command `kafka-delay-proxy broker` runs it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from proxy.embedded.broker import EmbeddedBroker


class _StopAsked(BaseException):
    """SIGTERM or SIGINT came; ends whatever the main thread is waiting for."""


def run_broker(port: int, data_dir: Path | str) -> None:
    """Run a broker until SIGTERM or SIGINT, then stop it cleanly and return.

    Prints `Kafka ready on HOST:PORT` on stdout when clients may come. Main thread only. Raises
    what `EmbeddedBroker` raises.
    """
    broker = EmbeddedBroker(data_dir, port=port)
    try:
        with suppress(_StopAsked), _stop_raises():
            broker.start()
            print(f"Kafka ready on {broker.bootstrap_servers}", flush=True)
            broker.wait()
    finally:
        broker.stop()


@contextmanager
def _stop_raises() -> Iterator[None]:
    def ask(_signal: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise _StopAsked

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    yield
