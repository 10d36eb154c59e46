"""Proxy that stops at one step of a transaction until the test continues it. Run with `python -m`
and the arguments of `kafka-delay-proxy`. The file `hold` beside the settings names the step. At
this step the process renames the file to `held`, and continues when `held` is deleted. If there is
a file `cut`, the process first cuts all its connections to the broker."""

import os
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from proxy.cli import main
from proxy.publishing import transaction as publisher
from proxy.publishing.transaction import Transaction
from proxy.scheduling.batch import Batch
from proxy.session import session
from tests.support.installation.proxy_process import ProxyProcess
from tests.support.waiting import wait_for

STEPS = (
    "before begin",
    "begun",
    "first record",
    "all records",
    "offsets sent",
    "before commit",
    "committed",
    "before confirm",
)
CUT, FAILED = "cut", "failed"
LOOK_EVERY_S = 0.01
HELD_WITHIN_S = 180


class HeldProxy(ProxyProcess):
    module = "tests.support.installation.held_proxy"

    def hold_at(self, step: str) -> None:
        unseen = self.folder / "unseen"
        unseen.write_text(step, "utf-8")
        unseen.rename(self.folder / "hold")

    def await_held(self) -> None:
        held = self.folder / "held"
        wait_for(held.exists, HELD_WITHIN_S, f"the step: {self.log_tail()}")

    def go_on(self) -> None:
        (self.folder / "held").unlink()

    @property
    def has_failed(self) -> bool:
        return (self.folder / FAILED).exists()

    def go_on_cut_off(self) -> None:
        (self.folder / CUT).touch()
        self.go_on()


def _hold(step: str) -> None:
    hold = _folder / "hold"
    if not hold.exists() or hold.read_text("utf-8") != step:
        return
    held = hold.rename(_folder / "held")
    while held.exists():
        time.sleep(LOOK_EVERY_S)
    cut = _folder / CUT
    if cut.exists():
        cut.unlink()
        _cut_connections()


@contextmanager
def _noted() -> Iterator[None]:
    try:
        yield
    except KafkaException:
        (_folder / FAILED).touch()
        raise


def _cut_connections() -> None:
    for opened in filter(Path.is_socket, Path("/proc/self/fd").iterdir()):
        with suppress(OSError), socket.socket(fileno=os.dup(int(opened.name))) as connection:
            if connection.family == socket.AF_INET and connection.getpeername():
                connection.shutdown(socket.SHUT_RDWR)


class _HeldProducer(Producer):
    """Transactional producer of a session. Other producers begin no transactions."""

    def begin_transaction(self) -> None:
        _hold("before begin")
        super().begin_transaction()
        _hold("begun")

    def produce(self, *args: Any, **named: Any) -> None:
        super().produce(*args, **named)
        _hold("first record")

    def send_offsets_to_transaction(self, *args: Any, **named: Any) -> None:
        _hold("all records")
        with _noted():
            super().send_offsets_to_transaction(*args, **named)
        _hold("offsets sent")

    def commit_transaction(self, *args: Any, **named: Any) -> None:
        _hold("before commit")
        with _noted():
            super().commit_transaction(*args, **named)
        _hold("committed")


class _HeldTransaction(Transaction):
    def wait(self) -> Sequence[Batch[Any]]:
        done = super().wait()
        _hold("before confirm")
        return done


if __name__ == "__main__":
    _folder = Path(sys.argv[sys.argv.index("--config") + 1]).parent
    session.Producer = _HeldProducer  # type: ignore[attr-defined]
    publisher.Transaction = _HeldTransaction  # type: ignore[misc]
    main()
